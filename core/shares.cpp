#include "shares.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace trimtab {

namespace {

// Whole cores x measured sizes of memory that a node has, and the proportional share, sorted.
std::vector<Option> candidates(const Curve& curve, std::int32_t gpus, const VirtualCluster& vc) {
    std::vector<Option> found;
    const Allotment due = vc.proportional(gpus);
    const std::int64_t least_mib = curve.footprint_mib * gpus;
    for (const std::int64_t size_mib : curve.memory_mib) {
        const std::int64_t memory_mib = std::max(size_mib * gpus, least_mib);
        if (memory_mib > vc.memory_mib_per_node) continue;
        for (std::int32_t cores = 1; cores <= vc.cores_per_node; ++cores) {
            const std::int64_t speed_ppm = vc.speed_ppm(curve, gpus, {cores, memory_mib});
            if (speed_ppm >= FULL_SPEED_PPM) found.push_back({cores, memory_mib, speed_ppm});
        }
    }
    if (due.cores >= 1 && due.memory_mib >= least_mib) found.push_back({due.cores, due.memory_mib, FULL_SPEED_PPM});
    std::sort(found.begin(), found.end());
    return found;
}

std::tuple<std::int64_t, std::int64_t> for_each_gpu(const Seat& seat) {
    return {std::int64_t{seat.at.cores} * FULL_SPEED_PPM / seat.gpus, seat.at.memory_mib * FULL_SPEED_PPM / seat.gpus};
}

}  // namespace

std::optional<Ladder> Ladder::of(const Curve& curve, std::int32_t gpus, const VirtualCluster& vc) {
    Ladder ladder;
    for (const Option& one : candidates(curve, gpus, vc)) {
        const bool is_needed = std::none_of(ladder.options.begin(), ladder.options.end(), [&](const Option& held) {
            return held.memory_mib <= one.memory_mib && held.speed_ppm >= one.speed_ppm;
        });
        if (is_needed) ladder.options.push_back(one);
    }
    const Allotment due = vc.proportional(gpus);
    const auto lean = std::find_if(ladder.options.begin(), ladder.options.end(), [&](const Option& one) {
        return one.cores <= due.cores && one.memory_mib <= due.memory_mib;
    });
    if (lean == ladder.options.end()) return std::nullopt;
    ladder.lean = *lean;
    ladder.best = *std::max_element(ladder.options.begin(), ladder.options.end(), [](const Option& one, const Option& two) {
        return one.speed_ppm < two.speed_ppm;
    });
    return ladder;
}

const Ladder* Ladders::of(const Curve* curve, std::int32_t gpus, const VirtualCluster& vc) {
    if (curve == nullptr) return nullptr;
    const Kind kind{curve, gpus, vc.gpus_per_node, vc.cores_per_node, vc.memory_mib_per_node};
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto [place, is_new] = known_.try_emplace(kind);
    if (is_new) {
        if (std::optional<Ladder> made = Ladder::of(*curve, gpus, vc)) {
            place->second = std::make_unique<const Ladder>(std::move(*made));
        }
    }
    return place->second.get();
}

void Room::add(Seat seat, const Option* want) {
    if (want != nullptr && holds(*want)) seat.at = *want;
    if (!holds(seat.at)) make_way(seat.at);
    take(seat.at, 1);
    seats_.push_back(seat);
}

// Let jobs give back what is above their least until a share fits: first who has most cores for each GPU.
void Room::make_way(const Option& share) {
    std::vector<std::size_t> givers(seats_.size());
    std::iota(givers.begin(), givers.end(), std::size_t{0});
    std::stable_sort(givers.begin(), givers.end(), [&](std::size_t one, std::size_t two) {
        return for_each_gpu(seats_[one]) > for_each_gpu(seats_[two]);
    });
    for (const std::size_t giver : givers) {
        if (holds(share)) return;
        give(seats_[giver], seats_[giver].lean());
    }
    if (!holds(share)) throw InvariantError("a node has no CPU or memory for a job whose GPUs it has");
}

void Room::give(Seat& seat, const Option& option) {
    take(seat.at, -1);
    take(option, 1);
    seat.at = option;
}

void Room::take(const Option& option, std::int32_t sign) {
    left_cores_ -= sign * option.cores;
    left_mib_ -= sign * option.memory_mib;
}

void Room::fill() {
    while (rise()) {
    }
}

// Give the rise with most speed for its cost, of equal ones that of the first job, the least; false if there is none.
bool Room::rise() {
    Seat* found = nullptr;
    const Option* to = nullptr;
    Wide most = 0, least = 1;  // its gain and cost
    for (Seat& seat : seats_) {
        if (seat.ladder == nullptr) continue;
        for (const Option& option : seat.ladder->options) {
            const std::int32_t cores = option.cores - seat.at.cores;
            const std::int64_t memory_mib = option.memory_mib - seat.at.memory_mib;
            const std::int64_t gain = option.speed_ppm - seat.at.speed_ppm;
            if (cores < 0 || memory_mib < 0 || gain <= 0 || cores > left_cores_ || memory_mib > left_mib_) continue;
            const Wide cost = Wide{cores} * memory_mib_ + Wide{memory_mib} * cores_;
            if (gain * least <= most * cost) continue;
            found = &seat, to = &option, most = gain, least = cost;
        }
    }
    if (found != nullptr) give(*found, *to);
    return found != nullptr;
}

}  // namespace trimtab
