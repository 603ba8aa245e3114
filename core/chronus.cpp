#include "chronus.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "index.hpp"
#include "lease_plan.hpp"
#include "themis.hpp"

namespace trimtab {

namespace {

constexpr Ms RESUME_MS = 30'000;
constexpr std::int64_t LOG_ONE = std::int64_t{1} << 40;

// A job's status, the first number of its note.
enum Status : std::int64_t { NEW = -1, ACCEPTED, REFUSED, BEST_EFFORT };

// Before the leases in a note: status, length of a lease, earliest deadline.
constexpr std::size_t HEAD = 3;

Ms resume_ms(std::int32_t gpus) {
    const Wide cost = static_cast<Wide>(RESUME_MS) * (LOG_ONE + log2_units(gpus, 1));
    return static_cast<Ms>((cost + LOG_ONE - 1) / LOG_ONE);
}

// Whether nothing is known of a job, or its leases are of another length.
bool is_stale(const Care& care, const ChronusRules& rules) { return care.note.empty() || care.note[1] != rules.lease_ms; }

// A job in one pass: what its note says, what it still needs, and by when.
class Entry {
public:
    Entry(const Job& of, const View& view, const ChronusRules& rules)
        : job(&of), service(&view.service(of)), care(&view.care(of)), gpus(rules.gpus(of, view.vc.gpus())),
          promise_ms(care->promise_ms), left_ms_(ceil_div(of.remaining(view.now_ms), FULL_SPEED_PPM)), now_ms_(view.now_ms) {
        if (!care->note.empty()) {
            status = care->note[0];
            earliest_ms = care->note[2];
            if (is_stale(*care, rules)) replan({});
        }
        const auto [from, to] = options();
        if (from < to) deadline_ms = service->deadlines_ms[to - 1];
    }

    const Job* job;
    const Service* service;
    const Care* care;
    std::int64_t status = NEW;
    Ms earliest_ms = 0;
    std::int32_t gpus;
    Ms promise_ms;
    Ms deadline_ms = NONE;
    bool is_promoted = false;  // ends in this lease
    bool holds = false;        // keeps or gets GPUs

    Ms left_ms() const { return left_ms_; }
    bool is_open() const { return deadline_ms != NONE; }
    bool runs() const { return job->state == State::running; }

    // The deadlines it can still meet, up to the promised one if it can: the first, and the one after the last.
    std::pair<std::size_t, std::size_t> options() const {
        const std::vector<Ms>& all = service->deadlines_ms;
        const auto from = std::lower_bound(all.begin(), all.end(), now_ms_ + left_ms_);
        auto to = all.end();
        if (promise_ms != NONE) {
            to = std::upper_bound(from, all.end(), promise_ms);
            if (to == from && from != all.end()) ++to;
        }
        return {from - all.begin(), to - all.begin()};
    }

    Request request(std::int64_t first, const ChronusRules& rules) const {
        auto [from, to] = options();
        if (from == to) from = (to = service->deadlines_ms.size()) - 1;
        Request request{job->id, gpus, rules.leases(left_ms_, job->member_gpus), {}};
        for (; from < to; ++from) {
            const std::int64_t window = floor_div(service->deadlines_ms[from], rules.lease_ms) - first;
            request.windows.push_back(std::max<std::int64_t>(1, window));
        }
        return request;
    }

    std::span<const std::int64_t> plan() const {
        if (is_replanned_) return plan_;
        return care->note.empty() ? std::span<const std::int64_t>() : std::span(care->note).subspan(HEAD);
    }
    void replan(Leases leases) {
        plan_ = std::move(leases);
        is_replanned_ = true;
    }
    bool has(std::int64_t lease) const {
        const std::span<const std::int64_t> leases = plan();
        return std::binary_search(leases.begin(), leases.end(), lease);
    }

    // What is to be written down about it, if it is not there already.
    void note(const ChronusRules& rules, std::vector<Verdict::Note>& notes) const {
        const std::int64_t head[HEAD] = {status, rules.lease_ms, earliest_ms};
        const std::vector<std::int64_t>& before = care->note;
        const std::span<const std::int64_t> leases = plan();
        if (before.size() == HEAD + leases.size() && std::equal(head, head + HEAD, before.begin()) &&
            std::equal(leases.begin(), leases.end(), before.begin() + HEAD)) {
            return;
        }
        std::vector<std::int64_t> now(head, head + HEAD);
        now.insert(now.end(), leases.begin(), leases.end());
        notes.push_back({job->id, promise_ms, std::move(now)});
    }

private:
    Ms left_ms_;
    Ms now_ms_;
    Leases plan_;
    bool is_replanned_ = false;
};

using Entries = std::vector<Entry*>;

// All jobs of one virtual cluster in one pass.
class Board {
public:
    Board(const View& view, const ChronusRules& rules)
        : view_(view), rules_(rules), gpus_(view.vc.gpus()), lease_(floor_div(view.now_ms, rules.lease_ms)),
          first_(ceil_div(view.now_ms, rules.lease_ms)) {
        entries_.reserve(view.pending.size() + view.running.size());
        for (const Job* job : view.pending) entries_.emplace_back(*job, view, rules);
        for (const Job* job : view.running) entries_.emplace_back(*job, view, rules);
    }

    void admit();
    void plan();
    void run(bool anew, Verdict& verdict);
    void note(std::vector<Verdict::Note>& notes) const {
        for (const Entry& entry : entries_) entry.note(rules_, notes);
    }

private:
    using Key = std::tuple<std::int64_t, std::int64_t, Ms, JobId>;

    void admit(Entry& entry, const Request& request, Capacity& capacity) const;
    bool maximizes() const;
    Entries promoted(std::int32_t spot);
    Key order_of(const Entry& entry) const;
    void sort(Entries& entries) const;
    void walk(const Entries& ordered, Verdict& verdict) const;
    Layer layer(const std::vector<std::int32_t>& free_gpus) const;

    const View& view_;
    const ChronusRules& rules_;
    std::int32_t gpus_;
    std::int64_t lease_;
    std::int64_t first_;  // the first lease that is still whole
    std::vector<Entry> entries_;
};

// ---- admission ---------------------------------------------------------------------------------------

// Accept or refuse the newcomers, and plan anew who has leases of another length.
void Board::admit() {
    std::vector<std::pair<Request, Entry*>> unplanned;
    for (Entry& entry : entries_) {
        if (entry.status == NEW && entry.service->deadlines_ms.empty()) entry.status = BEST_EFFORT;
        const bool is_short = entry.status == ACCEPTED && entry.is_open() && is_stale(*entry.care, rules_);
        if (entry.status == NEW || is_short) unplanned.emplace_back(entry.request(first_, rules_), &entry);
    }
    if (unplanned.empty()) return;
    Capacity capacity(gpus_);
    for (const Entry& entry : entries_) {
        for (const std::int64_t lease : entry.plan()) {
            if (lease >= first_) capacity.take(entry.gpus, lease - first_);
        }
    }
    std::sort(unplanned.begin(), unplanned.end());
    for (const auto& [request, entry] : unplanned) admit(*entry, request, capacity);
}

// Promise the first deadline before which there is room, and plan for it as late as possible.
void Board::admit(Entry& entry, const Request& request, Capacity& capacity) const {
    if (entry.status == NEW) {
        entry.earliest_ms = (first_ + capacity.smallest_window(request.gpus, request.leases)) * rules_.lease_ms;
        const auto [from, to] = entry.options();
        const Ms* const end = entry.service->deadlines_ms.data() + to;
        const Ms* const kept = std::lower_bound(entry.service->deadlines_ms.data() + from, end, entry.earliest_ms);
        entry.status = kept == end ? REFUSED : ACCEPTED;
        if (kept == end) return;
        entry.promise_ms = entry.deadline_ms = *kept;
    }
    Leases found = capacity.latest(request.gpus, request.leases, floor_div(entry.deadline_ms, rules_.lease_ms) - first_);
    capacity.take(request.gpus, found);
    for (std::int64_t& lease : found) lease += first_;
    entry.replan(std::move(found));
}

// ---- the plan of a lease -----------------------------------------------------------------------------

// Plan the leases of all accepted jobs anew, from the one that begins now.
void Board::plan() {
    std::vector<Request> requests;
    std::vector<Leases> kept;
    Entries planned;
    for (Entry& entry : entries_) {
        if (entry.status != ACCEPTED || !entry.is_open()) {
            if (!entry.plan().empty()) entry.replan({});
            continue;
        }
        Request request = entry.request(lease_, rules_);
        request.leases = std::min(request.leases, request.window());
        Leases& last = kept.emplace_back();
        for (const std::int64_t lease : entry.plan()) {
            if (lease >= lease_) last.push_back(lease - lease_);
        }
        requests.push_back(std::move(request));
        planned.push_back(&entry);
    }
    std::vector<Leases> plans = plan_greedily(requests, kept, gpus_, maximizes());
    for (std::size_t place = 0; place < planned.size(); ++place) {
        for (std::int64_t& lease : plans[place]) lease += lease_;
        planned[place]->replan(std::move(plans[place]));
    }
}

bool Board::maximizes() const {
    if (rules_.objective != ChronusRules::Objective::adaptive) return rules_.objective == ChronusRules::Objective::maximize;
    return std::none_of(entries_.begin(), entries_.end(),
                        [](const Entry& entry) { return entry.status == REFUSED && entry.is_open(); });
}

// ---- who runs ----------------------------------------------------------------------------------------

// Give the GPUs away: to those who have this lease, then to those who end in it, then to others.
void Board::run(bool anew, Verdict& verdict) {
    Entries chosen, rest;
    std::int32_t spot = gpus_;
    for (Entry& entry : entries_) {
        const bool has = entry.has(lease_);
        if (has) spot -= entry.gpus;
        if (!has) rest.push_back(&entry);
        if (has && (anew || !entry.runs())) chosen.push_back(&entry);
    }
    const Entries ending = promoted(spot);
    const auto is_taken = [](std::int32_t gpus) { return gpus == 0; };
    if (!anew && chosen.empty() && ending.empty() && std::all_of(view_.free_gpus.begin(), view_.free_gpus.end(), is_taken)) {
        return;  // nobody may evict anybody
    }
    std::erase_if(rest, [](const Entry* entry) { return entry->is_promoted; });
    sort(rest);
    if (!anew) std::stable_partition(rest.begin(), rest.end(), [](const Entry* entry) { return entry->runs(); });
    std::sort(chosen.begin(), chosen.end(), [](const Entry* one, const Entry* two) {
        return one->gpus != two->gpus ? one->gpus > two->gpus : one->job->id < two->job->id;
    });
    Entries ordered = std::move(chosen);
    ordered.insert(ordered.end(), ending.begin(), ending.end());
    ordered.insert(ordered.end(), rest.begin(), rest.end());
    walk(ordered, verdict);
    for (Entry* entry : ending) {
        if (entry->holds) entry->replan({lease_});
    }
}

// Refused jobs that end in this lease, as many as fit beside those who have it.
Entries Board::promoted(std::int32_t spot) {
    const Ms end_ms = (lease_ + 1) * rules_.lease_ms;
    Entries able;
    for (Entry& entry : entries_) {
        if (entry.status == REFUSED && entry.is_open() && !entry.has(lease_) && view_.now_ms + entry.left_ms() <= end_ms) {
            able.push_back(&entry);
        }
    }
    sort(able);
    Entries found;
    for (Entry* entry : able) {
        if (entry->gpus > spot) continue;
        spot -= entry->gpus;
        entry->is_promoted = true;
        found.push_back(entry);
    }
    return found;
}

// A job's place among those who fill: refused and best effort, accepted, then the hopeless.
Board::Key Board::order_of(const Entry& entry) const {
    const Job& job = *entry.job;
    std::int64_t rank = 0, weight = rules_.shortest_first ? entry.left_ms() * job.gpus : 0;
    if (entry.status != BEST_EFFORT && !entry.is_open()) {
        rank = 2;
    } else if (entry.status == ACCEPTED) {
        rank = 1;
        weight = (entry.deadline_ms - view_.now_ms - entry.left_ms()) * job.gpus;
    }
    return {rank, weight, view_.submit_ms[static_cast<std::size_t>(job.id)], job.id};
}

void Board::sort(Entries& entries) const {
    std::vector<std::pair<Key, Entry*>> keyed;
    keyed.reserve(entries.size());
    for (Entry* entry : entries) keyed.emplace_back(order_of(*entry), entry);
    std::sort(keyed.begin(), keyed.end());
    for (std::size_t place = 0; place < keyed.size(); ++place) entries[place] = keyed[place].second;
}

Layer Board::layer(const std::vector<std::int32_t>& free_gpus) const {
    const auto nodes = static_cast<std::int32_t>(free_gpus.size());
    const std::int32_t size = nodes == view_.vc.nodes ? view_.vc.gpus_per_node : gpus_;
    Layer layer;
    layer.reset(nodes, size);
    for (std::int32_t node = 0; node < nodes; ++node) {
        layer.add(Share{node, free_gpus[static_cast<std::size_t>(node)] - size}, 1);
    }
    return layer;
}

// See `walk_through`. Wherever a gang did not fit, one of as many GPUs or more does not fit later either.
void Board::walk(const Entries& ordered, Verdict& verdict) const {
    Layer really_free = layer(view_.free_gpus), lifted = really_free;
    for (const Entry* entry : ordered) lifted.add(entry->job->nodes, 1);
    std::int32_t failed = gpus_ + 1;
    for (Entry* entry : ordered) {
        const Job& job = *entry->job;
        if (entry->runs()) {
            const auto is_free = [&](const Share share) { return lifted.spare(share.node) >= share.gpus; };
            if (std::all_of(job.nodes.begin(), job.nodes.end(), is_free)) {
                lifted.add(job.nodes, -1);
                entry->holds = true;
                continue;
            }
            verdict.lost.push_back(job.id);
            really_free.add(job.nodes, 1);
        }
        if (job.gpus >= failed) continue;
        Nodes found;
        const auto finds = [&](const Layer& map) {
            return map.find(job.gpus, found) || (view_.relaxed && map.find_spread(job.gpus, found));
        };
        if (!finds(really_free) && !finds(lifted)) {
            failed = job.gpus;
            continue;
        }
        lifted.add(found, -1);
        really_free.add(found, -1);
        verdict.places.emplace_back(job.id, std::move(found));
        entry->holds = true;
    }
}

}  // namespace

std::int32_t ChronusRules::gpus(const Job& job, std::int32_t cluster_gpus) const {
    std::int32_t width = job.member_gpus;
    if (rounds_up && width <= 8) width = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(width)));
    return std::min(width * (job.gpus / job.member_gpus), cluster_gpus);
}

std::int64_t ChronusRules::leases(Ms left_ms, std::int32_t member_gpus) const {
    const Wide safe = static_cast<Wide>(left_ms) * (FULL_SPEED_PPM + safety_ppm) * (lease_ms + resume_ms(member_gpus));
    const auto planned_ms = static_cast<Ms>(safe / (static_cast<Wide>(FULL_SPEED_PPM) * lease_ms));
    return std::max<std::int64_t>(1, ceil_div(planned_ms, lease_ms));
}

Verdict Chronus::decide(const View& view) const {
    const bool begins = floor_mod(view.now_ms, rules_.lease_ms) == 0;
    const bool fills = begins || rules_.fill_ms == 0 || floor_mod(view.now_ms, rules_.fill_ms) == 0;
    const auto is_known = [&](const Job* job) { return !is_stale(view.care(*job), rules_); };
    Verdict verdict;
    if (!fills && std::all_of(view.pending.begin(), view.pending.end(), is_known) &&
        std::all_of(view.running.begin(), view.running.end(), is_known)) {
        return verdict;
    }
    Board board(view, rules_);
    board.admit();
    if (begins) board.plan();
    if (fills) board.run(begins, verdict);
    board.note(verdict.notes);
    verdict.is_empty = verdict.lost.empty() && verdict.places.empty() && verdict.notes.empty();
    return verdict;
}

Ms Chronus::next_review_ms(const View& view) const {
    if (view.pending.empty() && view.running.empty()) return NONE;
    const auto next = [&](Ms step_ms) { return (floor_div(view.now_ms, step_ms) + 1) * step_ms; };
    const Ms lease_ms = next(rules_.lease_ms);
    return rules_.fill_ms == 0 || view.pending.empty() ? lease_ms : std::min(lease_ms, next(rules_.fill_ms));
}

}  // namespace trimtab
