// SensaScale's pass: deadlines by latest start, CPU and memory from who can spare them; see `policies/sensascale.py`.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "cluster.hpp"
#include "policy.hpp"
#include "units.hpp"

namespace trimtab {

// The knobs in whole ms and ppm; see `Rules` and its parts there.
struct SensaRules {
    enum class Order : std::uint8_t { lst, edf, fifo, srtf };
    enum class Reference : std::uint8_t { prop, unit, best };
    enum class BestEffort : std::uint8_t { srsf, fifo, las };
    enum class Backfill : std::uint8_t { lst, easy, conservative, none };
    enum class Scope : std::uint8_t { of_class, all, off };

    Order order = Order::lst;
    Reference reference = Reference::prop;
    BestEffort be_order = BestEffort::srsf;
    Ms urgent_ms = 0;
    Backfill backfill = Backfill::lst;
    std::int32_t depth = 8;
    std::int64_t reserve_ppm = 0;
    bool drops = false;
    bool rescues = false;
    bool displaces = false;
    std::int64_t outlast_ppm = 0;
    std::int32_t max_evictions = 3;
    Ms tick_ms = 0;
    bool is_explicit = false;
    bool admits = false;

    std::int64_t theta_ppm = 0, delta_ppm = 0, eps_ppm = 0;
    std::int64_t margin_ppm = 0, overrun_ppm = 0, credit_ppm = 0;
    bool keeps = false;

    Scope scope = Scope::of_class;
    std::int32_t window = 50;
    bool is_best = false;
    std::int64_t memory_ppm = 0, time_ppm = 0, latest_ppm = 0;

    bool lends = true;
    Ms guard_ms = 0;
    std::int64_t guard_ppm = 0, floor_ppm = 0, donate_ppm = 0, hysteresis_ppm = 0;
    Ms cooldown_ms = 0;
    bool pools = true;
};

enum class Label : std::uint8_t { sensitive, insensitive, neutral };

// What follows from a job's curve, its GPUs and the size of its node.
struct Traits {
    Allotment best;
    std::int64_t best_ppm = FULL_SPEED_PPM;
    Allotment least;
    Label label = Label::neutral;
};

// Traits that are made once; curves must not move. May be asked from several threads.
class TraitsBook {
public:
    const Traits* of(const Curve* curve, std::int32_t gpus, const VirtualCluster& vc, const SensaRules& rules);

private:
    struct Kind {
        const Curve* curve;
        std::int32_t gpus, gpus_per_node, cores_per_node;
        std::int64_t memory_mib_per_node;

        friend auto operator<=>(const Kind& one, const Kind& two) = default;
    };

    std::mutex mutex_;
    std::map<Kind, std::unique_ptr<const Traits>> known_;
};

class SensaScale final : public Decider {
public:
    explicit SensaScale(const SensaRules& rules) : rules_(rules) {}

    Verdict decide(const View& view) const override;
    Ms next_review_ms(const View& view) const override;

private:
    SensaRules rules_;
    mutable TraitsBook traits_;
};

}  // namespace trimtab
