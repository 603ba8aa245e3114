#include "partition.hpp"

#include <algorithm>

namespace trimtab {

Partition::Partition(VirtualCluster cluster, bool counted_gpus, std::int32_t width_classes)
    : vc(cluster), counted(counted_gpus), widths(width_classes) {
    if (!counted) {
        on_node_.assign(slot(vc.nodes), -1);
        crowd_.assign(static_cast<std::size_t>(vc.nodes), 0);
    }
}

void Partition::rebuild(std::vector<Job>& jobs, std::int32_t queue_count, const Plan& plan) {
    preemptive = plan.preemptive;
    queues = queue_count;
    levels = preemptive ? queues : 1;
    if (counted) {
        index.reset(levels, 1, vc.gpus());
    } else {
        index.reset(levels, vc.nodes, vc.gpus_per_node);
        std::fill(crowd_.begin(), crowd_.end(), 0);
    }
    queue.reset(queues, widths);
    desk.clear();
    renewal_ms = NONE;
    lines_.resize(static_cast<std::size_t>(levels));
    for (LineUp& line : lines_) line.clear();
    for (std::size_t seat = 0; seat < running.size(); ++seat) {
        Job& job = jobs[static_cast<std::size_t>(running[seat])];
        job.seat = static_cast<std::int32_t>(seat);
        line_up(job, jobs, plan);
        if (!job.is_guest()) index.add(top(job), levels, job.nodes, -1);
        enter(job);
        if (plan.auction) desk.lease(job);
    }
    for (LineUp& line : lines_) line.ready(jobs);
}

void Partition::enter(const Job& job) {
    if (counted) return;
    for (const Share share : job.nodes) {
        on_node_[slot(share.node) + static_cast<std::size_t>(crowd_[static_cast<std::size_t>(share.node)]++)] = job.id;
    }
}

void Partition::line_up(Job& job, const std::vector<Job>& jobs, const Plan& plan) {
    if (!plan.preemptive || plan.jumps()) return;
    leave_line(job);
    if (job.shielded) return;
    line(job.level).enter(jobs, job, running_key(job, plan), job.since_ms);
    job.lined = true;
}

void Partition::hold(Job& job, std::vector<Job>& jobs, const Plan& plan) {
    job.seat = static_cast<std::int32_t>(running.size());
    running.push_back(job.id);
    if (!job.lined || job.shielded) line_up(job, jobs, plan);
    enter(job);
}

void Partition::drop(Job& job, std::vector<Job>& jobs) {
    running[static_cast<std::size_t>(job.seat)] = running.back();
    jobs[static_cast<std::size_t>(running.back())].seat = job.seat;
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
