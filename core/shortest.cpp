#include "shortest.hpp"

#include <string>

namespace trimtab::shortest {

Ms estimate(const Job& job) {
    if (job.estimate_ms == NONE) throw InvariantError("job " + std::to_string(job.id) + " has no estimate");
    return job.estimate_ms;
}

std::int64_t estimated_service(const Job& job) { return estimate(job) * job.member_gpus; }

Work remaining(const Job& job, Ms now_ms, const Plan& plan) {
    Work left = job.remaining(now_ms);
    if (plan.counts_overhead) left += job.unpaid_overhead_ms(now_ms) * FULL_SPEED_PPM;
    return left;
}

std::int64_t remaining_service(const Job& job, Ms now_ms, const Plan& plan) {
    return remaining(job, now_ms, plan) * job.member_gpus;
}

RunningKey falling_key(const Job& job, const Plan& plan, std::int64_t weight) {
    RunningKey key;
    key.base = job.remaining(job.since_ms) * weight;
    key.rate = job.speed_ppm * weight;
    key.least = 0;
    key.paid_ms = job.since_ms + job.overhead_ms;
    key.overhead_rate = plan.counts_overhead ? FULL_SPEED_PPM * weight : 0;
    return key;
}

}  // namespace trimtab::shortest
