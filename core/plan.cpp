#include "plan.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace trimtab {

namespace {

std::int32_t grades_passed(const Grades& grades, GpuMs attained) {
    return static_cast<std::int32_t>(std::upper_bound(grades.begin(), grades.end(), attained) - grades.begin());
}

std::int64_t seniority(const Job& job) {
    return job.first_ms == NONE ? std::numeric_limits<std::int64_t>::max() : job.first_ms;
}

Ms known_estimate_ms(const Job& job) {
    if (job.estimate_ms == NONE) throw InvariantError("job " + std::to_string(job.id) + " has no estimate");
    return job.estimate_ms;
}

Work remaining(const Job& job, Ms now_ms, const Plan& plan) {
    Work left = job.remaining(now_ms);
    if (plan.counts_overhead) left += job.unpaid_overhead_ms(now_ms) * FULL_SPEED_PPM;
    return left;
}

// The larger the index, the earlier. Of numbers that are not negative, the larger one has the larger bits.
std::int64_t gittins(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan) {
    const Ms held_ms = job.graded_ms + (job.nodes.empty() ? 0 : now_ms - job.since_ms);
    const GpuMs attained = job.gpus * held_ms;
    const std::int32_t level = grades_passed(grades, attained);
    const bool bounded = level < static_cast<std::int32_t>(grades.size());
    const double index =
        plan.gittins->at(attained, bounded ? grades[static_cast<std::size_t>(level)] : std::int64_t{NONE});
    return -std::bit_cast<std::int64_t>(index);
}

}  // namespace

Order computed_order(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan) {
    Order order{0, 0, job.level, job.id};
    switch (plan.rank) {
        case Rank::place:
        case Rank::arrival: break;  // known without computing
        case Rank::estimate: order.key = known_estimate_ms(job); break;
        case Rank::estimated_service: order.key = known_estimate_ms(job) * job.gpus; break;
        case Rank::remaining: order.key = remaining(job, now_ms, plan); break;
        case Rank::remaining_service: order.key = remaining(job, now_ms, plan) * job.gpus; break;
        case Rank::seniority: order.key = seniority(job); break;
        case Rank::gittins:
            order.key = gittins(job, grades, now_ms, plan);
            order.second = seniority(job);
            break;
        case Rank::hook: plan.hooks->key(job, grades, now_ms, order); break;
    }
    return order;
}

RunningKey running_key(const Job& job, const Plan& plan) {
    if (plan.rank != Rank::remaining && plan.rank != Rank::remaining_service) {
        RunningKey key;
        key.base = order_of(job, {}, job.since_ms, plan).key;
        return key;
    }
    const std::int64_t weight = plan.rank == Rank::remaining_service ? job.gpus : 1;
    RunningKey key;
    key.base = job.remaining(job.since_ms) * weight;
    key.rate = job.speed_ppm * weight;
    key.least = 0;
    key.paid_ms = job.since_ms + job.overhead_ms;
    key.overhead_rate = plan.counts_overhead ? FULL_SPEED_PPM * weight : 0;
    return key;
}

std::strong_ordering compare_long(std::int64_t one_key, std::int64_t two_key) {
    constexpr std::int64_t PLAIN = std::numeric_limits<std::int64_t>::max();
    const auto parts = [](std::int64_t key) -> const std::vector<std::int64_t>& {
        return reinterpret_cast<const LongKey*>(static_cast<std::intptr_t>(key & PLAIN))->parts;
    };
    return parts(one_key) <=> parts(two_key);
}

std::int32_t level_of(const Job& job, const Grades& grades, const Plan& plan) {
    if (plan.hooks_level) return plan.hooks->level(job, grades);
    return std::max(job.level, grades_passed(grades, job.attained_gpu_ms()));
}

static Ms graded_change_ms(const Job& job, const Grades& grades) {
    const GpuMs attained = job.attained_gpu_ms();
    const std::int32_t ahead = std::max(job.level, grades_passed(grades, attained));
    if (ahead >= static_cast<std::int32_t>(grades.size())) return NONE;
    return ceil_div(grades[static_cast<std::size_t>(ahead)] - attained, job.gpus);
}

Ms next_change_ms(const Job& job, const Grades& grades, const Plan& plan) {
    if (plan.hooks_change) return plan.hooks->next_change_ms(job, grades);
    const Ms grade_ms = graded_change_ms(job, grades);
    if (!plan.is_gittins()) return grade_ms;
    const GpuMs size = plan.gittins->next_size(job.attained_gpu_ms());
    if (size == NONE) return grade_ms;
    const Ms size_ms = ceil_div(size - job.attained_gpu_ms(), job.gpus);
    return grade_ms == NONE ? size_ms : std::min(grade_ms, size_ms);
}

Ms starve_limit_ms(const Job& job, const Grades& grades, const Plan& plan) {
    switch (plan.starve) {
        case Starve::never: return NONE;
        case Starve::absolute: return plan.starve_ms;
        case Starve::hook: return plan.hooks->starve_ms(job, grades);
        case Starve::ratio: break;
    }
    const Wide product = static_cast<Wide>(plan.starve_ppm) * job.graded_ms + (FULL_SPEED_PPM - 1);
    return static_cast<Ms>(std::min<Wide>(product / FULL_SPEED_PPM, NEVER_MS / 2));
}

}  // namespace trimtab
