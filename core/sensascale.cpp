#include "sensascale.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include "outlook.hpp"
#include "sensa_jobs.hpp"

namespace trimtab {

namespace {

constexpr std::int32_t ROUNDS = 16;
constexpr std::size_t RESERVED = 64;  // most urgent units with a promise that room is kept for
constexpr std::int64_t ADMITTED = 1, REFUSED = 0;

// Free GPUs by node, with the placement rules of `FreeMap`.
class FreeNodes {
public:
    FreeNodes(const std::vector<std::int32_t>& free, std::int32_t size, bool relaxed)
        : free_(free), nodes_with_(static_cast<std::size_t>(size) + 1, 0), size_(size), relaxed_(relaxed) {
        for (const std::int32_t gpus : free) {
            ++nodes_with_[static_cast<std::size_t>(std::max(0, gpus))];
            all_ += gpus;
        }
    }

    const std::vector<std::int32_t>& free() const { return free_; }
    bool has_any() const { return nodes_with_[0] < static_cast<std::int32_t>(free_.size()); }
    std::int64_t all() const { return all_; }

    void add(const Nodes& nodes, std::int32_t sign) {
        for (const Share share : nodes) {
            std::int32_t& gpus = free_[static_cast<std::size_t>(share.node)];
            --nodes_with_[static_cast<std::size_t>(gpus)];
            gpus += sign * share.gpus;
            ++nodes_with_[static_cast<std::size_t>(gpus)];
            all_ += sign * share.gpus;
        }
    }

    // Whether a node has so many.
    bool has_node(std::int32_t gpus) const {
        for (std::int32_t free = size_; free >= gpus; --free) {
            if (nodes_with_[static_cast<std::size_t>(free)] > 0) return true;
        }
        return false;
    }

    // The node with the fewest that has enough, lowest first, or -1.
    std::int32_t best_fit(std::int32_t gpus) const {
        if (!has_node(gpus)) return -1;
        std::int32_t found = -1;
        for (std::size_t node = 0; node < free_.size(); ++node) {
            const bool is_better = found < 0 || free_[node] < free_[static_cast<std::size_t>(found)];
            if (free_[node] >= gpus && is_better) found = static_cast<std::int32_t>(node);
        }
        return found;
    }

    bool place(std::int32_t gpus, Nodes& found) const {
        found.clear();
        return consolidated(gpus, found) || (relaxed_ && spread(gpus, found));
    }

private:
    bool consolidated(std::int32_t gpus, Nodes& found) const {
        if (gpus <= size_) {
            const std::int32_t node = best_fit(gpus);
            if (node >= 0) found.add({node, gpus});
            return node >= 0;
        }
        const std::int32_t whole = gpus / size_, rest = gpus % size_;
        if (nodes_with_[static_cast<std::size_t>(size_)] < whole) return false;
        Nodes chosen;
        std::vector<bool> taken(free_.size(), false);
        for (std::size_t node = 0; node < free_.size() && chosen.size() < whole; ++node) {
            if (free_[node] != size_) continue;
            taken[node] = true;
            chosen.add({static_cast<std::int32_t>(node), size_});
        }
        if (rest > 0) {
            std::int32_t best = -1;
            for (std::size_t node = 0; node < free_.size(); ++node) {
                const bool is_better = best < 0 || free_[node] < free_[static_cast<std::size_t>(best)];
                if (!taken[node] && free_[node] >= rest && is_better) best = static_cast<std::int32_t>(node);
            }
            if (best < 0) return false;
            chosen.add({best, rest});
        }
        found = std::move(chosen);
        return true;
    }

    bool spread(std::int32_t gpus, Nodes& found) const {
        if (all_ < gpus) return false;
        std::vector<std::int32_t> order(free_.size());
        for (std::size_t node = 0; node < order.size(); ++node) order[node] = static_cast<std::int32_t>(node);
        const auto has = [this](std::int32_t node) { return free_[static_cast<std::size_t>(node)]; };
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t one, std::int32_t other) { return has(one) > has(other); });
        Nodes chosen;
        for (const std::int32_t node : order) {
            const std::int32_t part = std::min(has(node), gpus);
            if (part <= 0) return false;
            chosen.add({node, part});
            gpus -= part;
            if (gpus == 0) break;
        }
        if (gpus > 0) return false;
        found = std::move(chosen);
        return true;
    }

    std::vector<std::int32_t> free_;
    std::vector<std::int32_t> nodes_with_;  // by free GPUs
    std::int32_t size_;
    bool relaxed_;
    std::int64_t all_ = 0;
};

struct Key {
    Standing rank;
    std::int64_t key;
    JobId id;
    friend auto operator<=>(const Key& one, const Key& two) = default;
};

struct Entry {
    Key key;
    Unit unit;
};

// One pass: who starts, who gives way, and what everybody has afterwards.
class Pass {
public:
    Pass(const View& view, const SensaRules& rules, TraitsBook& traits)
        : view_(view),
          rules_(rules),
          now_ms_(view.now_ms),
          free_(view.free_gpus, view.vc.gpus_per_node, view.relaxed),
          shelf_(traits, view.vc, rules) {
        all_.reserve(view.pending.size() + view.running.size());
        for (const Job* const job : view.running) running_.push_back(enter(*job));
        for (const Rated* const job : running_) was_.push_back(job->share);
        if (!free_.has_any() && !rules.rescues && !rules.admits) return;
        for (const Job* const job : view.pending) waiting_.push_back(enter(*job));
    }

    Verdict run() {
        const std::vector<Rated*> before = running_;
        if (rules_.admits) admit();
        for (std::int32_t round = 0; round < ROUNDS; ++round) {
            const bool has_started = walk();
            const bool has_changed = adjust();
            if (!has_started && !has_changed) break;
        }
        tell(before);
        return std::move(verdict_);
    }

private:
    Rated* enter(const Job& job) {
        all_.push_back(rate(job, view_, rules_, shelf_));
        return &all_.back();
    }

    // ---- what is decided -------------------------------------------------------------------------------

    Allotment told(const Rated& job) const {
        if (!job.on_one_node || is_same(job.share, job.part)) return {};
        return job.share;
    }

    void tell(const std::vector<Rated*>& before) {
        for (std::size_t place = 0; place < before.size(); ++place) {
            const Rated& job = *before[place];
            if (job.nodes.empty() || job.is_new || is_same(job.share, was_[place])) continue;
            verdict_.resizes.push_back({job.id(), told(job)});
        }
        for (Rated* const job : started_) {
            const Allotment share = told(*job);
            if (share.is_told()) verdict_.shares.push_back({job->id(), share});
            verdict_.places.emplace_back(job->id(), job->nodes);
        }
        verdict_.is_empty =
            verdict_.lost.empty() && verdict_.places.empty() && verdict_.resizes.empty() && verdict_.notes.empty();
    }

    // ---- promises --------------------------------------------------------------------------------------

    Outlook outlook() {
        releases_.clear();
        for (const Rated* const job : running_) {
            releases_.emplace_back(now_ms_ + std::max<Ms>(1, job->left_at_ms(job->speed_now_ppm)), job->gpus());
        }
        return {now_ms_, free_.all(), releases_};
    }

    void admit() {
        std::vector<Rated*> fresh, promised;
        for (Rated* const job : waiting_) {
            if (job->is_promised) promised.push_back(job);
            if (job->rank == Standing::deadline && view_.care(*job->job).note.empty()) fresh.push_back(job);
        }
        if (fresh.empty()) return;
        std::sort(promised.begin(), promised.end(), [](const Rated* one, const Rated* other) { return one->id() < other->id(); });
        Outlook plan = outlook();
        for (const Rated* const job : promised) plan.take(plan.earliest_ms(job->gpus(), job->left_ms), job->left_ms, job->gpus());
        for (Rated* const job : fresh) {
            const Ms start_ms = plan.earliest_ms(job->gpus(), job->left_ms);
            const std::vector<Ms>& deadlines_ms = view_.service(*job->job).deadlines_ms;
            const Ms kept_ms = start_ms + job->left_ms + rules_.guard_ms;
            const auto found = std::lower_bound(deadlines_ms.begin(), deadlines_ms.end(), kept_ms);
            job->is_promised = found != deadlines_ms.end();
            if (job->is_promised) plan.take(start_ms, job->left_ms, job->gpus());
            verdict_.notes.push_back({job->id(), job->is_promised ? *found : std::int64_t{NONE},
                                      {job->is_promised ? ADMITTED : REFUSED}});
        }
    }

    // ---- shares ----------------------------------------------------------------------------------------

    // Split the nodes on which something happened; return whether a share has changed.
    bool adjust() {
        const bool has_changes = std::any_of(running_.begin(), running_.end(), [](const Rated* job) {
            return job->on_one_node && !is_same(job->share, job->part);
        });
        if (rules_.scope == SensaRules::Scope::off && !rules_.lends && !rules_.pools && !has_changes) return false;
        const auto nodes = static_cast<std::size_t>(view_.vc.nodes);
        room_.assign(nodes, {view_.vc.cores_per_node, view_.vc.memory_mib_per_node});
        stirs_.assign(nodes, 0);
        for (const Rated* const job : running_) {
            if (!job->on_one_node) {
                for (const trimtab::Share share : job->nodes) {
                    Allotment& room = room_[static_cast<std::size_t>(share.node)];
                    const Allotment part = view_.vc.proportional(share.gpus);
                    room = {room.cores - part.cores, room.memory_mib - part.memory_mib};
                    if (stirs(*job)) stirs_[static_cast<std::size_t>(share.node)] = 1;
                }
                continue;
            }
            const auto node = static_cast<std::size_t>(job->node());
            if (stirs_[node] == 0 && (free_.free()[node] != 0 || stirs(*job))) stirs_[node] = 1;
        }
        here_.resize(nodes);
        for (auto& jobs : here_) jobs.clear();
        for (Rated* const job : running_) {
            if (job->on_one_node && stirs_[static_cast<std::size_t>(job->node())] != 0) {
                here_[static_cast<std::size_t>(job->node())].push_back(job);
            }
        }
        bool has_changed = false;
        for (std::size_t node = 0; node < nodes; ++node) {
            if (here_[node].empty()) continue;
            const std::vector<Allotment> shares = split_node(here_[node], room_[node], rules_, now_ms_);
            for (std::size_t place = 0; place < shares.size(); ++place) {
                Rated& job = *here_[node][place];
                if (is_same(shares[place], job.share)) continue;
                has_changed = true;
                job.share = shares[place];
                if (!job.is_new) job.resized_ms = now_ms_;
                job.speed_now_ppm = job.speed_ppm(job.share);
            }
        }
        return has_changed;
    }

    // Whether a job is a reason to look at its node: it is new there, or at risk.
    bool stirs(const Rated& job) const {
        if (job.is_new || job.job->started_ms == now_ms_) return true;
        if (job.deadline_ms == NONE || !rules_.lends || !job.on_one_node) return false;
        return job.deadline_ms - now_ms_ - job.left_at_ms(job.speed_now_ppm) < job.guard_ms(rules_);
    }

    // ---- order -----------------------------------------------------------------------------------------

    // Those who must start soon go first (beside promises only who has one), all others with hope by time left.
    Key key_by_time_left(const Rated& job) const {
        const bool has_claim = job.deadline_ms != NONE && (job.is_promised || !rules_.admits);
        if (has_claim && job.latest_ms() <= now_ms_ + rules_.urgent_ms) {
            return {Standing::deadline, job.latest_ms(), job.id()};
        }
        return {std::max(job.rank, Standing::best_effort), job.left_ms, job.id()};
    }

    Key key_of(const Rated& job) const {
        if (rules_.order == SensaRules::Order::fifo) return {Standing::deadline, job.id(), job.id()};
        if (rules_.order == SensaRules::Order::srtf) return key_by_time_left(job);
        if (job.deadline_ms != NONE) {
            if (rules_.order == SensaRules::Order::edf) return {job.rank, job.deadline_ms, job.id()};
            const bool is_best = rules_.reference == SensaRules::Reference::best;
            return {job.rank, job.deadline_ms - (is_best ? job.left_at_ms(job.best_ppm()) : job.left_ms), job.id()};
        }
        switch (rules_.be_order) {
            case SensaRules::BestEffort::srsf: return {job.rank, job.gpus() * job.left_ms, job.id()};
            case SensaRules::BestEffort::las: return {job.rank, job.gpus() * job.job->held_ms, job.id()};
            default: return {job.rank, job.id(), job.id()};
        }
    }

    // Units in no order yet, unless making them needs one.
    void line_up() {
        queue_.clear();
        if (!rules_.is_explicit) {
            for (Rated* const job : waiting_) queue_.push_back({key_of(*job), {job, nullptr}});
        } else {
            std::vector<std::pair<Key, Rated*>> jobs;
            for (Rated* const job : waiting_) jobs.emplace_back(key_of(*job), job);
            std::sort(jobs.begin(), jobs.end());
            std::vector<Rated*> ordered;
            for (const auto& one : jobs) ordered.push_back(one.second);
            for (const Unit& unit : make_units(ordered, rules_, now_ms_)) {
                Key key = key_of(*unit.first);
                if (unit.second != nullptr) key = std::min(key, key_of(*unit.second));
                queue_.push_back({key, unit});
            }
        }
        if (rules_.reference != SensaRules::Reference::unit) return;
        for (Entry& entry : queue_) {
            const Ms latest_ms = entry.unit.latest_ms(entry.unit.lefts_ms());
            if (latest_ms != NONE) entry.key.key = latest_ms;
        }
    }

    static bool is_later(const Entry& one, const Entry& other) { return one.key > other.key; }

    // ---- the walk --------------------------------------------------------------------------------------

    // Start what may start; return whether something has.
    bool walk() {
        has_started_ = false;
        if (!free_.has_any() && !rules_.rescues) return false;
        backfill_ = Backfiller(rules_.backfill, rules_.reserve_ppm);
        blocked_ = 0;
        look_for_victims_anew();
        net_.assign(static_cast<std::size_t>(view_.vc.nodes) * CATEGORIES, 0);
        for (const Rated* const job : running_) count(*job, 1);
        line_up();
        if (rules_.admits && rules_.order != SensaRules::Order::srtf) reserve();
        std::make_heap(queue_.begin(), queue_.end(), is_later);
        bool waits_before = false;
        for (auto end = queue_.end(); end != queue_.begin(); --end) {
            if (!rules_.rescues && !free_.has_any()) break;
            std::pop_heap(queue_.begin(), end, is_later);
            const Entry entry = *(end - 1);
            if (entry.key.rank == Standing::hopeless && rules_.drops && waits_before) break;
            if (!visit(entry)) waits_before = true;
        }
        std::erase_if(waiting_, [](const Rated* job) { return !job->nodes.empty(); });
        return has_started_;
    }

    // Keep room for those who wait with a promise, in the order in which promises were made.
    void reserve() {
        std::vector<const Entry*> promised;
        for (const Entry& entry : queue_) {
            if (is_promised(entry.unit)) promised.push_back(&entry);
        }
        std::sort(promised.begin(), promised.end(), [](const Entry* one, const Entry* other) { return one->key < other->key; });
        if (promised.size() > RESERVED) promised.resize(RESERVED);
        std::sort(promised.begin(), promised.end(),
                  [](const Entry* one, const Entry* other) { return one->unit.first->id() < other->unit.first->id(); });
        for (const Entry* const entry : promised) backfill_.block(blocked(entry->unit));
    }

    static bool is_promised(const Unit& unit) {
        return unit.first->is_promised || (unit.second != nullptr && unit.second->is_promised);
    }

    Blocked blocked(const Unit& unit) const {
        const std::pair<Ms, Ms> lefts_ms = unit.lefts_ms();
        const Ms length_ms = std::max({std::int64_t{1}, lefts_ms.first, lefts_ms.second});
        return {unit.gpus(), length_ms, unit.latest_ms(lefts_ms), unit.first->id(), rules_.admits && is_promised(unit)};
    }

    // Start a unit, or let it wait; return whether all of it has started.
    bool visit(const Entry& entry) {
        const Unit& unit = entry.unit;
        const Blocked waiting = blocked(unit);
        if (find_places(unit, entry.key.rank)) {
            if (is_urgent(entry.key) || is_safe(waiting)) {
                backfill_.unblock(unit.first->id());
                const bool is_whole = found_.size() == (unit.second == nullptr ? 1U : 2U);
                start(unit, is_whole);
                return is_whole;
            }
        } else if (rules_.rescues && (displace(*unit.first) || (unit.second != nullptr && displace(*unit.second)))) {
            backfill_.unblock(unit.first->id());
            return unit.second == nullptr;
        }
        block(entry, waiting);
        return false;
    }

    bool is_safe(const Blocked& unit) {
        if (!backfill_.has_outlook() && !backfill_.is_plain(unit)) backfill_.look(outlook());
        return backfill_.is_safe(now_ms_, unit);
    }

    // Whether a unit starts whoever else waits; by latest start nobody does beside promises.
    bool is_urgent(const Key& key) const {
        if (key.rank != Standing::deadline || rules_.order == SensaRules::Order::srtf) return key.rank == Standing::deadline;
        const bool knows_urgent = rules_.order == SensaRules::Order::lst && !rules_.admits;
        return knows_urgent && key.key <= now_ms_ + rules_.urgent_ms;
    }

    void block(const Entry& entry, const Blocked& unit) {
        const bool waits = rules_.order == SensaRules::Order::fifo || entry.key.rank == Standing::deadline;
        if (!waits || unit.is_promised || blocked_ >= rules_.depth) return;
        ++blocked_;
        backfill_.block(unit);
    }

    void start(const Unit& unit, bool is_whole) {
        const auto shares = unit.shares();
        for (auto& [job, nodes] : found_) {
            job->nodes = std::move(nodes);
            job->is_new = true;
            job->on_one_node = job->on_one_node && job->nodes.size() == 1;
            job->share = !is_whole ? job->part : job == unit.first ? shares.first : shares.second;
            job->speed_now_ppm = job->speed_ppm(job->share);
            free_.add(job->nodes, -1);
            started_.push_back(job);
            running_.push_back(job);
            count(*job, 1);
            backfill_.start(now_ms_, job->left_at_ms(job->speed_now_ppm), job->gpus());
        }
        has_started_ = true;
    }

    // ---- places ----------------------------------------------------------------------------------------

    // Count what a running job can spare, or needs, on its node.
    void count(const Rated& job, std::int32_t times) {
        if (!job.on_one_node || job.traits->label == Label::neutral) return;
        const std::int32_t cores = job.traits->label == Label::sensitive ? -job.need().cores : job.spare().cores;
        net_[place_of(job.node(), job)] += times * cores;
    }

    std::size_t place_of(std::int32_t node, const Rated& job) const {
        return static_cast<std::size_t>(node * CATEGORIES + category(job, rules_.scope));
    }

    // Find where the jobs of a unit would start; of a pair that fits nowhere, who must not wait.
    bool find_places(const Unit& unit, Standing rank) {
        found_.clear();
        if (unit.second != nullptr) {
            const std::int32_t node = free_.best_fit(unit.gpus());
            if (node >= 0) {
                for (Rated* const job : {unit.first, unit.second}) {
                    found_.emplace_back(job, Nodes{}).second.add({node, job->gpus()});
                }
                return true;
            }
        }
        for (Rated* const job : {unit.first, unit.second}) {
            if (job == nullptr || (unit.second != nullptr && rank == Standing::deadline && !must_start(*job))) continue;
            Nodes nodes;
            if (!place(*job, nodes)) continue;
            found_.emplace_back(job, std::move(nodes));
            return true;
        }
        return false;
    }

    bool must_start(const Rated& job) const {
        return job.deadline_ms != NONE && now_ms_ >= job.latest_ms() - job.guard_ms(rules_);
    }

    // The node where it is worth most beside who runs there, best fit among equals.
    bool place(const Rated& job, Nodes& nodes) const {
        if (rules_.scope == SensaRules::Scope::off || !job.on_one_node || job.traits->label == Label::neutral) {
            return free_.place(job.gpus(), nodes);
        }
        if (!free_.has_node(job.gpus())) return free_.place(job.gpus(), nodes);
        const bool is_sensitive = job.traits->label == Label::sensitive;
        const std::int32_t sign = is_sensitive ? 1 : -1;
        const std::int32_t cores = is_sensitive ? job.need().cores : job.spare().cores;
        std::tuple<std::int32_t, std::int32_t, std::int32_t> best{0, 0, -1};
        for (std::int32_t node = 0; node < view_.vc.nodes; ++node) {
            const std::int32_t free = free_.free()[static_cast<std::size_t>(node)];
            if (free < job.gpus()) continue;
            const std::tuple option{-std::min(cores, std::max(0, sign * net_[place_of(node, job)])), free, node};
            if (std::get<2>(best) < 0 || option < best) best = option;
        }
        nodes.clear();
        nodes.add({std::get<2>(best), job.gpus()});
        return true;
    }

    // ---- who gives way ---------------------------------------------------------------------------------

    // Start a job that fits nowhere in the place of others, if some may give way; see `policies/giving_way.py`.
    bool displace(Rated& job) {
        const bool is_late = job.deadline_ms != NONE && job.latest_ms() <= now_ms_ + rules_.tick_ms;
        if (!rules_.displaces && (!is_late || job.gpus() > view_.vc.gpus_per_node)) return false;
        if (job.rank == Standing::hopeless) return false;
        std::vector<std::pair<std::int32_t, Ms>>& refused = refused_[is_late ? 1U : 0U];
        for (const auto& [gpus, shortest_ms] : refused) {
            if (gpus <= job.gpus() && shortest_ms <= job.left_ms) return false;
        }
        find_victims();
        Nodes nodes;
        std::vector<Rated*> victims;
        if (!find_nodes(job, is_late, nodes, victims)) {
            refused.emplace_back(job.gpus(), job.left_ms);
            return false;
        }
        for (Rated* const victim : victims) evict(*victim);
        backfill_.look_anew();
        look_for_victims_anew();
        found_.clear();
        found_.emplace_back(&job, std::move(nodes));
        start({&job, nullptr}, true);
        return true;
    }

    void look_for_victims_anew() {
        has_victims_ = false;
        for (auto& refused : refused_) refused.clear();
    }

    // GPUs taken from others, the work these have left (negative), the node.
    using Offer = std::tuple<std::int64_t, std::int64_t, std::int32_t>;

    // The cheapest nodes: whole ones for a gang wider than a node, and one for the rest.
    bool find_nodes(const Rated& job, bool is_late, Nodes& nodes, std::vector<Rated*>& victims) {
        const std::int32_t size = view_.vc.gpus_per_node, gpus = job.gpus();
        const std::int32_t whole = gpus > size ? gpus / size : 0, rest = gpus > size ? gpus % size : gpus;
        if (whole > 0) {
            offer(job, is_late, size, nodes);
            if (static_cast<std::int32_t>(offers_.size()) < whole) return false;
            std::sort(offers_.begin(), offers_.end());
            std::vector<std::int32_t> chosen;
            for (auto one = offers_.begin(); one != offers_.begin() + whole; ++one) {
                chosen.push_back(std::get<2>(*one));
                ask(job, is_late, chosen.back(), size);
                victims.insert(victims.end(), giving_.begin(), giving_.end());
            }
            std::sort(chosen.begin(), chosen.end());
            for (const std::int32_t node : chosen) nodes.add({node, size});
        }
        if (rest == 0) return true;
        offer(job, is_late, rest, nodes);
        if (offers_.empty()) return false;
        const std::int32_t last = std::get<2>(*std::min_element(offers_.begin(), offers_.end()));
        ask(job, is_late, last, rest);
        victims.insert(victims.end(), giving_.begin(), giving_.end());
        nodes.add({last, rest});
        return true;
    }

    void offer(const Rated& job, bool is_late, std::int32_t gpus, const Nodes& taken) {
        offers_.clear();
        for (std::int32_t node = 0; node < view_.vc.nodes; ++node) {
            const bool is_taken = std::any_of(taken.begin(), taken.end(), [node](const trimtab::Share& one) { return one.node == node; });
            if (is_taken || !ask(job, is_late, node, gpus)) continue;
            std::int64_t lost = 0, work = 0;
            for (const Rated* const one : giving_) {
                lost += one->gpus();
                work += one->gpus() * one->left_ms;
            }
            offers_.emplace_back(lost, rules_.displaces ? -work : 0, node);
        }
    }

    // Find who on a node gives way so that it has so many GPUs; false if they are too few.
    bool ask(const Rated& job, bool is_late, std::int32_t node, std::int32_t gpus) {
        const std::int32_t free = free_.free()[static_cast<std::size_t>(node)];
        able_.clear();
        if (free < gpus) {
            for (Rated* const one : victims_[static_cast<std::size_t>(node)]) {
                if (gives_way(*one, job, is_late)) able_.push_back(one);
            }
        }
        return fewest(able_, gpus - free);
    }

    // Who may lose GPUs on each node, who goes first in front.
    void find_victims() {
        if (has_victims_) return;
        has_victims_ = true;
        victims_.resize(static_cast<std::size_t>(view_.vc.nodes));
        for (auto& able : victims_) able.clear();
        for (Rated* const job : running_) {
            if (may_lose(*job)) victims_[static_cast<std::size_t>(job->node())].push_back(job);
        }
        const auto turn = [this](const Rated* job) {
            return std::tuple{job->rank, rules_.displaces ? job->left_ms : std::int64_t{job->job->started_ms}, job->id()};
        };
        for (auto& able : victims_) {
            std::sort(able.begin(), able.end(), [&turn](const Rated* one, const Rated* other) { return turn(one) > turn(other); });
        }
    }

    bool may_lose(const Rated& job) const {
        const bool has_light_claim = job.rank >= Standing::best_effort && view_.care(*job.job).promise_ms == NONE;
        return (has_light_claim || rules_.displaces) && job.on_one_node && !job.is_new &&
               job.job->started_ms != now_ms_ && job.evictions < rules_.max_evictions;
    }

    bool gives_way(const Rated& victim, const Rated& job, bool is_late) const {
        if (!rules_.displaces) return true;
        const bool outlasts = part_of(job.left_ms, rules_.outlast_ppm) <= victim.left_ms;
        if (victim.rank >= Standing::best_effort) {
            return outlasts || (is_late && view_.care(*victim.job).promise_ms == NONE);
        }
        return (is_late || outlasts) && can_wait(victim, job.left_ms);
    }

    // Whether a job that waits for so long still keeps its guard, and is not pressed at once.
    bool can_wait(const Rated& victim, Ms time_ms) const {
        return victim.latest_ms() - victim.guard_ms(rules_) >= now_ms_ + std::max(time_ms, rules_.urgent_ms);
    }

    // Who gives way so that so many GPUs come free, nobody without need; false if they are too few.
    bool fewest(const std::vector<Rated*>& able, std::int32_t gpus) {
        giving_.clear();
        for (Rated* const job : able) {
            if (gpus <= 0) break;
            giving_.push_back(job);
            gpus -= job->gpus();
        }
        if (gpus > 0) return false;
        std::vector<Rated*> widest = giving_;
        std::sort(widest.begin(), widest.end(), [](const Rated* one, const Rated* other) {
            return std::pair{-one->gpus(), one->id()} < std::pair{-other->gpus(), other->id()};
        });
        for (Rated* const job : widest) {
            if (job->gpus() > -gpus) continue;
            std::erase(giving_, job);
            gpus += job->gpus();
        }
        return true;
    }

    void evict(Rated& job) {
        count(job, -1);
        free_.add(job.nodes, 1);
        std::erase(running_, &job);
        waiting_.push_back(&job);
        verdict_.lost.push_back(job.id());
        job.nodes.clear();
        job.share = job.part;
        job.speed_now_ppm = FULL_SPEED_PPM;
        job.measured_ppm = -1;
        ++job.evictions;
    }

    const View& view_;
    const SensaRules& rules_;
    const Ms now_ms_;
    FreeNodes free_;
    TraitsShelf shelf_;
    std::vector<Rated> all_;
    std::vector<Rated*> waiting_, running_, started_;
    std::vector<Allotment> was_;  // by place among those that ran
    Verdict verdict_;

    std::vector<std::pair<Ms, std::int32_t>> releases_;
    std::vector<Allotment> room_;                // by node
    std::vector<std::uint8_t> stirs_;            // by node
    std::vector<std::vector<Rated*>> here_;      // by node
    std::vector<std::int32_t> net_;              // by node and category: cores to spare less cores needed
    std::vector<Entry> queue_;
    std::vector<std::pair<Rated*, Nodes>> found_;
    Backfiller backfill_{SensaRules::Backfill::lst, 0};
    std::int32_t blocked_ = 0;
    bool has_started_ = false;
    bool has_victims_ = false;
    std::array<std::vector<std::pair<std::int32_t, Ms>>, 2> refused_;  // GPUs, time left: nobody gives way to these
    std::vector<Offer> offers_;
    std::vector<Rated*> able_;
    std::vector<std::vector<Rated*>> victims_;   // by node
    std::vector<Rated*> giving_;
};

}  // namespace

Verdict SensaScale::decide(const View& view) const { return Pass(view, rules_, traits_).run(); }

Ms SensaScale::next_review_ms(const View& view) const {
    const bool is_watched =
        rules_.lends && std::any_of(view.running.begin(), view.running.end(), [&](const Job* job) {
            return !view.service(*job).deadlines_ms.empty();
        });
    return !view.pending.empty() || is_watched ? view.now_ms + rules_.tick_ms : std::int64_t{NONE};
}

}  // namespace trimtab
