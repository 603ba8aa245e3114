// Promises by plans of whole leases, made greedily; see `policies/chronus.py`.
#pragma once

#include <cstdint>

#include "policy.hpp"
#include "units.hpp"

namespace trimtab {

// The knobs in whole numbers; see `Rules` in `policies/chronus.py`.
struct ChronusRules {
    enum class Objective : std::uint8_t { adaptive, maximize, minimize };

    Ms lease_ms = 0;
    Objective objective = Objective::adaptive;
    bool rounds_up = true;
    std::int64_t safety_ppm = 0;
    bool shortest_first = true;
    Ms fill_ms = 0;

    std::int32_t gpus(const Job& job, std::int32_t cluster_gpus) const;
    std::int64_t leases(Ms left_ms, std::int32_t member_gpus) const;
};

class Chronus final : public Decider {
public:
    explicit Chronus(ChronusRules rules) : rules_(rules) {}

    Verdict decide(const View& view) const override;
    Ms next_review_ms(const View& view) const override;

private:
    ChronusRules rules_;
};

}  // namespace trimtab
