// What a policy's knobs amount to, as in `policies/policy.py`: how jobs are ordered and when they move.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gittins.hpp"
#include "job.hpp"
#include "leases.hpp"
#include "lucid.hpp"
#include "order.hpp"
#include "policy.hpp"
#include "units.hpp"

namespace trimtab {

// What comes first inside a level; the engine's own order, or a key.
enum class Rank : std::uint8_t {
    place,              // running jobs first, then pending ones, newcomers last
    arrival,            // fifo
    estimate,           // sjf
    estimated_service,  // qssf
    remaining,          // srtf
    remaining_service,  // srsf, tiresias with priority srsf
    seniority,          // tiresias with in_queue_order start
    gittins,            // tiresias with priority gittins
    due,                // edf
    hook,               // a policy of one's own
};

enum class Regrade : std::uint8_t { immediate, lazy, new_only };

enum class Starve : std::uint8_t { never, ratio, absolute, hook };

struct Plan {
    std::int32_t knobs = 0;  // which setting this is; equal numbers mean equal knobs
    std::string text;        // the setting as people write it, for refusals
    bool preemptive = false;
    bool strict = false;
    Grades grades;
    Regrade regrade = Regrade::immediate;
    Rank rank = Rank::place;
    bool counts_overhead = false;  // unpaid restart cost counts as remaining time
    Starve starve = Starve::never;
    std::int64_t starve_ppm = 0;  // ratio: of the time run
    Ms starve_ms = 0;             // absolute
    bool may_consolidate = false;  // whether some gangs may not be spread (relaxed placement)
    std::int64_t pack_limit_ppm = 0;
    Ms min_run_ms = 0;
    Ms quantum_ms = 0;
    bool needs_estimates = false;
    bool needs_nodes = false;
    double history_weight = 0.0;
    Ms retrain_ms = 86'400'000;
    bool rescore = false;
    Ms refresh_ms = 0;
    std::shared_ptr<const GittinsIndex> gittins;  // made by the engine from its completed jobs
    std::shared_ptr<const LucidRules> lucid;      // what Lucid decides by, else none
    std::shared_ptr<const std::vector<Ms>> due_ms;  // by job: the deadline it is queued by, for `Rank::due`
    std::shared_ptr<const Planner> planner;       // of a policy of one's own: the plan is what it makes
    std::shared_ptr<const Hooks> hooks;           // the same, and which of them are asked
    std::shared_ptr<const Decider> native;        // decides a whole pass without Python
    std::optional<AuctionRules> auction;          // of Themis, which is no order
    bool hooks_level = false, hooks_change = false, hooks_consolidate = false;

    std::int32_t levels() const { return static_cast<std::int32_t>(grades.size()) + 1; }
    bool is_gittins() const { return rank == Rank::gittins; }

    // Whether keys of running jobs have to be asked for anew at every instant ..
    bool jumps() const { return rank == Rank::gittins || rank == Rank::hook; }

    // .. or stay what they are, restarts included.
    bool keys_stand() const { return !jumps() && rank != Rank::remaining && rank != Rank::remaining_service; }

    // Whether a gang may not be spread.
    bool consolidates(const Job& job, std::int64_t skew_ppm) const {
        if (hooks_consolidate) return hooks->consolidates(job, grades);
        return may_consolidate && job.gpus > 1 && skew_ppm > pack_limit_ppm;
    }
};

// The key of a job that runs; it holds until the job moves. Not for the Gittins index, which jumps.
RunningKey running_key(const Job& job, const Plan& plan);

// The order of a job at an instant, by a key that has to be computed.
Order computed_order(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan);

// The order of a job at an instant.
inline Order order_of(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan) {
    if (plan.rank == Rank::place) return {job.place, 0, job.level, job.id};
    if (plan.rank == Rank::arrival) return {job.id, 0, job.level, job.id};
    return computed_order(job, grades, now_ms, plan);
}

// How many grades a service has reached.
std::int32_t grades_passed(const Grades& grades, GpuMs attained);

// The level of a job: by what it has attained (reaching a grade exactly demotes), or what its policy says.
std::int32_t level_of(const Job& job, const Grades& grades, const Plan& plan);

// How long a running job may hold its GPUs until its level or key has to be looked at again, or NONE.
Ms next_change_ms(const Job& job, const Grades& grades, const Plan& plan);

// Waiting time after which a job is promoted, or NONE.
Ms starve_limit_ms(const Job& job, const Grades& grades, const Plan& plan);

}  // namespace trimtab
