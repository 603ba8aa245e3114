// Everything derived, compared with what follows from who runs where and who waits.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine.hpp"

namespace trimtab {

// The keys and ids of all jobs of a line-up, whose runs have to be in order.
static std::vector<std::pair<std::int64_t, JobId>> all_after(LineUp line, const std::vector<Job>& jobs,
                                                             const Order& start, Ms now_ms) {
    Later found;
    line.after(jobs, start, now_ms, found);
    std::vector<std::pair<std::int64_t, JobId>> all;
    for (const Later::Run& run : found) {
        if (!std::is_sorted(run.rbegin(), run.rend())) throw InvariantError("a run of later jobs is not in order");
        for (const LateJob& late : run) all.emplace_back(late.order.key, late.order.id);
    }
    std::sort(all.begin(), all.end());
    return all;
}

void Engine::check_lines(const Partition& part, const Partition& anew, const std::vector<Job>& copies) const {
    if (!part.preemptive || plan_.jumps()) return;
    for (std::int32_t level = 0; level < part.levels; ++level) {
        const Order start{std::numeric_limits<std::int64_t>::min(), 0, level, -1};
        if (all_after(part.line(level), jobs_, start, now_ms_) == all_after(anew.line(level), copies, start, now_ms_)) continue;
        throw InvariantError("the order of the running jobs of level " + std::to_string(level) + " is not kept up");
    }
}

// The ids on each node, in order: who stands where does not matter.
static std::vector<JobId> sorted_on(const Partition& part, std::int32_t node) {
    std::vector<JobId> ids(part.on_node(node), part.on_node(node) + part.on_node_count(node));
    std::sort(ids.begin(), ids.end());
    return ids;
}

void Engine::check_nodes(const Partition& part, const Partition& anew) const {
    for (std::int32_t level = 0; level < part.levels; ++level) {
        if (part.index.layer(level) == anew.index.layer(level)) continue;
        for (std::int32_t node = 0; node < part.index.nodes(); ++node) {
            if (part.index.spare(level, node) == anew.index.spare(level, node)) continue;
            throw InvariantError("index of node " + std::to_string(node) + " at level " + std::to_string(level) +
                                 " holds " + std::to_string(part.index.spare(level, node)) + " GPUs, not " +
                                 std::to_string(anew.index.spare(level, node)));
        }
        throw InvariantError("the bitmaps of level " + std::to_string(level) + " are not kept up");
    }
    for (std::int32_t node = 0; !part.counted && node < part.vc.nodes; ++node) {
        if (sorted_on(part, node) == sorted_on(anew, node)) continue;
        throw InvariantError("the jobs on node " + std::to_string(node) + " are not kept up");
    }
    for (std::size_t seat = 0; seat < part.running.size(); ++seat) {
        if (job(part.running[seat]).seat != static_cast<std::int32_t>(seat)) {
            throw InvariantError("job " + std::to_string(part.running[seat]) + " does not know its seat");
        }
    }
}

// Each pending job waits in its queue once, each running one has a timer, and the GPUs in use are those they hold.
void Engine::check_jobs() const {
    std::vector<JobId> pending, queued;
    std::int64_t used = 0;
    for (JobId id = first_; id >= 0; id = job(id).after) {
        if (job(id).state == State::pending) pending.push_back(id);
        if (job(id).state != State::running) continue;
        used += job(id).gpus;
        if (!timers_.has(id)) throw InvariantError("running job " + std::to_string(id) + " has no timer");
    }
    if (used != used_gpus_) throw InvariantError("the number of GPUs in use is not kept up");
    if (decider() != nullptr) return;
    for (const Partition& part : parts_) {
        plan_.lucid ? part.lucid.all(queued) : part.queue.all(jobs_, queued);
        if (!plan_.auction) continue;
        queued.insert(queued.end(), part.desk.waiting().begin(), part.desk.waiting().end());
        for (const JobId id : part.running) {
            if (!part.desk.has(job(id))) throw InvariantError("a lease is not in line");
        }
    }
    std::sort(queued.begin(), queued.end());
    if (queued != pending) throw InvariantError("the queues do not hold each pending job once");
}

void Engine::check_indexes() const {
    for (const Partition& part : parts_) {
        Partition anew(part.vc, part.counted, part.widths);
        anew.running = part.running;
        std::vector<Job> copies = jobs_;
        anew.rebuild(copies, part.queues, plan_);
        check_lines(part, anew, copies);
        check_nodes(part, anew);
    }
    check_jobs();
}

}  // namespace trimtab
