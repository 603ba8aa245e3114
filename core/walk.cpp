#include "walk.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

namespace {

std::int32_t gpus_on(const Job& job, std::int32_t node) {
    if (job.nodes.size() == 1) return job.gpus;
    const auto is_here = [node](Share share) { return share.node == node; };
    return std::find_if(job.nodes.begin(), job.nodes.end(), is_here)->gpus;
}

constexpr std::int32_t NOBODYS = -1;

bool comes_later(const PendingQueue::Item& one, const PendingQueue::Item& two) { return two.order < one.order; }

}  // namespace

void Walk::run(const Scene& scene, Partition& part) {
    scene_ = &scene;
    part_ = &part;
    lost.clear();
    places.clear();
    if (scene.plan.hooks) scene.plan.hooks->begin_walk();
    part.queue.heads(scene.jobs, items_);
    if (items_.empty()) return;
    std::sort(items_.begin(), items_.end(), comes_later);
    by_level_.resize(static_cast<std::size_t>(part.levels));
    for (Ranks& ranks : by_level_) ranks.made = false;
    reach_level_ = NOBODYS;
    doubted_ = 0;
    failed_alone_ = failed_spread_ = std::numeric_limits<std::int32_t>::max();
    // Once a gang of one GPU has failed, only running jobs in doubt can still change anything.
    while (!items_.empty() && (doubted_ > 0 || std::max(failed_alone_, failed_spread_) > 1)) {
        const Item item = items_.back();
        items_.pop_back();
        Job& job = scene.job(item.order.id);
        if (item.job_class == RUNNING) {
            --doubted_;
            if (keeps(job, item.order)) continue;
            lose(job, item.order);
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

// Enter an item in its place.
void Walk::push(const Item& item) {
    items_.insert(std::upper_bound(items_.begin(), items_.end(), item, comes_later), item);
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
    if (!find(part_->index.layer(part_->levels - 1), job, is_alone, nodes)) {
        if (!preemptive || !find_over(job, order, is_alone, nodes)) return false;
        over = true;
    }
    take(preemptive ? job.level : 0, nodes, -1);
    if (over) doubt(nodes, order);
    places.emplace_back(job.id, std::move(nodes));
    return true;
}

// Take (sign -1) or give back GPUs at a level and all below.
void Walk::take(std::int32_t top, const Nodes& nodes, std::int32_t sign) {
    part_->index.add(top, part_->levels, nodes, sign);
    if (reach_level_ >= top && !later_.empty()) reach_.add(nodes, sign);
}

bool Walk::find(const Layer& layer, const Job& job, bool is_alone, Nodes& found) const {
    return layer.find(job.gpus, found) || (!is_alone && layer.find_spread(job.gpus, found));
}

// Find a place over the map: what is free at the job's level, and what later jobs of it hold.
bool Walk::find_over(const Job& job, const Order& order, bool is_alone, Nodes& found) {
    extend(job, order);
    if (!later_.empty()) return reach_.total() >= job.gpus && find(reach_, job, is_alone, found);
    if (job.level == part_->levels - 1) return false;
    const Layer& layer = part_->index.layer(job.level);
    return layer.total() >= job.gpus && find(layer, job, is_alone, found);
}

// Find out what a job at this place in the walk may have.
void Walk::extend(const Job& job, const Order& order) {
    if (reach_level_ == job.level) {
        leave_out(order);
        return;
    }
    reach_level_ = job.level;
    find_later(job, order);
    if (later_.empty()) return;
    reach_ = part_->index.layer(job.level);
    for (const Later::Run& run : later_) {
        for (const LateJob& other : run) extend_by(other, 1);
    }
}

// A walk asks in ascending order, so of the later jobs that were found some only have to be left out.
void Walk::leave_out(const Order& order) {
    later_.leave_out(order, [this](const LateJob& other) { extend_by(other, -1); });
}

// Add (sign 1) or take off (-1) what a later job holds.
void Walk::extend_by(const LateJob& other, std::int32_t sign) {
    if (other.share.gpus > 0) {
        reach_.add(other.share, sign);
    } else {
        reach_.add(scene_->job(other.order.id).nodes, sign);
    }
}

// Find the running jobs of the job's own level that come later in the walk. Where the engine keeps the order, only
// those put behind at this instant come after a pending job.
void Walk::find_later(const Job& job, const Order& order) {
    const bool is_place = scene_->plan.rank == Rank::place;
    if (is_place && job.nodes.empty()) {
        sort_later(part_->behind, order);
    } else if (scene_->plan.jumps()) {
        sort_later(part_->running, order);
    } else {
        part_->line(job.level).after(scene_->jobs, order, scene_->now_ms, later_);
    }
}

// Of these jobs, find the ones of the order's level that come after it.
void Walk::sort_later(const std::vector<JobId>& jobs, const Order& order) {
    later_.clear();
    Later::Run& run = later_.open();
    for (const JobId id : jobs) {
        const Job& other = scene_->job(id);
        if (other.level != order.level || other.shielded) continue;
        const Order its = scene_->order(other);
        if (order < its) run.emplace_back(its, other);
    }
    std::sort(run.rbegin(), run.rend());
    later_.keep();
}

// List the running jobs that may not keep their GPUs now that a job stands on these nodes.
//
// On a node, a job keeps its GPUs if what later jobs of its level hold there covers what the level is short
// of; so those in doubt are the last ones, up to the first that is covered.
void Walk::doubt(const Nodes& nodes, const Order& order) {
    for (const Share share : nodes) {
        for (std::int32_t level = order.level; level < part_->levels; ++level) {
            std::int64_t lacking = -part_->index.spare(level, share.node);
            if (lacking <= 0) continue;
            part_->counted ? list_last(level, order, lacking) : list_last_on(share.node, level, order, lacking);
        }
    }
}

void Walk::list_last(std::int32_t level, const Order& order, std::int64_t lacking) {
    const Ranks& found = ranks(level);
    for (std::size_t place = found.jobs.size(); place-- > 0;) {
        if (found.held[place + 1] >= lacking || !(order < found.jobs[place])) return;
        list(found.jobs[place]);
    }
}

void Walk::list_last_on(std::int32_t node, std::int32_t level, const Order& order, std::int64_t lacking) {
    here_.clear();
    const JobId* const first = part_->on_node(node);
    for (const JobId* id = first; id != first + part_->on_node_count(node); ++id) {
        const Job& job = scene_->job(*id);
        if (job.level != level || job.shielded) continue;
        const Order its = scene_->order(job);
        if (order < its) here_.push_back({its, gpus_on(job, node)});
    }
    while (lacking > 0 && !here_.empty()) {
        const auto last = std::max_element(here_.begin(), here_.end());
        list(last->order);
        lacking -= last->gpus;
        *last = here_.back();
        here_.pop_back();
    }
}

void Walk::list(const Order& order) {
    Job& job = scene_->job(order.id);
    if (job.listed) return;
    job.listed = true;
    listed_.push_back(job.id);
    ++doubted_;
    push({order, RUNNING});
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

void Walk::lose(Job& job, const Order& order) {
    if (reach_level_ == job.level) leave_out(order);
    take(job.level, job.nodes, 1);
    lost.push_back(job.id);
}

std::size_t Walk::Ranks::first_after(const Order& order) const {
    return static_cast<std::size_t>(std::upper_bound(jobs.begin(), jobs.end(), order) - jobs.begin());
}

// The preemptible running jobs of a level in walk order, made once a walk.
Walk::Ranks& Walk::ranks(std::int32_t level) {
    Ranks& found = by_level_[static_cast<std::size_t>(level)];
    if (found.made) return found;
    found.made = true;
    found.jobs.clear();
    for (const JobId id : part_->running) {
        const Job& job = scene_->job(id);
        if (job.level == level && !job.shielded) found.jobs.push_back(scene_->order(job));
    }
    std::sort(found.jobs.begin(), found.jobs.end());
    found.held.assign(found.jobs.size() + 1, 0);
    for (std::size_t place = found.jobs.size(); place-- > 0;) {
        found.held[place] = found.held[place + 1] + scene_->job(found.jobs[place].id).gpus;
    }
    return found;
}

}  // namespace trimtab
