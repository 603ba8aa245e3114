#include "walk.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

namespace {

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
    for (Ranks& ranks : by_level_) ranks.made = false;
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
    const std::int64_t held = gather_later(job, order);
    if (part_->index.total(job.level) + held < job.gpus) return false;
    if (held == 0 && job.level == part_->levels - 1) return false;
    extra_.reset(part_->index.nodes());
    for (const JobId id : later_) extra_.add(scene_->job(id).nodes);
    return find(job.level, job.gpus, &extra_, is_alone, found);
}

// Collect the running jobs of the job's own level that come later in the walk; return the GPUs they hold.
// Where the engine keeps the order, only those put behind at this instant come after a pending job.
std::int64_t Walk::gather_later(const Job& job, const Order& order) {
    later_.clear();
    if (scene_->plan.rank == Rank::place && job.nodes.empty()) {
        std::int64_t held = 0;
        for (const JobId id : part_->behind) {
            const Job& other = scene_->job(id);
            if (other.level != job.level || other.shielded || !(order < scene_->order(other))) continue;
            later_.push_back(id);
            held += other.gpus;
        }
        return held;
    }
    const Ranks& found = ranks(job.level);
    const std::size_t first = found.first_after(order);
    for (std::size_t place = first; place < found.jobs.size(); ++place) later_.push_back(found.jobs[place].second);
    return found.held[first];
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
        const Ranks& found = ranks_on(share.node, job.level);
        if (spare + found.held[found.first_after(order)] < 0) return false;
    }
    return true;
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
    if (by_level_.size() < static_cast<std::size_t>(part_->levels)) {
        by_level_.resize(static_cast<std::size_t>(part_->levels));
    }
    Ranks& found = by_level_[static_cast<std::size_t>(level)];
    if (found.made) return found;
    found.made = true;
    found.jobs.clear();
    for (const JobId id : part_->running) {
        const Job& job = scene_->job(id);
        if (job.level == level && !job.shielded) found.jobs.emplace_back(scene_->order(job), id);
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
        const auto here = std::find_if(job.nodes.begin(), job.nodes.end(), [node](Share share) { return share.node == node; });
        found.held[place] = found.held[place + 1] + here->gpus;
    }
    return found;
}

}  // namespace trimtab
