// The free GPUs of the future, and who may start now without making others late; see `policies/backfill.py`.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sensascale.hpp"
#include "units.hpp"

namespace trimtab {

// Free GPUs from each instant on, up to the next.
class Outlook {
public:
    Outlook() = default;

    // Make one from the GPUs that are free now and (instant, GPUs) given back later; these are put in order.
    Outlook(Ms now_ms, std::int64_t free, std::vector<std::pair<Ms, std::int32_t>>& releases);

    Ms earliest_ms(std::int32_t gpus, Ms length_ms) const;
    void take(Ms start_ms, Ms length_ms, std::int32_t gpus);

private:
    struct Step {
        Ms time_ms;
        std::int64_t free;
    };

    std::size_t cut(Ms time_ms);

    std::vector<Step> steps_;
};

// A unit that waits for GPUs; NONE: no deadline.
struct Blocked {
    std::int32_t gpus;
    Ms length_ms;
    Ms latest_ms;
    JobId id;  // of its first job
    bool is_promised;
};

class Backfiller {
public:
    Backfiller(SensaRules::Backfill mode, std::int64_t reserve_ppm) : mode_(mode), reserve_ppm_(reserve_ppm) {}

    bool has_outlook() const { return has_outlook_; }
    void look(Outlook outlook) {
        outlook_ = std::move(outlook);
        has_outlook_ = true;
        is_fresh_ = false;
    }
    void look_anew() { has_outlook_ = false; }
    void block(Blocked unit) {
        blocked_.push_back(unit);
        is_fresh_ = false;
    }
    std::size_t waiting() const { return blocked_.size(); }
    void start(Ms now_ms, Ms length_ms, std::int32_t gpus);
    void unblock(JobId id);

    // Whether it needs no outlook to see that a unit may start, or may not.
    bool is_plain(const Blocked& unit) const {
        return kept_from(unit) == 0 ||
               (!unit.is_promised && (mode_ == SensaRules::Backfill::none || is_refused(unit)));
    }
    bool is_safe(Ms now_ms, const Blocked& unit);

private:
    // How many units, from the first on, a unit has to respect: those with a promise need not respect the others.
    std::size_t kept_from(const Blocked& unit) const;
    bool is_refused(const Blocked& unit) const;
    void refuse(const Blocked& unit);
    void find_bounds();
    Ms latest_ms(const Blocked& unit) const;

    SensaRules::Backfill mode_;
    std::int64_t reserve_ppm_;
    Outlook outlook_, trial_;
    std::vector<Blocked> blocked_;  // those with a promise in front
    std::vector<Ms> bounds_ms_;
    bool has_outlook_ = false;
    bool is_fresh_ = false;  // the bounds are those of the present outlook
    std::vector<std::pair<std::int32_t, Ms>> refused_;  // without a promise: GPUs, shortest run time
};

}  // namespace trimtab
