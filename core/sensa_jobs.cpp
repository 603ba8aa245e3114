#include "sensa_jobs.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>

namespace trimtab {

namespace {

constexpr std::int64_t DRIFT_PPM = 150'000;
constexpr Ms NEAR_MS = 3'600'000;
constexpr std::int64_t LEAST_PPM = 50'000;  // a pair's score must exceed it

}  // namespace

// ---- traits --------------------------------------------------------------------------------------------

namespace {

template <typename Number>
std::vector<Number> steps(const std::vector<Number>& per_gpu, std::int32_t gpus, Number most) {
    std::vector<Number> found;
    for (const Number one : per_gpu) {
        if (gpus * one < most) found.push_back(gpus * one);
    }
    found.push_back(most);
    return found;
}

// The shares at measured points up to `most`, and those at its edges, fewest cores first.
std::vector<Allotment> grid(const Curve& curve, std::int32_t gpus, Allotment most) {
    std::vector<Allotment> found;
    for (const std::int32_t cores : steps(curve.cores, gpus, most.cores)) {
        for (const std::int64_t memory_mib : steps(curve.memory_mib, gpus, most.memory_mib)) {
            if (cores >= 1 && memory_mib >= curve.footprint_mib * gpus) found.push_back({cores, memory_mib});
        }
    }
    return found;
}

Traits traits_of(const Curve* curve, std::int32_t gpus, const VirtualCluster& vc, const SensaRules& rules) {
    const Allotment part = vc.proportional(gpus);
    Traits traits{part, FULL_SPEED_PPM, part, Label::neutral};
    if (curve == nullptr || gpus > vc.gpus_per_node || part.cores < 1) return traits;
    const std::vector<Allotment> all = grid(*curve, gpus, {vc.cores_per_node, vc.memory_mib_per_node});
    if (all.empty()) return traits;
    std::int64_t top_ppm = 0;
    for (const Allotment& share : all) top_ppm = std::max(top_ppm, vc.speed_ppm(*curve, gpus, share));
    const std::int64_t enough_ppm = std::max(FULL_SPEED_PPM, part_of(top_ppm, FULL_SPEED_PPM - rules.eps_ppm));
    for (const Allotment& share : all) {
        const std::int64_t speed_ppm = vc.speed_ppm(*curve, gpus, share);
        if (speed_ppm >= enough_ppm) {
            traits.best = share;
            traits.best_ppm = speed_ppm;
            break;
        }
    }
    for (const Allotment& share : grid(*curve, gpus, part)) {
        if (vc.speed_ppm(*curve, gpus, share) >= FULL_SPEED_PPM - rules.delta_ppm) {
            traits.least = share;
            break;
        }
    }
    const bool is_sensitive = traits.best_ppm - FULL_SPEED_PPM > rules.theta_ppm;
    traits.label = is_sensitive ? Label::sensitive : is_same(traits.least, part) ? Label::neutral : Label::insensitive;
    return traits;
}

}  // namespace

const Traits* TraitsBook::of(const Curve* curve, std::int32_t gpus, const VirtualCluster& vc, const SensaRules& rules) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const Traits>& made =
        known_[{curve, gpus, vc.gpus_per_node, vc.cores_per_node, vc.memory_mib_per_node}];
    if (!made) made = std::make_unique<const Traits>(traits_of(curve, gpus, vc, rules));
    return made.get();
}

const Traits* TraitsShelf::of(const Curve* curve, std::int32_t gpus) {
    const auto hash = reinterpret_cast<std::uintptr_t>(curve) / 16 * 31 + static_cast<std::uintptr_t>(gpus);
    Slot& slot = slots_[hash % slots_.size()];
    if (slot.traits == nullptr || slot.curve != curve || slot.gpus != gpus) slot = {curve, gpus, book_.of(curve, gpus, vc_, rules_)};
    return slot.traits;
}

// ---- one job -------------------------------------------------------------------------------------------

std::int64_t Rated::speed_ppm(const Allotment& with) const {
    if (!on_one_node) return speed_now_ppm;
    if (measured_ppm >= 0 && is_same(measured_share, with)) return measured_ppm;
    return curve == nullptr ? FULL_SPEED_PPM : vc->speed_ppm(*curve, gpus(), with);
}

namespace {

Work work_left(const Job& job, Ms now_ms, const SensaRules& rules) {
    const Work left = job.remaining(now_ms);
    if (left == 0 && job.state == State::running) return part_of(job.done_by(now_ms), rules.overrun_ppm);
    return left + part_of(left, rules.margin_ppm);
}

// Choose the first deadline that can still be met; without one, a job is hopeless.
void aim(Rated& rated, const View& view, const SensaRules& rules) {
    const std::vector<Ms>& deadlines_ms = view.service(*rated.job).deadlines_ms;
    if (deadlines_ms.empty()) return;
    const std::int64_t gain_ppm = std::max<std::int64_t>(0, rated.best_ppm() - FULL_SPEED_PPM);
    const std::int64_t base_ppm = std::min(rated.best_ppm(), FULL_SPEED_PPM);
    const Ms left_ms = rated.left_at_ms(base_ppm + part_of(gain_ppm, rules.credit_ppm));
    const auto can = std::lower_bound(deadlines_ms.begin(), deadlines_ms.end(), view.now_ms + left_ms);
    if (can == deadlines_ms.end() && !rules.keeps) {
        rated.rank = Standing::hopeless;
        return;
    }
    rated.deadline_ms = can == deadlines_ms.end() ? deadlines_ms.back() : *can;
    rated.rank = Standing::deadline;
    rated.is_promised = view.care(*rated.job).promise_ms != NONE;
}

}  // namespace

Rated rate(const Job& job, const View& view, const SensaRules& rules, TraitsShelf& shelf) {
    const VirtualCluster& vc = view.vc;
    const Care& care = view.care(job);
    const bool is_running = job.state == State::running;
    Rated rated;
    rated.job = &job;
    rated.vc = &vc;
    rated.curve = view.curve(job);
    rated.traits = shelf.of(rated.curve, job.gpus);
    rated.work = work_left(job, view.now_ms, rules);
    rated.unpaid_ms = job.unpaid_overhead_ms(view.now_ms);
    rated.part = job.gpus <= vc.gpus_per_node ? vc.proportional(job.gpus) : Allotment{0, 0};
    rated.share = rated.part;
    rated.nodes = job.nodes;
    rated.on_one_node = job.gpus <= vc.gpus_per_node && job.nodes.size() <= 1;
    rated.kind = view.service(job).kind;
    rated.evictions = job.preemptions;
    rated.resized_ms = care.resized_ms;
    rated.left_ms = rated.left_at_ms(FULL_SPEED_PPM);
    if (is_running) {
        rated.speed_now_ppm = job.speed_ppm;
        if (care.share.is_told()) rated.share = care.share;
        if (rated.on_one_node) {
            const std::int64_t believed_ppm = rated.speed_ppm(rated.share);
            const std::int64_t apart_ppm = std::abs(job.speed_ppm - believed_ppm);
            if (apart_ppm * FULL_SPEED_PPM > believed_ppm * DRIFT_PPM) {
                rated.measured_share = rated.share;
                rated.measured_ppm = job.speed_ppm;
            }
        }
    }
    aim(rated, view, rules);
    return rated;
}

// ---- units ---------------------------------------------------------------------------------------------

namespace {

std::pair<Allotment, Allotment> pair_shares(const Rated& sensitive, const Rated& insensitive) {
    const Allotment need = sensitive.need(), spare = insensitive.spare();
    const std::int32_t cores = std::min(need.cores, spare.cores);
    const std::int64_t memory_mib = std::min(need.memory_mib, spare.memory_mib);
    return {{sensitive.part.cores + cores, sensitive.part.memory_mib + memory_mib},
            {insensitive.part.cores - cores, insensitive.traits->least.memory_mib}};
}

std::int64_t apart_ppm(const Rated& one, const Rated& other, Ms now_ms) {
    const Ms ours_ms = one.latest_ms(), its_ms = other.latest_ms();
    if (ours_ms == NONE || its_ms == NONE) return ours_ms == its_ms ? 0 : FULL_SPEED_PPM;
    return ratio_ppm(std::abs(ours_ms - its_ms), std::max(NEAR_MS, std::abs(ours_ms - now_ms)));
}

std::int64_t score_ppm(const Rated& one, const Rated& other, const SensaRules& rules, Ms now_ms) {
    const Allotment need = one.need(), spare = other.spare();
    const std::int64_t cores_ppm = ratio_ppm(std::min(need.cores, spare.cores), std::max(1, one.part.cores));
    const std::int64_t memory_ppm =
        ratio_ppm(std::min(need.memory_mib, spare.memory_mib), std::max<std::int64_t>(1, one.part.memory_mib));
    const Ms ours_ms = one.left_at_ms(one.speed_ppm(pair_shares(one, other).first));
    const Ms its_ms = other.left_ms;
    const std::int64_t unlike_ppm = ratio_ppm(std::abs(ours_ms - its_ms), std::max({std::int64_t{1}, ours_ms, its_ms}));
    return cores_ppm + part_of(memory_ppm, rules.memory_ppm) - part_of(unlike_ppm, rules.time_ppm) -
           part_of(apart_ppm(one, other, now_ms), rules.latest_ppm);
}

using Group = std::vector<Rated*>;
using Pairs = std::vector<Unit>;

bool fit_together(const Rated& one, const Rated& other) { return one.gpus() + other.gpus() <= one.vc->gpus_per_node; }

void pair_greedily(const Group& sensitive, Group left, const SensaRules& rules, Ms now_ms, Pairs& found) {
    const auto window = static_cast<std::size_t>(rules.window);
    for (std::size_t row = 0; row < std::min(window, sensitive.size()); ++row) {
        Rated* const one = sensitive[row];
        std::int64_t best_ppm = LEAST_PPM;
        std::size_t chosen = left.size();
        for (std::size_t place = 0; place < std::min(window, left.size()); ++place) {
            if (!fit_together(*one, *left[place])) continue;
            const std::int64_t score = score_ppm(*one, *left[place], rules, now_ms);
            if (score > best_ppm) {
                best_ppm = score;
                chosen = place;
            }
        }
        if (chosen == left.size()) continue;
        found.push_back({one, left[chosen]});
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
}

void pair_at_best(const Group& sensitive, const Group& insensitive, const SensaRules& rules, Ms now_ms, Pairs& found) {
    const auto window = static_cast<std::size_t>(rules.window);
    const std::size_t rows = std::min(window, sensitive.size()), columns = std::min(window, insensitive.size());
    std::vector<std::vector<std::int64_t>> gains(rows, std::vector<std::int64_t>(columns, 0));
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
            if (!fit_together(*sensitive[row], *insensitive[column])) continue;
            const std::int64_t score = score_ppm(*sensitive[row], *insensitive[column], rules, now_ms);
            gains[row][column] = std::max<std::int64_t>(0, score - LEAST_PPM);
        }
    }
    for (const auto& [row, column] : assignment(gains)) {
        if (gains[row][column] > 0) found.push_back({sensitive[row], insensitive[column]});
    }
}

}  // namespace

std::pair<Allotment, Allotment> Unit::shares() const {
    if (second == nullptr) return {first->part, {}};
    return pair_shares(*first, *second);
}

std::pair<Ms, Ms> Unit::lefts_ms() const {
    if (second == nullptr) return {first->left_ms, 0};
    const auto given = shares();
    return {first->left_at_ms(first->speed_ppm(given.first)), second->left_at_ms(second->speed_ppm(given.second))};
}

Ms Unit::latest_ms(std::pair<Ms, Ms> lefts_ms) const {
    Ms latest_ms = NONE;
    if (first->deadline_ms != NONE) latest_ms = first->deadline_ms - lefts_ms.first;
    if (second != nullptr && second->deadline_ms != NONE) {
        const Ms other_ms = second->deadline_ms - lefts_ms.second;
        latest_ms = latest_ms == NONE ? other_ms : std::min(latest_ms, other_ms);
    }
    return latest_ms;
}

std::int32_t category(const Rated& job, SensaRules::Scope scope) {
    if (job.rank == Standing::hopeless) return CATEGORIES - 1;
    if (scope == SensaRules::Scope::all) return 0;
    return static_cast<std::int32_t>(job.rank) * 3 + static_cast<std::int32_t>(job.kind);
}

std::vector<Unit> make_units(const std::vector<Rated*>& jobs, const SensaRules& rules, Ms now_ms) {
    std::vector<Unit> units;
    units.reserve(jobs.size());
    Pairs pairs;
    if (rules.is_explicit && rules.scope != SensaRules::Scope::off) {
        std::array<Group, CATEGORIES> sensitive, insensitive;
        for (Rated* const job : jobs) {
            if (!job->on_one_node || job->traits->label == Label::neutral) continue;
            auto& groups = job->traits->label == Label::sensitive ? sensitive : insensitive;
            groups[static_cast<std::size_t>(category(*job, rules.scope))].push_back(job);
        }
        for (std::size_t place = 0; place < CATEGORIES; ++place) {
            if (rules.is_best) {
                pair_at_best(sensitive[place], insensitive[place], rules, now_ms, pairs);
            } else {
                pair_greedily(sensitive[place], insensitive[place], rules, now_ms, pairs);
            }
        }
    }
    std::map<const Rated*, const Unit*> paired;
    for (const Unit& unit : pairs) {
        paired[unit.first] = &unit;
        paired[unit.second] = &unit;
    }
    std::map<const Unit*, bool> seen;
    for (Rated* const job : jobs) {
        const auto found = paired.empty() ? paired.end() : paired.find(job);
        if (found == paired.end()) {
            units.push_back({job, nullptr});
        } else if (!seen[found->second]) {
            seen[found->second] = true;
            units.push_back(*found->second);
        }
    }
    return units;
}

namespace {

// Enter one row along a cheapest path; see `_enter` in `policies/units.py`.
struct Matching {
    std::vector<std::vector<std::int64_t>> costs;
    std::vector<std::ptrdiff_t> row_of;
    std::vector<std::int64_t> row_prices, column_prices;

    void enter(std::size_t row) {
        const std::size_t size = row_of.size();
        std::vector<std::int64_t> gaps(size, INT64_MAX);
        std::vector<std::ptrdiff_t> came_from(size, -1);
        std::vector<bool> reached(size, false);
        std::vector<std::pair<std::size_t, std::ptrdiff_t>> path;
        std::size_t current = row, chosen = 0;
        std::ptrdiff_t led_by = -1;
        while (true) {
            path.emplace_back(current, led_by);
            for (std::size_t column = 0; column < size; ++column) {
                if (reached[column]) continue;
                const std::int64_t gap = costs[current][column] - row_prices[current] - column_prices[column];
                if (gap < gaps[column]) {
                    gaps[column] = gap;
                    came_from[column] = led_by;
                }
            }
            std::int64_t step = INT64_MAX;
            for (std::size_t column = 0; column < size; ++column) {
                if (reached[column] || gaps[column] >= step) continue;
                step = gaps[column];
                chosen = column;
            }
            for (const auto& [member, column] : path) {
                row_prices[member] += step;
                if (column >= 0) column_prices[static_cast<std::size_t>(column)] -= step;
            }
            for (std::size_t column = 0; column < size; ++column) {
                if (!reached[column]) gaps[column] -= step;
            }
            reached[chosen] = true;
            if (row_of[chosen] < 0) break;
            current = static_cast<std::size_t>(row_of[chosen]);
            led_by = static_cast<std::ptrdiff_t>(chosen);
        }
        while (came_from[chosen] >= 0) {
            const auto before = static_cast<std::size_t>(came_from[chosen]);
            row_of[chosen] = row_of[before];
            chosen = before;
        }
        row_of[chosen] = static_cast<std::ptrdiff_t>(row);
    }
};

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> assignment(const std::vector<std::vector<std::int64_t>>& gains) {
    const std::size_t rows = gains.size(), columns = rows == 0 ? 0 : gains[0].size();
    const std::size_t size = std::max(rows, columns);
    Matching matching{std::vector(size, std::vector<std::int64_t>(size, 0)), std::vector<std::ptrdiff_t>(size, -1),
                      std::vector<std::int64_t>(size, 0), std::vector<std::int64_t>(size, 0)};
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t column = 0; column < columns; ++column) matching.costs[row][column] = -gains[row][column];
    }
    for (std::size_t row = 0; row < size; ++row) matching.enter(row);
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t column = 0; column < columns; ++column) {
        const auto row = static_cast<std::size_t>(matching.row_of[column]);
        if (row < rows) found.emplace_back(row, column);
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace trimtab
