// Lucid's pass: who is profiled, and who runs beside whom; see `policies/lucid.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "index.hpp"
#include "job.hpp"
#include "policy.hpp"
#include "units.hpp"

namespace trimtab {

// What jobs that share GPUs do to each other, by kind of job. Jobs of one kind have equal profiles and as many members.
struct Pairing {
    std::vector<std::int32_t> kind;  // by job
    std::int32_t kinds = 0;
    std::vector<std::int64_t> gmem_mib;     // by kind
    std::vector<std::int64_t> newcomers_ppm;  // speed of the one that comes, by its kind, then the other's
    std::vector<std::int64_t> partners_ppm;   // speed of the one that is there, likewise
    std::vector<std::uint8_t> fits;           // likewise

    std::size_t at(std::int32_t newcomer, std::int32_t partner) const {
        return static_cast<std::size_t>(newcomer) * static_cast<std::size_t>(kinds) + static_cast<std::size_t>(partner);
    }
    std::int32_t kind_of(JobId id) const { return kind[static_cast<std::size_t>(id)]; }
};

// A forecast of submissions: from each instant on, jobs per ten minutes in ppm.
struct Pace {
    std::vector<std::pair<Ms, std::int64_t>> steps;

    std::int64_t at(Ms now_ms) const;
    Ms next_ms(Ms now_ms) const;  // NONE after the last
};

struct LucidRules {
    enum class Prefers : std::uint8_t { free_first, pack_first, forecast };

    std::int32_t prof_nodes = 0;
    Ms t_prof_ms = 0;
    std::int32_t prof_factor = 1;
    bool autoscales = false;
    std::int32_t gsc = 0;
    std::vector<std::int32_t> scores;  // by kind
    std::int64_t ratio_ppm = NONE;     // NONE: no limit
    std::int64_t off_below_ppm = 0;
    Prefers prefers = Prefers::free_first;
    bool is_best = true;
    std::int64_t mem_limit_mib = 0;
    bool strict = false;
};

// What a pass reads beside its own lists.
struct LucidScene {
    const std::vector<Job>& jobs;
    const LucidRules& rules;
    const Pairing* pairing;
    const Pace* pace;
    Ms now_ms;
    bool relaxed;
};

// One virtual cluster as Lucid sees it. All of it follows from who runs where and who waits.
class Lucid {
public:
    // Forget all jobs; there are so many distinct widths and kinds.
    void reset(std::int32_t nodes, std::int32_t gpus_per_node, const std::vector<std::int32_t>& widths, std::int32_t kinds);

    // Enter a running job as it was found.
    void enter(const Job& job, std::int32_t width, std::int32_t kind);

    // Enter a job that waits.
    void push(const Job& job, std::int32_t width, std::int32_t kind);

    // Give back what a job held that shared with nobody.
    void leave(const Job& job, std::int32_t width);

    // A running job has lost its partner.
    void stay_alone(const Job& job, std::int32_t width, std::int32_t kind);

    // Decide whom to start; the lists are as if it was done.
    Verdict pass(const LucidScene& scene);

    // When to look again if nothing happens, or NONE.
    Ms next_review_ms(const LucidScene& scene) const;

    // Add all jobs that wait to `found`.
    void all(std::vector<JobId>& found) const;

private:
    struct Waiting {
        std::int64_t key;  // of the list it is in: GPUs, or predicted service
        JobId id;
        std::int32_t width;
        std::int32_t kind;
        bool is_new;
        std::int32_t gpus, member_gpus;
        std::int64_t service;
        friend bool operator<(const Waiting& one, const Waiting& two) {
            return one.key != two.key ? one.key < two.key : one.id < two.id;
        }
    };
    struct Single {  // runs on GPUs of its own on one node
        Ms started_ms;
        JobId id;
        std::int32_t kind;
        std::int32_t member_gpus;
        std::int64_t service;
        friend bool operator<(const Single& one, const Single& two) {
            return one.started_ms != two.started_ms ? one.started_ms < two.started_ms : one.id < two.id;
        }
    };
    struct Failure {  // of the search for a partner, for this service and more
        std::uint32_t version = 0;
        std::int64_t service = 0;
    };

    std::int32_t room(std::int32_t nodes) const;
    void lay_out(const LucidRules& rules);
    void insert(Waiting job);
    void split(std::int32_t limit);
    void count(const Waiting& job, std::int32_t by);
    void add_single(std::int32_t width, const Single& single);
    void profile(const LucidScene& scene, Verdict& verdict);
    bool place_profile(std::int32_t gpus, Nodes& found) const;
    std::int32_t best_profiler(std::int32_t gpus, const Nodes& taken) const;
    bool start_alone(const LucidScene& scene, const Waiting& job, Verdict& verdict);
    bool start_beside(const LucidScene& scene, const Waiting& job, Verdict& verdict);
    bool goes(const LucidScene& scene, const Waiting& job, const Single& other) const;
    bool shares(const LucidScene& scene) const;
    bool packs_first(const LucidScene& scene) const;

    std::int32_t nodes_ = 0;
    std::int32_t size_ = 0;  // GPUs a node
    std::int32_t kinds_ = 0;
    std::vector<std::int32_t> widths_;        // the distinct widths, ascending
    Layer main_;                              // free GPUs; nothing is free on nodes of the profiler
    std::vector<std::int32_t> profiler_;      // its nodes, ascending, those included that take no new jobs
    std::vector<std::int32_t> open_;          // those that do
    std::vector<std::int32_t> used_;          // by node: GPUs held by profiles
    std::int32_t limit_ = 0;                  // GPUs up to which a new job is profiled
    std::vector<Waiting> new_, queue_;        // for the profiler; for good
    std::vector<std::int32_t> pending_, fresh_;  // by width: jobs that wait, and those of them that never ran
    std::vector<std::vector<Single>> singles_;   // by width
    std::vector<std::uint32_t> versions_;        // by width: grows when a job joins
    std::vector<Failure> failures_;              // by width and kind
    std::int32_t failed_ = 0;                    // smallest width that found no free GPUs in this pass
};

}  // namespace trimtab
