// What only Tiresias asks of a job; see `policies/tiresias.py`.
#pragma once

#include "plan.hpp"

namespace trimtab::tiresias {

// First start since arrival or promotion; jobs without one come last.
std::int64_t seniority(const Job& job);

// The larger the index, the earlier. Of numbers that are not negative, the larger one has the larger bits.
std::int64_t gittins(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan);

// How long a running job may hold its GPUs until its index falls, or NONE.
Ms index_change_ms(const Job& job, const Plan& plan);

// Waiting time after which a job is promoted: a multiple of the time it has run, rounded up.
Ms starve_limit_ms(const Job& job, const Plan& plan);

}  // namespace trimtab::tiresias
