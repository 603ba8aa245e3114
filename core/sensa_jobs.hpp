// Jobs as a pass of SensaScale rates them, their units, and their shares; see `policies/urgency.py`, `policies/units.py`
// and `policies/adjust.py`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cluster.hpp"
#include "job.hpp"
#include "policy.hpp"
#include "sensascale.hpp"
#include "units.hpp"

namespace trimtab {

inline constexpr Ms FAR_MS = std::int64_t{1} << 60;

// A part of a number that is not negative.
inline std::int64_t part_of(std::int64_t number, std::int64_t ppm) {
    return static_cast<std::int64_t>(Wide{number} * ppm / FULL_SPEED_PPM);
}

// The ratio of two numbers, the first not negative, in ppm.
inline std::int64_t ratio_ppm(std::int64_t number, std::int64_t by) {
    return static_cast<std::int64_t>(Wide{number} * FULL_SPEED_PPM / by);
}

inline bool is_same(const Allotment& one, const Allotment& two) {
    return one.cores == two.cores && one.memory_mib == two.memory_mib;
}

enum class Standing : std::uint8_t { deadline, best_effort, hopeless };

// A job at one instant, with what a pass decides about it on the way.
struct Rated {
    const Job* job = nullptr;
    const VirtualCluster* vc = nullptr;
    const Curve* curve = nullptr;
    const Traits* traits = nullptr;
    Work work = 0;
    Ms unpaid_ms = 0;
    Allotment part;
    Allotment share;
    Allotment measured_share;
    std::int64_t measured_ppm = -1;
    std::int64_t speed_now_ppm = FULL_SPEED_PPM;
    Ms deadline_ms = NONE;
    Ms resized_ms = NONE;
    Ms left_ms = 0;  // with its part
    Nodes nodes;
    std::int32_t evictions = 0;
    Standing rank = Standing::best_effort;
    Service::Kind kind = Service::Kind::best;
    bool is_new = false;
    bool is_promised = false;  // its deadline was promised, and can still be met
    bool on_one_node = true;

    JobId id() const { return job->id; }
    std::int32_t gpus() const { return job->gpus; }
    std::int32_t node() const { return nodes.begin()->node; }
    std::int64_t best_ppm() const { return on_one_node ? traits->best_ppm : speed_now_ppm; }
    std::int64_t speed_ppm(const Allotment& with) const;
    Ms left_at_ms(std::int64_t ppm) const { return unpaid_ms + ceil_div(work, ppm); }
    Ms latest_ms() const { return deadline_ms == NONE ? std::int64_t{NONE} : deadline_ms - left_ms; }
    Ms slack_ms(const Allotment& with, Ms now_ms) const {
        return deadline_ms == NONE ? FAR_MS : deadline_ms - now_ms - left_at_ms(speed_ppm(with));
    }
    Ms guard_ms(const SensaRules& rules) const { return std::max(rules.guard_ms, part_of(left_ms, rules.guard_ppm)); }

    Allotment spare() const { return {part.cores - traits->least.cores, part.memory_mib - traits->least.memory_mib}; }
    Allotment need() const {
        return {std::max(0, traits->best.cores - part.cores),
                std::max<std::int64_t>(0, traits->best.memory_mib - part.memory_mib)};
    }
};

// Looks traits up without waiting for others most of the time; lives for one pass.
class TraitsShelf {
public:
    TraitsShelf(TraitsBook& book, const VirtualCluster& vc, const SensaRules& rules) : book_(book), vc_(vc), rules_(rules) {}
    const Traits* of(const Curve* curve, std::int32_t gpus);

private:
    struct Slot {
        const Curve* curve = nullptr;
        std::int32_t gpus = 0;
        const Traits* traits = nullptr;
    };
    TraitsBook& book_;
    const VirtualCluster& vc_;
    const SensaRules& rules_;
    std::vector<Slot> slots_ = std::vector<Slot>(256);
};

Rated rate(const Job& job, const View& view, const SensaRules& rules, TraitsShelf& shelf);

// One job, or a sensitive one (first) and an insensitive one.
struct Unit {
    Rated* first = nullptr;
    Rated* second = nullptr;

    std::int32_t gpus() const { return first->gpus() + (second == nullptr ? 0 : second->gpus()); }
    std::pair<Allotment, Allotment> shares() const;
    std::pair<Ms, Ms> lefts_ms() const;  // the second is 0 for a single job
    Ms latest_ms(std::pair<Ms, Ms> lefts_ms) const;
};

// A number for the class inside which a job is paired.
inline constexpr std::int32_t CATEGORIES = 16;
std::int32_t category(const Rated& job, SensaRules::Scope scope);

// The units of jobs that wait, given most urgent first, in the order of their first jobs.
std::vector<Unit> make_units(const std::vector<Rated*>& jobs, const SensaRules& rules, Ms now_ms);

// (row, column) pairs with the largest sum of gains.
std::vector<std::pair<std::size_t, std::size_t>> assignment(const std::vector<std::vector<std::int64_t>>& gains);

// The shares of the jobs on one node, in their order.
std::vector<Allotment> split_node(const std::vector<Rated*>& jobs, Allotment room, const SensaRules& rules, Ms now_ms);

}  // namespace trimtab
