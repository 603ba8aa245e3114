// What users have used, and the fair-share factor that follows; see `policies/slurm_usage.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "slurm.hpp"
#include "units.hpp"

namespace trimtab {

// What one association, of an account and a user, has used.
struct SlurmUsage {
    std::int64_t account;
    std::int64_t user;
    GpuMs gpu_ms = 0;
    GpuMs accrued_gpu_ms = 0;
    std::int64_t gpus = 0;
    std::int64_t fair_ppm = 0;  // its factor, where it has been worked out
};

// What Slurm remembers of a virtual cluster from pass to pass; see `Books`.
struct SlurmBooks {
    SlurmBooks(const std::vector<std::int64_t>& memory, Ms now_ms, const SlurmRules& rules);

    std::vector<std::int64_t> memory() const;

    Ms next_calculation_ms() const { return calculated_ms + formula.period_ms; }

    // Count usage up to now, and calculate priorities where that is due.
    void advance(Ms now_ms, const SlurmFormula& next);

    // An association's usage, entered where there is none.
    SlurmUsage& of(std::int64_t account, std::int64_t user);

    // Work out the fair-share factor of each association; shares are those of accounts, 1 where none are told.
    void share(const std::map<std::int64_t, std::int64_t>& shares);

    Ms at_ms;
    Ms calculated_ms;
    Ms main_due_ms;
    Ms fill_due_ms;
    Ms rested_ms;
    std::int64_t pending;
    std::int64_t running;
    SlurmFormula formula;
    std::vector<SlurmUsage> usage;  // by account, then user

private:
    void calculate(Ms now_ms);
    void charge(Ms to_ms);
};

}  // namespace trimtab
