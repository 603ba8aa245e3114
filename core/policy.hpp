// Policies that the engine asks instead of knowing their rules; see `policies/policy.py`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "job.hpp"
#include "leases.hpp"
#include "units.hpp"

namespace trimtab {

using Grades = std::vector<GpuMs>;

struct Order;
struct Plan;

// What a queue policy of one's own says of a job; one that has no answer of its own is not asked.
class Hooks {
public:
    virtual ~Hooks() = default;

    // Fill in an order's key.
    virtual void key(const Job& job, const Grades& grades, Ms now_ms, Order& order) const = 0;
    virtual std::int32_t level(const Job& job, const Grades& grades) const = 0;
    virtual Ms next_change_ms(const Job& job, const Grades& grades) const = 0;
    virtual Ms starve_ms(const Job& job, const Grades& grades) const = 0;
    virtual bool consolidates(const Job& job, const Grades& grades) const = 0;

    // A walk begins: keys of running jobs are not compared with those of an earlier one.
    virtual void begin_walk() const = 0;

    // Whether jobs would have the same levels under these hooks.
    virtual bool has_level_of(const Hooks* other) const = 0;
};

// Makes the plan of such a policy anew from the services of completed jobs.
class Planner {
public:
    virtual ~Planner() = default;
    virtual Plan plan(const std::vector<GpuMs>& completed_gpu_ms) const = 0;
};

// What a whole-pass policy sees of one virtual cluster. Jobs are by id.
struct View {
    Ms now_ms;
    std::int32_t home;
    std::int32_t knobs;  // which setting
    std::vector<const Job*> pending, running;
    const std::vector<std::int32_t>& free_gpus;  // by node
    const std::vector<Ms>& submit_ms;            // by job
    std::int64_t job_ms;
    Ms review_ms;
    const VirtualCluster& vc;
    const Workload& workload;
    const std::vector<Care>& cares;  // by job
    bool relaxed;                    // whether gangs may be spread
    bool counted;                    // whether it does not matter on which node a GPU is
    const std::vector<std::int64_t>& memory;  // what was to be remembered last

    const Care& care(const Job& job) const { return cares[static_cast<std::size_t>(job.id)]; }
    const Service& service(const Job& job) const { return workload.service_of(job.id); }
    const Curve* curve(const Job& job) const { return workload.known_curve_of(job.id); }
};

// What it decides, checked: running jobs that lose their GPUs, places of those that get some, in order, and leases.
struct Verdict {
    // How a job starts, if not just so: beside another one (-1: no), or for a limited time (NONE: no).
    struct Terms {
        JobId id;
        Ms until_ms;
        JobId beside;
    };

    struct Given {
        JobId id;
        Allotment share;
    };
    struct Note {
        JobId id;
        Ms promise_ms;
        std::vector<std::int64_t> note;
    };

    bool is_empty = true;  // but for what is remembered
    std::vector<JobId> lost;
    std::vector<std::pair<JobId, Nodes>> places;  // the GPUs of those that start beside others need not be told
    std::vector<Terms> terms;
    std::vector<Grant> grants;
    std::vector<Given> shares;   // CPU and memory of those that start, where they are told
    std::vector<Given> resizes;  // and of those that run on
    std::vector<Note> notes;
    std::optional<std::vector<std::int64_t>> memory;  // of the virtual cluster, where it changes
};

class Decider {
public:
    virtual ~Decider() = default;
    virtual Verdict decide(const View& view) const = 0;
    virtual Ms next_review_ms(const View& view) const = 0;  // NONE for none
};

}  // namespace trimtab
