// Which CPU and memory are worth giving to jobs, and rooms in which they are given; see `policies/shares.py`.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cluster.hpp"
#include "units.hpp"

namespace trimtab {

// A share on one node and the speed with it, in ppm of that with the proportional share.
struct Option {
    std::int32_t cores = 0;
    std::int64_t memory_mib = 0;
    std::int64_t speed_ppm = 0;

    friend auto operator<=>(const Option& one, const Option& two) = default;
};

// What a job on one node may be given: as fast as with its proportional share, or faster.
struct Ladder {
    std::vector<Option> options;  // by cores, then memory
    Option lean, best;

    static std::optional<Ladder> of(const Curve& curve, std::int32_t gpus, const VirtualCluster& vc);
};

// Ladders that are made once; curves must not move. May be asked from several threads.
class Ladders {
public:
    // Null where there is no choice.
    const Ladder* of(const Curve* curve, std::int32_t gpus, const VirtualCluster& vc);

private:
    struct Kind {
        const Curve* curve;
        std::int32_t gpus, gpus_per_node, cores_per_node;
        std::int64_t memory_mib_per_node;

        friend auto operator<=>(const Kind& one, const Kind& two) = default;
    };

    std::mutex mutex_;
    std::map<Kind, std::unique_ptr<const Ladder>> known_;
};

// A job on a node: what it may be given there and what it has.
struct Seat {
    JobId id;
    std::int32_t gpus;
    const Ladder* ladder;  // null where there is no choice
    Option at;

    Seat(JobId job, std::int32_t held, const Ladder* choices, Allotment due)
        : id(job), gpus(held), ladder(choices),
          at(choices == nullptr ? Option{due.cores, due.memory_mib, FULL_SPEED_PPM} : choices->lean) {}

    const Option& lean() const { return ladder == nullptr ? at : ladder->lean; }
};

// CPU and memory of one node, given to its jobs one after the other.
class Room {
public:
    explicit Room(const VirtualCluster& vc)
        : cores_(vc.cores_per_node), memory_mib_(vc.memory_mib_per_node), left_cores_(cores_), left_mib_(memory_mib_) {}

    const std::vector<Seat>& seats() const { return seats_; }
    bool holds(const Option& share) const { return share.cores <= left_cores_ && share.memory_mib <= left_mib_; }

    // Let a job in with what it wants, if told, or else its least share, for which others give back theirs.
    void add(Seat seat, const Option* want);

    // Give what is left where it adds most speed for its part of the node, until it adds none.
    void fill();

private:
    void give(Seat& seat, const Option& option);
    void take(const Option& option, std::int32_t sign);
    void make_way(const Option& share);
    bool rise();

    std::int32_t cores_;
    std::int64_t memory_mib_;
    std::int32_t left_cores_;
    std::int64_t left_mib_;
    std::vector<Seat> seats_;
};

}  // namespace trimtab
