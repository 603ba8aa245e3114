#include "partition.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

Partition::Partition(VirtualCluster cluster, bool counted_gpus, std::int32_t width_classes)
    : vc(cluster), counted(counted_gpus), widths(width_classes) {
    if (!counted) {
        on_node_.assign(slot(vc.nodes), -1);
        crowd_.assign(static_cast<std::size_t>(vc.nodes), 0);
    }
}

void Partition::rebuild(std::vector<Job>& jobs, std::int32_t level_count, const Plan& plan) {
    levels = level_count;
    preemptive = plan.preemptive;
    if (counted) {
        index.reset(levels, 1, vc.gpus());
    } else {
        index.reset(levels, vc.nodes, vc.gpus_per_node);
        std::fill(crowd_.begin(), crowd_.end(), 0);
    }
    queue.reset(levels, widths);
    highest_key_.assign(static_cast<std::size_t>(levels), std::numeric_limits<std::int64_t>::min());
    for (std::size_t seat = 0; seat < running.size(); ++seat) {
        Job& job = jobs[static_cast<std::size_t>(running[seat].id)];
        job.seat = static_cast<std::int32_t>(seat);
        reseat(job, plan);
        index.add(top(job), levels, job.nodes, -1);
        enter(job);
    }
}

void Partition::enter(const Job& job) {
    if (counted) return;
    for (const Share share : job.nodes) {
        on_node_[slot(share.node) + static_cast<std::size_t>(crowd_[static_cast<std::size_t>(share.node)]++)] = job.id;
    }
}

void Partition::reseat(const Job& job, const Plan& plan) {
    if (!plan.preemptive) return;
    Seat& seat = running[static_cast<std::size_t>(job.seat)];
    seat.gpus = job.gpus;
    seat.level = job.level;
    seat.preemptible = !job.shielded;
    if (plan.is_gittins()) return;
    seat.key = running_key(job, plan);
    std::int64_t& highest = highest_key_[static_cast<std::size_t>(job.level)];
    highest = std::max(highest, seat.key.at(job.since_ms));
}

void Partition::hold(Job& job, const Plan& plan) {
    job.seat = static_cast<std::int32_t>(running.size());
    running.push_back({job.id, job.gpus, job.level, false, {}});
    reseat(job, plan);
    enter(job);
}

void Partition::drop(Job& job, std::vector<Job>& jobs) {
    running[static_cast<std::size_t>(job.seat)] = running.back();
    jobs[static_cast<std::size_t>(running.back().id)].seat = job.seat;
    running.pop_back();
    if (job.behind) {
        behind.erase(std::find(behind.begin(), behind.end(), job.id));
        job.behind = false;
    }
    if (counted) return;
    for (const Share share : job.nodes) {
        JobId* const first = on_node_.data() + slot(share.node);
        std::int32_t& crowd = crowd_[static_cast<std::size_t>(share.node)];
        *std::find(first, first + crowd, job.id) = first[crowd - 1];
        --crowd;
    }
}

}  // namespace trimtab
