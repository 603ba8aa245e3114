// Synergy's pass with the allocations proportional and tune; see `policies/synergy.py`.
#pragma once

#include <cstdint>

#include "policy.hpp"
#include "shares.hpp"
#include "units.hpp"

namespace trimtab {

struct SynergyRules {
    enum class Order : std::uint8_t { fifo, srtf, las };

    Order order = Order::fifo;
    bool gives = true;  // CPU and memory by worth, else in proportion to GPUs
    Ms round_ms = 0;
};

class Synergy final : public Decider {
public:
    explicit Synergy(SynergyRules rules) : rules_(rules) {}

    Verdict decide(const View& view) const override;
    Ms next_review_ms(const View& view) const override;

private:
    SynergyRules rules_;
    mutable Ladders ladders_;  // of one workload's curves
};

}  // namespace trimtab
