// The running jobs of one level in walk order, kept from walk to walk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"
#include "plan.hpp"

namespace trimtab {

// A running job that comes later in a walk than somebody, and the GPUs it holds if they are on one node: who goes
// through many of these need not look at the jobs.
struct LateJob {
    Order order;
    Share share;  // no GPUs: on several nodes

    LateJob(const Order& its, const Job& job) : order(its), share(job.nodes.size() == 1 ? *job.nodes.begin() : Share{}) {}
    friend bool operator<(const LateJob& one, const LateJob& two) { return one.order < two.order; }
};

// Such jobs, in runs; the last job is the first of its run.
class Later {
public:
    using Run = std::vector<LateJob>;

    void clear() { used_ = 0; }
    bool empty() const { return used_ == 0; }
    const Run* begin() const { return runs_.data(); }
    const Run* end() const { return runs_.data() + used_; }

    // An empty run to be filled; `keep` it unless it has stayed empty.
    Run& open() {
        if (used_ == runs_.size()) runs_.emplace_back();
        runs_[used_].clear();
        return runs_[used_];
    }
    void keep() { used_ += runs_[used_].empty() ? 0 : 1; }

    // Leave out those that do not come after `order`, and tell about each; where none is left, there is nothing to tell.
    template <typename Tell>
    void leave_out(const Order& order, Tell tell) {
        if (std::none_of(begin(), end(), [&](const Run& run) { return order < run.front().order; })) {
            clear();
            return;
        }
        for (std::size_t at = 0; at < used_;) {
            Run& run = runs_[at];
            for (; !run.empty() && !(order < run.back().order); run.pop_back()) tell(run.back());
            if (run.empty()) {
                run.swap(runs_[--used_]);
            } else {
                ++at;
            }
        }
    }

private:
    std::vector<Run> runs_;
    std::size_t used_ = 0;
};

// Jobs whose keys fall at one rate never overtake each other, so each rate is a sorted list of its own; static keys
// are the rate 0. Jobs whose restart costs are unpaid stand apart until they are. An entry is out of date once its
// job has taken another turn (`Job::turn`); it is dropped when met.
class LineUp {
public:
    // Forget all jobs. Those entered next are only put in order by `ready`.
    void clear();
    void ready(const std::vector<Job>& jobs);

    // Enter a running job; it has just taken a turn.
    void enter(const std::vector<Job>& jobs, const Job& job, const RunningKey& key, Ms now_ms);

    // Find the jobs that come after a place in the walk.
    void after(const std::vector<Job>& jobs, const Order& place, Ms now_ms, Later& found);

private:
    struct Entry {
        Wide line;  // key at time 0, were it to fall all the time: more than 64 bits for wide gangs late on the clock
        JobId id;
        std::uint32_t turn;

        friend bool operator<(const Entry& one, const Entry& two) {
            return one.line != two.line ? one.line < two.line : one.id < two.id;
        }
    };

    // `sorted` rises; what belongs far from its end waits in `fresh` until there is enough of it to be merged.
    struct Rate {
        std::int64_t fall = 0;   // by which keys fall a millisecond
        std::int64_t least = 0;  // and where they stop
        std::size_t most = 64;   // with more entries, those out of date are dropped
        std::vector<Entry> sorted, fresh;

        Wide key_at(const Entry& entry, Ms now_ms) const {
            return std::max<Wide>(least, entry.line - static_cast<Wide>(now_ms) * fall);
        }
    };

    struct Unpaid {
        RunningKey key;
        JobId id;
        std::uint32_t turn;
    };

    Rate& rate_of(const RunningKey& key);
    void add(const std::vector<Job>& jobs, const RunningKey& key, JobId id, std::uint32_t turn);
    void merge(const std::vector<Job>& jobs, Rate& rate);
    static void collect(const std::vector<Job>& jobs, Rate& rate, const Order& place, Ms now_ms, Later& found);
    static void collect_fresh(const std::vector<Job>& jobs, Rate& rate, const Order& place, Ms now_ms, Later& found);
    void collect_unpaid(const std::vector<Job>& jobs, const Order& place, Ms now_ms, Later& found);

    bool is_ready_ = true;
    std::vector<Rate> rates_;
    std::vector<Unpaid> unpaid_;  // in any order
    std::vector<Entry> merged_;   // scratch
};

}  // namespace trimtab
