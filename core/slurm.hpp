// Slurm's own scheduler; see `policies/slurm.py`.
#pragma once

#include <cstdint>

#include "policy.hpp"
#include "units.hpp"

namespace trimtab {

// How priorities are calculated; see `Formula` in `policies/slurm_knobs.py`.
struct SlurmFormula {
    std::int64_t age = 0;
    std::int64_t fairshare = 0;
    std::int64_t size = 0;
    std::int64_t partition = 0;
    std::int64_t qos = 0;
    std::int64_t tres = 0;
    Ms max_age_ms = 1;
    std::int64_t favors_small = 0;
    std::int64_t minute_decay = 0;
    Ms period_ms = 1;
};

// The knobs in whole numbers; 0 jobs are no limit.
struct SlurmRules {
    enum class Preempts : std::uint8_t { none, partition, qos };

    SlurmFormula formula;
    std::int64_t depth = 0;
    Ms interval_ms = 1;
    Ms rest_ms = 0;
    bool fills = false;
    Ms fill_ms = 1;
    Ms window_ms = 0;
    Ms resolution_ms = 1;
    std::int64_t test_max = 0;
    std::int64_t user_max = 0;
    std::int64_t start_max = 0;
    Preempts preempts = Preempts::none;
    Ms exempt_ms = 0;
};

class Slurm final : public Decider {
public:
    explicit Slurm(SlurmRules rules) : rules_(rules) {}

    Verdict decide(const View& view) const override;
    Ms next_review_ms(const View& view) const override;

private:
    SlurmRules rules_;
};

}  // namespace trimtab
