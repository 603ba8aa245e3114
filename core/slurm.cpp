#include "slurm.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "index.hpp"
#include "slurm_usage.hpp"

namespace trimtab {

namespace {

constexpr Ms REQUEUE_MS = 121'000;

Ms next_tick(Ms now_ms, Ms step_ms) { return (floor_div(now_ms, step_ms) + 1) * step_ms; }

Ms rounded_up(Ms time_ms, Ms step_ms) { return ceil_div(time_ms, step_ms) * step_ms; }

// Which passes happened: a main pass, whether it looked at all jobs, and backfill.
struct Passes {
    bool main;
    bool full;
    bool fill;
};

// Places for gangs on a map of free GPUs; see `FreeMap`.
class Places {
public:
    explicit Places(const View& view)
        : size_(view.counted ? view.vc.gpus() : view.vc.gpus_per_node), relaxed_(view.relaxed) {}

    Layer layer(const std::vector<std::int32_t>& free_gpus) const {
        const auto nodes = static_cast<std::int32_t>(free_gpus.size());
        Layer layer;
        layer.reset(nodes, size_);
        for (std::int32_t node = 0; node < nodes; ++node) {
            layer.add(Share{node, free_gpus[static_cast<std::size_t>(node)] - size_}, 1);
        }
        return layer;
    }
    bool find(const Layer& map, std::int32_t gpus, Nodes& found) const {
        return map.find(gpus, found) || (relaxed_ && map.find_spread(gpus, found));
    }

    // Whether there may be a place at all, by a look at each node.
    bool may_fit(const std::vector<std::int32_t>& free_gpus, std::int32_t gpus) const {
        std::int64_t total = 0;
        std::int32_t most = 0, whole = 0;
        for (const std::int32_t free : free_gpus) {
            total += free;
            most = std::max(most, free);
            whole += free == size_ ? 1 : 0;
        }
        if (relaxed_) return total >= gpus;
        return gpus <= size_ ? most >= gpus : whole >= gpus / size_;
    }
    std::int32_t size() const { return size_; }

private:
    std::int32_t size_;  // GPUs of a node
    bool relaxed_;
};

class Outlook;

// One virtual cluster while passes change it.
class Board {
public:
    Board(const View& view, const SlurmRules& rules, SlurmBooks& books)
        : view_(view), rules_(rules), books_(books), places_(view), free_(places_.layer(view.free_gpus)) {
        for (const auto* jobs : {&view.pending, &view.running}) {
            for (const Job* job : *jobs) books.of(claim(*job).account, claim(*job).user);
        }
    }

    Passes run(bool is_changed);
    void await_next(Passes passes, bool is_stale);
    void count_in_use();

    std::vector<std::pair<const Job*, Nodes>> started;
    std::vector<JobId> lost;

private:
    friend class Outlook;

    const Claim& claim(const Job& job) const { return view_.workload.claims[static_cast<std::size_t>(job.id)]; }
    Ms eligible_ms(const Job& job) const {
        return job.preemptions > 0 ? job.stopped_ms + REQUEUE_MS : view_.submit_ms[static_cast<std::size_t>(job.id)];
    }
    bool is_lost(const Job& job) const { return std::find(lost.begin(), lost.end(), job.id) != lost.end(); }
    std::int64_t priority(const Job& job);
    std::int64_t size_ppm(const Job& job, bool favors_small) const;
    std::vector<const Job*> queue();
    void start(const Job& job, const Nodes& nodes) {
        free_.add(nodes, -1);
        started.emplace_back(&job, nodes);
    }
    bool place_by_preemption(const Job& job, Nodes& found);
    std::vector<const Job*> victims(const Job& job) const;
    void fill(const std::vector<const Job*>& queue, std::size_t first);
    Ms wake_ms() const;

    const View& view_;
    const SlurmRules& rules_;
    SlurmBooks& books_;
    Places places_;
    Layer free_;
};

// GPUs that become free by the time limits of running jobs, less what is kept for jobs further up. During a pass they
// only become fewer, so that nobody finds a place before one that asked for no more and for no longer.
class Outlook {
public:
    explicit Outlook(const Board& board)
        : board_(board), now_ms_(board.view_.now_ms), horizon_ms_(now_ms_ + board.rules_.window_ms),
          is_by_node_(!board.view_.counted && !board.view_.relaxed), nodes_(board.view_.free_gpus.size()) {
        for (const Job* job : board.view_.running) {
            if (!board.is_lost(*job)) enter(job->started_ms, *job, job->nodes);
        }
        for (const auto& [job, nodes] : board.started) enter(now_ms_, *job, nodes);
        for (Node& node : nodes_) std::sort(node.ends.begin(), node.ends.end());
        times_.push_back(now_ms_);
        std::sort(times_.begin(), times_.end());
        times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
    }

    // Enter when a job that starts now is expected to end.
    void hold(const Job& job, const Nodes& nodes) {
        const Ms at_ms = expected_end_ms(now_ms_, job);
        for (const Share share : nodes) {
            std::vector<End>& ends = at(share.node).ends;
            const End end{at_ms, share.gpus};
            ends.insert(std::upper_bound(ends.begin(), ends.end(), end), end);
        }
        add_time(at_ms);
    }

    // Keep a place for a job: whole nodes, or as many GPUs as it needs where nodes do not count.
    void book(const Job& job, Ms at_ms, const Nodes& nodes) {
        const Ms to_ms = end_ms(job, at_ms);
        for (const Share share : nodes) {
            const std::int32_t gpus = board_.view_.counted ? share.gpus : board_.view_.vc.gpus_per_node;
            at(share.node).bookings.push_back({at_ms, to_ms, gpus});
        }
        add_time(to_ms);
    }

    // The first instant inside the window at which a job finds a place for all of its limit; false for none.
    bool earliest(const Job& job, Ms& at_ms, Nodes& found) {
        const Ms limit_ms = board_.claim(job).limit_ms;
        Ms from_ms = now_ms_;
        for (const Asked& one : asked_) {
            if (one.gpus <= job.gpus && one.limit_ms <= limit_ms) from_ms = std::max(from_ms, one.at_ms);
        }
        at_ms = NEVER_MS;
        if (is_by_node_ && job.gpus <= board_.places_.size()) {
            for (const Node& node : nodes_) at_ms = std::min(at_ms, earliest_on(node, job, from_ms, at_ms));
            if (at_ms <= horizon_ms_ && !fits(job, at_ms, found)) throw InvariantError("backfill lost a place");
        } else {
            for (auto time = std::lower_bound(times_.begin(), times_.end(), from_ms);
                 time != times_.end() && *time <= horizon_ms_; ++time) {
                if (!fits(job, *time, found)) continue;
                at_ms = *time;
                break;
            }
        }
        if (at_ms > horizon_ms_) at_ms = NEVER_MS;
        if (at_ms > from_ms) asked_.push_back({job.gpus, limit_ms, at_ms});
        return at_ms != NEVER_MS;
    }

private:
    struct End {
        Ms at_ms;
        std::int32_t gpus;
        friend bool operator<(const End& one, const End& two) { return one.at_ms < two.at_ms; }
    };
    struct Booking {
        Ms from_ms;
        Ms to_ms;
        std::int32_t gpus;
    };
    struct Node {
        std::vector<End> ends;  // in order of time
        std::vector<Booking> bookings;
    };
    struct Asked {
        std::int32_t gpus;
        Ms limit_ms;
        Ms at_ms;
    };

    Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }

    Ms end_ms(const Job& job, Ms from_ms) const {
        return rounded_up(from_ms + board_.claim(job).limit_ms, board_.rules_.resolution_ms);
    }
    // At its limit, or soon if it is past that.
    Ms expected_end_ms(Ms from_ms, const Job& job) const {
        const Ms step_ms = board_.rules_.resolution_ms, limit_ms = from_ms + board_.claim(job).limit_ms;
        return rounded_up(limit_ms <= now_ms_ ? now_ms_ + step_ms : limit_ms, step_ms);
    }
    void enter(Ms from_ms, const Job& job, const Nodes& nodes) {
        const Ms at_ms = expected_end_ms(from_ms, job);
        for (const Share share : nodes) at(share.node).ends.push_back({at_ms, share.gpus});
        times_.push_back(at_ms);
    }
    void add_time(Ms time_ms) {
        const auto place = std::lower_bound(times_.begin(), times_.end(), time_ms);
        if (place == times_.end() || *place != time_ms) times_.insert(place, time_ms);
    }

    // The first instant at which a job that needs one node finds a place on this one, not before an instant; any that
    // is not before `best_ms` will do.
    Ms earliest_on(const Node& node, const Job& job, Ms from_ms, Ms best_ms) const {
        std::int32_t free = board_.free_.spare(static_cast<std::int32_t>(&node - nodes_.data()));
        Ms at_ms = from_ms;
        auto end = node.ends.begin();
        while (at_ms < best_ms) {
            for (; end != node.ends.end() && (end->at_ms <= at_ms || free < job.gpus); ++end) {
                at_ms = std::max(at_ms, end->at_ms);
                free += end->gpus;
            }
            const Ms to_ms = end_ms(job, at_ms);
            Ms after_ms = at_ms;
            for (const Booking& one : node.bookings) {
                if (one.from_ms < to_ms && at_ms < one.to_ms) after_ms = std::max(after_ms, one.to_ms);
            }
            if (after_ms == at_ms) return at_ms;
            at_ms = after_ms;
        }
        return at_ms;
    }

    // Whether a job finds a place at an instant for all of its limit.
    bool fits(const Job& job, Ms at_ms, Nodes& found) {
        const Ms to_ms = end_ms(job, at_ms);
        usable_ = board_.free_.spares();
        for (std::size_t place = 0; place < nodes_.size(); ++place) {
            std::int32_t& left = usable_[place];
            for (const End& end : nodes_[place].ends) {
                if (end.at_ms > at_ms) break;
                left += end.gpus;
            }
            for (const Booking& one : nodes_[place].bookings) {
                if (one.from_ms < to_ms && at_ms < one.to_ms) left = std::max(0, left - one.gpus);
            }
        }
        const Places& places = board_.places_;
        return places.may_fit(usable_, job.gpus) && places.find(places.layer(usable_), job.gpus, found);
    }

    const Board& board_;
    Ms now_ms_;
    Ms horizon_ms_;
    bool is_by_node_;  // whether a job that fits on a node is on one
    std::vector<Node> nodes_;
    std::vector<Ms> times_;  // at which something becomes free, in order
    std::vector<Asked> asked_;
    std::vector<std::int32_t> usable_;
};

std::int64_t Board::priority(const Job& job) {
    const Claim& its = claim(job);
    const bool is_new = view_.submit_ms[static_cast<std::size_t>(job.id)] > books_.calculated_ms;
    const SlurmFormula& by = is_new ? rules_.formula : books_.formula;
    const Ms waited_ms = std::clamp<Ms>(books_.calculated_ms - eligible_ms(job), 0, by.max_age_ms);
    const std::int64_t sum = by.age * (FULL_SPEED_PPM * waited_ms / by.max_age_ms) +
                             by.fairshare * books_.of(its.account, its.user).fair_ppm +
                             by.size * size_ppm(job, by.favors_small != 0) + by.partition * its.partition_ppm +
                             by.qos * its.qos_ppm + by.tres * (FULL_SPEED_PPM * job.gpus / view_.vc.gpus());
    return std::max<std::int64_t>(1, sum / FULL_SPEED_PPM);
}

std::int64_t Board::size_ppm(const Job& job, bool favors_small) const {
    const std::int64_t all_nodes = view_.vc.nodes, all_gpus = view_.vc.gpus();
    const std::int64_t nodes = ceil_div(job.gpus, view_.vc.gpus_per_node);
    const std::int64_t part_ppm = FULL_SPEED_PPM * (nodes * all_gpus + job.gpus * all_nodes) / (2 * all_nodes * all_gpus);
    return favors_small ? FULL_SPEED_PPM - part_ppm : part_ppm;
}

// The pending jobs that may start, most urgent first.
std::vector<const Job*> Board::queue() {
    if (!view_.pending.empty()) books_.share(view_.workload.shares);
    std::vector<std::tuple<std::int64_t, std::int64_t, JobId, const Job*>> keyed;
    for (const Job* job : view_.pending) {
        if (eligible_ms(*job) <= view_.now_ms) keyed.emplace_back(-claim(*job).tier, -priority(*job), job->id, job);
    }
    std::sort(keyed.begin(), keyed.end());
    std::vector<const Job*> found;
    found.reserve(keyed.size());
    for (const auto& one : keyed) found.push_back(std::get<3>(one));
    return found;
}

Passes Board::run(bool is_changed) {
    const Ms now_ms = view_.now_ms;
    const bool is_due = is_changed || now_ms >= books_.main_due_ms;
    const bool is_full = floor_mod(now_ms, rules_.interval_ms) == 0;
    const Passes passes{is_due && (is_full || now_ms >= books_.rested_ms), is_full,
                        rules_.fills && now_ms >= books_.fill_due_ms};
    if (is_due && !passes.main) books_.main_due_ms = books_.rested_ms;
    if (!passes.main && !passes.fill) return passes;
    const std::vector<const Job*> jobs = queue();
    if (passes.main) {
        books_.rested_ms = now_ms + rules_.rest_ms;
        const auto all = static_cast<std::int64_t>(jobs.size());
        const std::int64_t depth = passes.full ? all : std::min(all, rules_.depth);
        for (std::int64_t place = 0; place < depth; ++place) {
            const Job& job = *jobs[static_cast<std::size_t>(place)];
            Nodes nodes;
            if (!places_.find(free_, job.gpus, nodes) && !place_by_preemption(job, nodes)) break;
            start(job, nodes);
        }
    }
    if (passes.fill) fill(jobs, started.size());
    return passes;
}

// Where a job fits if it takes others' GPUs, least important first; only those it needs lose theirs.
bool Board::place_by_preemption(const Job& job, Nodes& found) {
    std::vector<const Job*> lifted = victims(job);
    std::size_t count = 0;
    bool fits = false;
    while (!fits && count < lifted.size()) {
        free_.add(lifted[count++]->nodes, 1);
        fits = places_.find(free_, job.gpus, found);
    }
    lifted.resize(count);
    if (!fits) {
        for (const Job* victim : lifted) free_.add(victim->nodes, -1);
        return false;
    }
    free_.add(found, -1);
    for (auto victim = lifted.rbegin(); victim != lifted.rend(); ++victim) {
        const Nodes& nodes = (*victim)->nodes;
        const auto is_free = [&](const Share share) { return free_.spare(share.node) >= share.gpus; };
        if (std::all_of(nodes.begin(), nodes.end(), is_free)) {
            free_.add(nodes, -1);
        } else {
            lost.push_back((*victim)->id);
        }
    }
    free_.add(found, 1);
    return true;
}

// The running jobs that may lose their GPUs to a job: lowest first, then narrowest, newest.
std::vector<const Job*> Board::victims(const Job& job) const {
    std::vector<const Job*> found;
    if (rules_.preempts == SlurmRules::Preempts::none) return found;
    const bool by_tier = rules_.preempts == SlurmRules::Preempts::partition;
    const Claim& its = claim(job);
    std::vector<std::tuple<std::int64_t, std::int32_t, JobId, const Job*>> keyed;
    for (const Job* other : view_.running) {
        const Claim& theirs = claim(*other);
        const bool is_below = by_tier ? theirs.tier < its.tier : view_.workload.may_preempt(its.qos, theirs.qos);
        if (!is_below || other->started_ms + rules_.exempt_ms > view_.now_ms || is_lost(*other)) continue;
        keyed.emplace_back(by_tier ? theirs.tier : theirs.qos_priority, other->gpus, -other->id, other);
    }
    std::sort(keyed.begin(), keyed.end());
    for (const auto& one : keyed) found.push_back(std::get<3>(one));
    return found;
}

// Start what delays nobody before it; keep places for what must wait and starts inside the window.
void Board::fill(const std::vector<const Job*>& queue, std::size_t first) {
    Outlook outlook(*this);
    std::int64_t tested = 0, begun = 0;
    std::map<std::int64_t, std::int64_t> of_user;
    for (std::size_t place = first; place < queue.size(); ++place) {
        const Job& job = *queue[place];
        std::int64_t& its = of_user[claim(job).user];
        if (rules_.user_max > 0 && its >= rules_.user_max) continue;
        if (tested >= rules_.test_max) return;
        ++tested;
        ++its;
        Ms at_ms = 0;
        Nodes nodes;
        if (!outlook.earliest(job, at_ms, nodes)) continue;
        if (at_ms > view_.now_ms) {
            outlook.book(job, at_ms, nodes);
            continue;
        }
        start(job, nodes);
        outlook.hold(job, nodes);
        if (rules_.start_max > 0 && ++begun >= rules_.start_max) return;
    }
}

// Write down when the next passes are due: after what has changed, and when jobs become free to.
void Board::await_next(Passes passes, bool is_stale) {
    const Ms now_ms = view_.now_ms;
    const bool has_acted = !started.empty() || !lost.empty();
    const auto moved = static_cast<std::int64_t>(started.size()) - static_cast<std::int64_t>(lost.size());
    books_.pending = static_cast<std::int64_t>(view_.pending.size()) - moved;
    books_.running = static_cast<std::int64_t>(view_.running.size()) + moved;
    Ms &main_ms = books_.main_due_ms, &fill_ms = books_.fill_due_ms;
    const Ms wake = wake_ms();
    if (passes.main) main_ms = NEVER_MS;
    if (has_acted || (is_stale && !(passes.main && passes.full))) {
        main_ms = std::min(main_ms, next_tick(now_ms, rules_.interval_ms));
    }
    if (passes.fill || !rules_.fills) fill_ms = NEVER_MS;
    if (rules_.fills && (has_acted || (is_stale && !passes.fill))) {
        fill_ms = std::min(fill_ms, next_tick(now_ms, rules_.fill_ms));
    }
    if (wake != NEVER_MS) {
        main_ms = std::min(main_ms, rounded_up(wake, rules_.interval_ms));
        if (rules_.fills) fill_ms = std::min(fill_ms, rounded_up(wake, rules_.fill_ms));
    }
    if (books_.pending == 0) main_ms = fill_ms = NEVER_MS;
}

// When a requeued job may start again, or a running one may be preempted, `NEVER_MS` for never.
Ms Board::wake_ms() const {
    const Ms now_ms = view_.now_ms;
    Ms found = NEVER_MS;
    const auto look = [&](Ms time_ms) {
        if (time_ms > now_ms) found = std::min(found, time_ms);
    };
    for (const Job* job : view_.pending) look(eligible_ms(*job));
    if (!lost.empty()) look(now_ms + REQUEUE_MS);
    if (rules_.exempt_ms > 0) {
        for (const Job* job : view_.running) look(job->started_ms + rules_.exempt_ms);
        if (!started.empty()) look(now_ms + rules_.exempt_ms);
    }
    return found;
}

void Board::count_in_use() {
    for (SlurmUsage& one : books_.usage) one.gpus = 0;
    for (const Job* job : view_.running) {
        if (!is_lost(*job)) books_.of(claim(*job).account, claim(*job).user).gpus += job->gpus;
    }
    for (const auto& [job, nodes] : started) books_.of(claim(*job).account, claim(*job).user).gpus += job->gpus;
}

}  // namespace

Verdict Slurm::decide(const View& view) const {
    Verdict verdict;
    SlurmBooks books(view.memory, view.now_ms, rules_);
    const bool is_changed = static_cast<std::int64_t>(view.pending.size()) != books.pending ||
                            static_cast<std::int64_t>(view.running.size()) != books.running;
    const bool is_calculated = view.now_ms >= books.next_calculation_ms();
    if (!is_changed && !is_calculated && view.now_ms < std::min(books.main_due_ms, books.fill_due_ms)) return verdict;
    books.advance(view.now_ms, rules_.formula);
    Board board(view, rules_, books);
    const Passes passes = board.run(is_changed);
    board.await_next(passes, is_changed || is_calculated);
    board.count_in_use();
    verdict.lost = std::move(board.lost);
    for (auto& [job, nodes] : board.started) verdict.places.emplace_back(job->id, std::move(nodes));
    verdict.is_empty = verdict.lost.empty() && verdict.places.empty();
    verdict.memory = books.memory();
    return verdict;
}

Ms Slurm::next_review_ms(const View& view) const {
    if (view.pending.empty() && view.running.empty()) return NONE;
    const SlurmBooks books(view.memory, view.now_ms, rules_);
    return std::min({books.next_calculation_ms(), books.main_due_ms, books.fill_due_ms});
}

}  // namespace trimtab
