// Leases of the running jobs of one virtual cluster, who waits there, and the knobs of an auction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"
#include "units.hpp"

namespace trimtab {

// The knobs of Themis in whole numbers; see `Rules` in `policies/themis.py`.
struct AuctionRules {
    Ms lease_ms = 0;
    bool cuts = false;                // whether a new lease cuts those that run
    std::int64_t visible_ppm = 0;     // share of the bidders that are asked first
    bool paper = false;               // the paper's ideal model
    std::int64_t threshold_ppm = 0;   // slowest speed at which a gang is spread
    Ms delay_ms = 0;
    bool payment = false;
};

// A lease that is given to a job; see `Lease` in `policies/policy.py`.
struct Grant {
    JobId job;
    Ms start_ms;
    Ms end_ms;
    Ms renewal_ms;
};

// Who waits and when leases end: derived from the jobs' own state, and kept only where leases are given.
class Desk {
public:
    void clear();

    // Enter a pending job, or strike it out if it is there.
    void wait(Job& job);
    void serve(const Job& job, std::vector<Job>& jobs);

    // Enter a running job's lease; the entries of earlier ones are out of date.
    void lease(const Job& job) { push({job.lease_end_ms, job.id}); }

    const std::vector<JobId>& waiting() const { return waiting_; }

    // Running jobs whose lease has ended and that wait for an auction, at the last look.
    std::vector<JobId> ended;

    // The next lease that ends by an instant, taken out of the line; false if there is none.
    bool next_ended(const std::vector<Job>& jobs, Ms by_ms, JobId& found);

    // When the next lease ends, NONE if none does.
    Ms next_end_ms(const std::vector<Job>& jobs);

    // Whether a running job's lease is in line, or has ended.
    bool has(const Job& job) const;

private:
    struct End {
        Ms end_ms;
        JobId job;
        friend bool operator<(const End& one, const End& two) { return one.end_ms > two.end_ms; }  // earliest on top
    };

    static bool holds(const std::vector<Job>& jobs, const End& end) {
        const Job& job = jobs[static_cast<std::size_t>(end.job)];
        return job.state == State::running && job.lease_end_ms == end.end_ms;
    }
    void push(End end);
    void pop();

    std::vector<JobId> waiting_;
    std::vector<End> ends_;  // a heap
};

}  // namespace trimtab
