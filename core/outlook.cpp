#include "outlook.hpp"

#include <algorithm>

#include "sensa_jobs.hpp"

namespace trimtab {

Outlook::Outlook(Ms now_ms, std::int64_t free, std::vector<std::pair<Ms, std::int32_t>>& releases) {
    std::sort(releases.begin(), releases.end());
    steps_.reserve(releases.size() + 32);
    steps_.push_back({now_ms, free});
    for (const auto& [time_ms, gpus] : releases) {
        free += gpus;
        if (time_ms <= steps_.back().time_ms) {
            steps_.back().free = free;
        } else {
            steps_.push_back({time_ms, free});
        }
    }
}

// The first instant from which so many GPUs stay free for so long.
Ms Outlook::earliest_ms(std::int32_t gpus, Ms length_ms) const {
    std::size_t start = 0;
    for (std::size_t place = 0; place < steps_.size(); ++place) {
        if (place > start && steps_[place].time_ms >= steps_[start].time_ms + length_ms) break;
        if (steps_[place].free < gpus) start = place + 1;
    }
    return start < steps_.size() ? steps_[start].time_ms : FAR_MS;
}

void Outlook::take(Ms start_ms, Ms length_ms, std::int32_t gpus) {
    const std::size_t first = cut(start_ms);
    const std::size_t last = cut(start_ms + length_ms);
    for (std::size_t place = first; place < last; ++place) steps_[place].free -= gpus;
}

std::size_t Outlook::cut(Ms time_ms) {
    const auto found = std::lower_bound(steps_.begin(), steps_.end(), time_ms,
                                        [](const Step& step, Ms at_ms) { return step.time_ms < at_ms; });
    const auto place = static_cast<std::size_t>(found - steps_.begin());
    if (found == steps_.end() || found->time_ms != time_ms) {
        steps_.insert(found, {time_ms, steps_[place - 1].free});
    }
    return place;
}

void Backfiller::unblock(JobId id) {
    const auto known = std::find_if(blocked_.begin(), blocked_.end(), [id](const Blocked& unit) { return unit.id == id; });
    if (known == blocked_.end()) return;
    blocked_.erase(known);
    is_fresh_ = false;
}

void Backfiller::start(Ms now_ms, Ms length_ms, std::int32_t gpus) {
    if (!has_outlook_) return;
    outlook_.take(now_ms, std::max<Ms>(1, length_ms), gpus);
    is_fresh_ = false;
}

std::size_t Backfiller::kept_from(const Blocked& unit) const {
    if (!unit.is_promised) return blocked_.size();
    const auto end = std::find_if(blocked_.begin(), blocked_.end(), [](const Blocked& other) { return !other.is_promised; });
    return static_cast<std::size_t>(end - blocked_.begin());
}

bool Backfiller::is_safe(Ms now_ms, const Blocked& unit) {
    const std::size_t kept = kept_from(unit);
    if (kept == 0) return true;
    if (is_plain(unit)) return false;
    if (!is_fresh_) find_bounds();
    trial_ = outlook_;
    trial_.take(now_ms, unit.length_ms, unit.gpus);
    for (std::size_t place = 0; place < std::min(kept, bounds_ms_.size()); ++place) {
        const Blocked& other = blocked_[place];
        if (other.id == unit.id) continue;
        const Ms start_ms = trial_.earliest_ms(other.gpus, other.length_ms);
        if (start_ms > bounds_ms_[place]) {
            if (!unit.is_promised) refuse(unit);
            return false;
        }
        trial_.take(start_ms, other.length_ms, other.gpus);
    }
    return true;
}

void Backfiller::refuse(const Blocked& unit) {
    const auto known =
        std::find_if(refused_.begin(), refused_.end(), [&](const auto& one) { return one.first == unit.gpus; });
    if (known == refused_.end()) {
        refused_.emplace_back(unit.gpus, unit.length_ms);
    } else {
        known->second = std::min(known->second, unit.length_ms);
    }
}

bool Backfiller::is_refused(const Blocked& unit) const {
    return std::any_of(refused_.begin(), refused_.end(),
                       [&](const auto& one) { return one.first <= unit.gpus && one.second <= unit.length_ms; });
}

// By when each unit that counts has to start: its earliest start, or later if it has slack.
void Backfiller::find_bounds() {
    trial_ = outlook_;
    bounds_ms_.clear();
    for (const Blocked& unit : blocked_) {
        const Ms base_ms = trial_.earliest_ms(unit.gpus, unit.length_ms);
        trial_.take(base_ms, unit.length_ms, unit.gpus);
        bounds_ms_.push_back(std::max(base_ms, latest_ms(unit)));
        if (mode_ == SensaRules::Backfill::easy) break;
    }
    is_fresh_ = true;
}

Ms Backfiller::latest_ms(const Blocked& unit) const {
    if (mode_ != SensaRules::Backfill::lst || unit.latest_ms == NONE) return -FAR_MS;
    return unit.latest_ms - part_of(unit.length_ms, reserve_ppm_);
}

}  // namespace trimtab
