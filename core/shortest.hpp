// Keys of the policies that take the shortest first; see `policies/shortest.py`.
#pragma once

#include "plan.hpp"

namespace trimtab::shortest {

Ms estimate(const Job& job);                                                // sjf
std::int64_t estimated_service(const Job& job);                             // qssf
Work remaining(const Job& job, Ms now_ms, const Plan& plan);                // srtf
std::int64_t remaining_service(const Job& job, Ms now_ms, const Plan& plan);  // srsf

// The last two while a job runs; `weight` is 1 or its GPUs.
RunningKey falling_key(const Job& job, const Plan& plan, std::int64_t weight);

}  // namespace trimtab::shortest
