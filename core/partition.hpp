// One virtual cluster inside the engine: who runs where, who waits, and what is free for whom.
#pragma once

#include <cstdint>
#include <vector>

#include "index.hpp"
#include "job.hpp"
#include "queue.hpp"

namespace trimtab {

struct VirtualCluster {
    std::int32_t nodes = 0;
    std::int32_t gpus_per_node = 0;
    std::int32_t first_node = 0;

    std::int32_t gpus() const { return nodes * gpus_per_node; }
};

// A running job as the walk looks for it: all that is asked of hundreds of jobs, side by side.
struct Seat {
    JobId id;
    std::int32_t gpus;
    std::int32_t level;
    bool preemptible;
    RunningKey key;  // not kept up under the Gittins index
};

// Everything here but `running` and the jobs' own state is derived, and can be rebuilt from them.
struct Partition {
    Partition(VirtualCluster cluster, bool counted_gpus, std::int32_t widths);

    // Build the index from nothing but who runs where; the queue starts empty.
    void rebuild(std::vector<Job>& jobs, std::int32_t levels, const Plan& plan);

    // The highest level that cannot have a running job's GPUs: its own if it may lose them.
    std::int32_t top(const Job& job) const { return preemptive && !job.shielded ? job.level : 0; }

    // Enter a job that has been given its GPUs in the index.
    void hold(Job& job, const Plan& plan);

    // Note that a running job's level, place or safety from preemption has changed.
    void reseat(const Job& job, const Plan& plan);

    // Strike out a job whose GPUs have been given back in the index.
    void drop(Job& job, std::vector<Job>& jobs);

    // No preemptible running job of a level has a higher key: keys fall while jobs run.
    std::int64_t highest_key(std::int32_t level) const { return highest_key_[static_cast<std::size_t>(level)]; }
    void lower_highest_key(std::int32_t level, std::int64_t key) { highest_key_[static_cast<std::size_t>(level)] = key; }

    // The running jobs on a node: `on_node_count(node)` ids from here on.
    const JobId* on_node(std::int32_t node) const { return on_node_.data() + slot(node); }
    std::int32_t on_node_count(std::int32_t node) const { return crowd_[static_cast<std::size_t>(node)]; }

    VirtualCluster vc;
    bool counted;  // placement `count`
    std::int32_t widths;
    std::int32_t levels = 1;
    bool preemptive = false;
    NodeIndex index;
    PendingQueue queue;
    std::vector<Seat> running;
    std::vector<JobId> behind;  // running jobs that were put at the end of their queue at this instant
    bool dirty = false;         // whether something happened since the last pass

private:
    std::size_t slot(std::int32_t node) const {
        return static_cast<std::size_t>(node) * static_cast<std::size_t>(vc.gpus_per_node);
    }
    void enter(const Job& job);

    std::vector<std::int64_t> highest_key_;  // by level
    std::vector<JobId> on_node_;  // as many seats a node as it has GPUs
    std::vector<std::int32_t> crowd_;
};

}  // namespace trimtab
