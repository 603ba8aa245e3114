// One virtual cluster inside the engine: who runs where, who waits, and what is free for whom.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster.hpp"
#include "index.hpp"
#include "job.hpp"
#include "leases.hpp"
#include "lineup.hpp"
#include "lucid.hpp"
#include "queue.hpp"

namespace trimtab {

// Everything here but `running` and the jobs' own state is derived, and can be rebuilt from them.
struct Partition {
    Partition(VirtualCluster cluster, bool counted_gpus, std::int32_t widths);

    // Build the index from nothing but who runs where; the queue starts empty. Jobs may be in so many queues.
    void rebuild(std::vector<Job>& jobs, std::int32_t queues, const Plan& plan);

    // The highest level that cannot have a running job's GPUs: its own if it may lose them.
    std::int32_t top(const Job& job) const { return preemptive && !job.shielded ? job.level : 0; }

    // Enter a job that has been given its GPUs in the index.
    void hold(Job& job, std::vector<Job>& jobs, const Plan& plan);

    // Note that a running job's level, place or safety from preemption has changed.
    void line_up(Job& job, const std::vector<Job>& jobs, const Plan& plan);

    // Make a job's entry among the running jobs of its level out of date.
    static void leave_line(Job& job) {
        ++job.turn;
        job.lined = false;
    }

    // Strike out a job whose GPUs have been given back in the index; it stays in line.
    void drop(Job& job, std::vector<Job>& jobs);

    // The integral of the number of active jobs over a job's life so far.
    std::int64_t life_job_ms(const Job& job) const { return job_ms - job.submit_job_ms; }

    // Count active jobs, aggregated members each, that come or go now.
    void count(Ms now_ms, std::int64_t change) {
        job_ms += active * (now_ms - counted_ms);
        counted_ms = now_ms;
        active += change;
    }

    // The preemptible running jobs of a level.
    LineUp& line(std::int32_t level) { return lines_[static_cast<std::size_t>(level)]; }
    const LineUp& line(std::int32_t level) const { return lines_[static_cast<std::size_t>(level)]; }

    // The running jobs on a node: `on_node_count(node)` ids from here on.
    const JobId* on_node(std::int32_t node) const { return on_node_.data() + slot(node); }
    std::int32_t on_node_count(std::int32_t node) const { return crowd_[static_cast<std::size_t>(node)]; }

    VirtualCluster vc;
    bool counted;  // placement `count`
    std::int32_t widths;
    std::int32_t queues = 1;
    std::int32_t levels = 1;  // of the index: all queues if jobs may lose their GPUs, else one
    bool preemptive = false;
    NodeIndex index;
    PendingQueue queue;
    Lucid lucid;  // in place of queue and index, if that is the policy
    std::vector<JobId> running;
    std::vector<JobId> behind;  // running jobs that were put at the end of their queue at this instant
    bool dirty = false;         // whether something happened since the last pass
    Ms review_ms = NONE;        // when a whole-pass policy wants to be asked again
    Ms lease_due_ms = NONE;     // when it is asked because a lease ends
    std::int64_t job_ms = 0;    // integral of the number of active jobs over time, up to `counted_ms`
    Ms counted_ms = 0;
    std::int64_t active = 0;    // active jobs, members each
    std::vector<std::int64_t> memory;  // what a whole-pass policy wrote down
    Desk desk;                  // of Themis
    Ms renewal_ms = NONE;       // of all its leases, NONE if that has to be looked at

private:
    std::size_t slot(std::int32_t node) const {
        return 2 * static_cast<std::size_t>(node) * static_cast<std::size_t>(vc.gpus_per_node);
    }
    void enter(const Job& job);

    std::vector<LineUp> lines_;   // by level; not kept up for keys that jump
    std::vector<JobId> on_node_;  // two seats for each GPU of a node
    std::vector<std::int32_t> crowd_;
};

}  // namespace trimtab
