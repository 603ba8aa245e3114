#include "plan.hpp"

#include <algorithm>

#include "shortest.hpp"
#include "tiresias.hpp"

namespace trimtab {

std::int32_t grades_passed(const Grades& grades, GpuMs attained) {
    return static_cast<std::int32_t>(std::upper_bound(grades.begin(), grades.end(), attained) - grades.begin());
}

Order computed_order(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan) {
    Order order{0, 0, job.level, job.id};
    switch (plan.rank) {
        case Rank::place:
        case Rank::arrival: break;  // known without computing
        case Rank::estimate: order.key = shortest::estimate(job); break;
        case Rank::estimated_service: order.key = shortest::estimated_service(job); break;
        case Rank::remaining: order.key = shortest::remaining(job, now_ms, plan); break;
        case Rank::remaining_service: order.key = shortest::remaining_service(job, now_ms, plan); break;
        case Rank::seniority: order.key = tiresias::seniority(job); break;
        case Rank::gittins:
            order.key = tiresias::gittins(job, grades, now_ms, plan);
            order.second = second_of(tiresias::seniority(job));
            break;
        case Rank::due: order.key = (*plan.due_ms)[static_cast<std::size_t>(job.id)]; break;
        case Rank::hook: plan.hooks->key(job, grades, now_ms, order); break;
    }
    return order;
}

RunningKey running_key(const Job& job, const Plan& plan) {
    if (plan.rank == Rank::remaining) return shortest::falling_key(job, plan, 1);
    if (plan.rank == Rank::remaining_service) return shortest::falling_key(job, plan, job.member_gpus);
    RunningKey key;
    key.base = order_of(job, {}, job.since_ms, plan).key;
    return key;
}

std::int32_t level_of(const Job& job, const Grades& grades, const Plan& plan) {
    if (plan.hooks_level) return plan.hooks->level(job, grades);
    return std::max(job.level, grades_passed(grades, job.attained_gpu_ms()));
}

static Ms graded_change_ms(const Job& job, const Grades& grades) {
    const GpuMs attained = job.attained_gpu_ms();
    const std::int32_t ahead = std::max(job.level, grades_passed(grades, attained));
    if (ahead >= static_cast<std::int32_t>(grades.size())) return NONE;
    return ceil_div(grades[static_cast<std::size_t>(ahead)] - attained, job.member_gpus);
}

Ms next_change_ms(const Job& job, const Grades& grades, const Plan& plan) {
    if (plan.hooks_change) return plan.hooks->next_change_ms(job, grades);
    const Ms grade_ms = graded_change_ms(job, grades);
    if (!plan.is_gittins()) return grade_ms;
    const Ms index_ms = tiresias::index_change_ms(job, plan);
    return grade_ms == NONE || index_ms == NONE ? std::max(grade_ms, index_ms) : std::min(grade_ms, index_ms);
}

Ms starve_limit_ms(const Job& job, const Grades& grades, const Plan& plan) {
    switch (plan.starve) {
        case Starve::never: break;
        case Starve::absolute: return plan.starve_ms;
        case Starve::ratio: return tiresias::starve_limit_ms(job, plan);
        case Starve::hook: return plan.hooks->starve_ms(job, grades);
    }
    return NONE;
}

}  // namespace trimtab
