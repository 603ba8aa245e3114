#include "walk.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

namespace {

std::int32_t gpus_on(const Job& job, std::int32_t node) {
    const auto is_here = [node](Share share) { return share.node == node; };
    return std::find_if(job.nodes.begin(), job.nodes.end(), is_here)->gpus;
}

bool comes_later(const PendingQueue::Item& one, const PendingQueue::Item& two) { return two.order < one.order; }

}  // namespace

void Walk::run(const Scene& scene, Partition& part) {
    scene_ = &scene;
    part_ = &part;
    lost.clear();
    places.clear();
    part.queue.heads(scene.jobs, items_);
    if (items_.empty()) return;
    std::make_heap(items_.begin(), items_.end(), comes_later);
    by_level_.resize(static_cast<std::size_t>(part.levels));
    later_by_level_.resize(static_cast<std::size_t>(part.levels));
    for (Ranks& ranks : by_level_) ranks.made = false;
    for (Later& later : later_by_level_) later.made = false;
    doubted_ = 0;
    failed_alone_ = failed_spread_ = std::numeric_limits<std::int32_t>::max();
    // Once a gang of one GPU has failed, only running jobs in doubt can still change anything.
    while (!items_.empty() && (doubted_ > 0 || std::max(failed_alone_, failed_spread_) > 1)) {
        const Item item = pop();
        Job& job = scene.job(item.order.id);
        if (item.job_class == RUNNING) {
            --doubted_;
            if (keeps(job, item.order)) continue;
            lose(job);
        }
        const bool is_alone = alone(job);
        if (job.gpus >= (is_alone ? failed_alone_ : failed_spread_)) continue;
        Item next;
        if (!place(job, item.order, is_alone)) {
            fail(job.gpus, is_alone);
        } else if (item.job_class != RUNNING && part.queue.after_head(scene.jobs, item.job_class, next)) {
            push(next);
        }
    }
    for (const JobId id : listed_) scene.job(id).listed = false;
    listed_.clear();
}

void Walk::push(const Item& item) {
    items_.push_back(item);
    std::push_heap(items_.begin(), items_.end(), comes_later);
}

Walk::Item Walk::pop() {
    std::pop_heap(items_.begin(), items_.end(), comes_later);
    const Item item = items_.back();
    items_.pop_back();
    return item;
}

bool Walk::alone(const Job& job) const {
    if (!scene_->relaxed) return true;
    return scene_->plan.consolidates(job, scene_->workload.skew_ppm[static_cast<std::size_t>(job.id)]);
}

// Close a width and all wider ones; where spreading failed, consolidating would have, too.
void Walk::fail(std::int32_t gpus, bool is_alone) {
    const bool strict = scene_->plan.strict;
    const std::int32_t width = strict ? 0 : gpus;
    failed_alone_ = std::min(failed_alone_, width);
    if (!is_alone || strict || !scene_->relaxed) failed_spread_ = std::min(failed_spread_, width);
}

bool Walk::place(Job& job, const Order& order, bool is_alone) {
    const bool preemptive = scene_->plan.preemptive;
    Nodes nodes;
    bool over = false;
    if (!find(part_->levels - 1, job.gpus, nullptr, is_alone, nodes)) {
        if (!preemptive || !find_over(job, order, is_alone, nodes)) return false;
        over = true;
    }
    part_->index.add(preemptive ? job.level : 0, part_->levels, nodes, -1);
    if (over) doubt(nodes, order);
    places.emplace_back(job.id, std::move(nodes));
    return true;
}

bool Walk::find(std::int32_t level, std::int32_t gpus, const Extra* extra, bool is_alone, Nodes& found) {
    if (part_->index.find(level, gpus, extra, found)) return true;
    return !is_alone && part_->index.find_spread(level, gpus, extra, found);
}

// Find a place over the map: what is free at the job's level, and what later jobs of it hold.
bool Walk::find_over(const Job& job, const Order& order, bool is_alone, Nodes& found) {
    Later& later = later_of(job, order);
    if (part_->index.total(job.level) + later.held < job.gpus) return false;
    if (later.held == 0 && job.level == part_->levels - 1) return false;
    if (!later.spread) {
        later.spread = true;
        later.extra.reset(part_->index.nodes());
        for (const Standing& other : later.jobs) later.extra.add(scene_->job(other.order.id).nodes);
    }
    return find(job.level, job.gpus, &later.extra, is_alone, found);
}

// The running jobs of the job's own level that come later in the walk. Where the engine keeps the order, only
// those put behind at this instant come after a pending job.
Walk::Later& Walk::later_of(const Job& job, const Order& order) {
    if (scene_->plan.rank != Rank::place || !job.nodes.empty()) return later_of_level(job.level, order);
    behind_.clear();
    for (const JobId id : part_->behind) {
        const Job& other = scene_->job(id);
        const Order its = scene_->order(other);
        if (other.level != job.level || other.shielded || !(order < its)) continue;
        behind_.jobs.push_back({its, other.gpus});
        behind_.held += other.gpus;
    }
    return behind_;
}

// All of a level after an order. A walk asks in ascending order, so it only has to leave out some of those it
// found before.
Walk::Later& Walk::later_of_level(std::int32_t level, const Order& order) {
    Later& later = later_by_level_[static_cast<std::size_t>(level)];
    if (!later.made) {
        find_later(level, order, later);
        return later;
    }
    std::erase_if(later.jobs, [&](const Standing& other) {
        if (order < other.order) return false;
        later.held -= other.gpus;
        if (later.spread) later.extra.remove(scene_->job(other.order.id).nodes);
        return true;
    });
    return later;
}

void Walk::find_later(std::int32_t level, const Order& order, Later& later) {
    later.made = true;
    later.clear();
    const bool jumps = scene_->plan.is_gittins();
    if (!jumps && part_->highest_key(level) < order.key) return;
    std::int64_t highest = std::numeric_limits<std::int64_t>::min();
    for (const Seat& seat : part_->running) {
        if (seat.level != level || !seat.preemptible) continue;
        const Order other =
            jumps ? scene_->order(scene_->job(seat.id)) : Order{seat.key.at(scene_->now_ms), 0, level, seat.id};
        highest = std::max(highest, other.key);
        if (!(order < other)) continue;
        later.jobs.push_back({other, seat.gpus});
        later.held += seat.gpus;
    }
    part_->lower_highest_key(level, highest);
}

// List the running jobs that may not keep their GPUs now that a job stands on these nodes.
//
// On a node, a job keeps its GPUs if what later jobs of its level hold there covers what the level is short
// of; so those in doubt are the last ones, up to the first that is covered.
void Walk::doubt(const Nodes& nodes, const Order& order) {
    for (const Share share : nodes) {
        for (std::int32_t level = order.level; level < part_->levels; ++level) {
            const std::int32_t lacking = -part_->index.spare(level, share.node);
            if (lacking <= 0) continue;
            const Ranks& found = ranks_on(share.node, level);
            for (std::size_t place = found.jobs.size(); place-- > 0;) {
                const auto& [other_order, id] = found.jobs[place];
                if (found.held[place + 1] >= lacking || !(order < other_order)) break;
                Job& other = scene_->job(id);
                if (other.listed) continue;
                other.listed = true;
                listed_.push_back(id);
                ++doubted_;
                push({other_order, RUNNING});
            }
        }
    }
}

// Whether a running job's own GPUs are still free in the map at its place in the walk.
bool Walk::keeps(const Job& job, const Order& order) {
    for (const Share share : job.nodes) {
        const std::int32_t spare = part_->index.spare(job.level, share.node);
        if (spare >= 0) continue;
        if (spare + held_later_on(share.node, job.level, order) < 0) return false;
    }
    return true;
}

// What the preemptible running jobs of a level after an order hold on a node.
std::int64_t Walk::held_later_on(std::int32_t node, std::int32_t level, const Order& order) {
    if (part_->counted) {
        const Ranks& found = ranks(level);
        return found.held[found.first_after(order)];
    }
    std::int64_t held = 0;
    const JobId* const first = part_->on_node(node);
    for (const JobId* id = first; id != first + part_->on_node_count(node); ++id) {
        const Job& job = scene_->job(*id);
        if (job.level == level && !job.shielded && order < scene_->order(job)) held += gpus_on(job, node);
    }
    return held;
}

void Walk::lose(Job& job) {
    part_->index.add(job.level, part_->levels, job.nodes, 1);
    lost.push_back(job.id);
}

std::size_t Walk::Ranks::first_after(const Order& order) const {
    const auto is_before = [](const Order& one, const std::pair<Order, JobId>& two) { return one < two.first; };
    return static_cast<std::size_t>(std::upper_bound(jobs.begin(), jobs.end(), order, is_before) - jobs.begin());
}

// The preemptible running jobs of a level in walk order, made once a walk.
Walk::Ranks& Walk::ranks(std::int32_t level) {
    Ranks& found = by_level_[static_cast<std::size_t>(level)];
    if (found.made) return found;
    found.made = true;
    found.jobs.clear();
    for (const Seat& seat : part_->running) {
        if (seat.level != level || !seat.preemptible) continue;
        found.jobs.emplace_back(scene_->order(scene_->job(seat.id)), seat.id);
    }
    std::sort(found.jobs.begin(), found.jobs.end(), [](const auto& one, const auto& two) { return one.first < two.first; });
    found.held.assign(found.jobs.size() + 1, 0);
    for (std::size_t place = found.jobs.size(); place-- > 0;) {
        found.held[place] = found.held[place + 1] + scene_->job(found.jobs[place].second).gpus;
    }
    return found;
}

// The same for one node.
Walk::Ranks& Walk::ranks_on(std::int32_t node, std::int32_t level) {
    if (part_->counted) return ranks(level);
    Ranks& found = on_node_;
    found.jobs.clear();
    const JobId* const first = part_->on_node(node);
    for (const JobId* id = first; id != first + part_->on_node_count(node); ++id) {
        const Job& job = scene_->job(*id);
        if (job.level == level && !job.shielded) found.jobs.emplace_back(scene_->order(job), *id);
    }
    std::sort(found.jobs.begin(), found.jobs.end(), [](const auto& one, const auto& two) { return one.first < two.first; });
    found.held.assign(found.jobs.size() + 1, 0);
    for (std::size_t place = found.jobs.size(); place-- > 0;) {
        const Job& job = scene_->job(found.jobs[place].second);
        found.held[place] = found.held[place + 1] + gpus_on(job, node);
    }
    return found;
}

}  // namespace trimtab
