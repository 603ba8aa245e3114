// CPU and memory of the jobs on one node; see `policies/adjust.py`.
#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include "sensa_jobs.hpp"

namespace trimtab {

namespace {

using Jobs = std::vector<Rated*>;
using Places = std::vector<std::size_t>;  // of jobs in the list of the node

std::tuple<std::int64_t, Ms, JobId> urgency_of(const Rated& job) {
    const Ms latest_ms = job.latest_ms();
    if (latest_ms == NONE) return {static_cast<std::int64_t>(job.rank), 0, job.id()};
    return {0, latest_ms, job.id()};
}

Allotment more_of(Allotment one, Allotment other) {
    return {std::max(one.cores, other.cores), std::max(one.memory_mib, other.memory_mib)};
}

// One node while its shares are worked out.
class Node {
public:
    Node(const Jobs& jobs, Allotment room, const SensaRules& rules, Ms now_ms)
        : jobs_(jobs), room_(room), rules_(rules), now_ms_(now_ms), cooling_(jobs.size(), false) {
        for (std::size_t place = 0; place < jobs.size(); ++place) {
            urgent_.push_back(place);
            const Ms resized_ms = jobs[place]->resized_ms;
            cooling_[place] = resized_ms != NONE && now_ms > resized_ms && now_ms - resized_ms < rules.cooldown_ms;
        }
        std::sort(urgent_.begin(), urgent_.end(),
                  [&](std::size_t one, std::size_t other) { return urgency_of(*jobs[one]) < urgency_of(*jobs[other]); });
        share_out();
        const Allotment rest = left();
        if (rest.cores < 0 || rest.memory_mib < 0) {
            cooling_.assign(jobs.size(), false);
            share_out();
        }
    }

    std::vector<Allotment> take_shares() { return std::move(shares_); }

    // Those at risk, least slack first: from what nobody has, then from lenders.
    void help_those_at_risk() {
        const std::vector<Allotment> base = shares_;
        std::vector<bool> borrows(jobs_.size(), false);
        std::vector<std::tuple<Ms, JobId, std::size_t>> slacks;
        for (std::size_t place = 0; place < jobs_.size(); ++place) {
            const Rated& job = *jobs_[place];
            if (job.deadline_ms != NONE) slacks.emplace_back(job.slack_ms(base[place], now_ms_), job.id(), place);
        }
        std::sort(slacks.begin(), slacks.end());
        for (const auto& [slack_ms, id, place] : slacks) {
            Allotment wanted;
            if (!wants(place, wanted)) continue;
            borrows[place] = true;
            raise(place, wanted, base, borrows);
        }
    }

    // What nobody has goes to those who gain, most urgent first.
    void pool() {
        for (const std::size_t place : urgent_) {
            const Rated& job = *jobs_[place];
            if (job.traits->label != Label::sensitive || cooling_[place]) continue;
            const Allotment share = shares_[place], rest = left(), best = job.traits->best;
            const Allotment more{
                share.cores + std::max(0, std::min(rest.cores, best.cores - share.cores)),
                share.memory_mib +
                    std::max<std::int64_t>(0, std::min(rest.memory_mib, best.memory_mib - share.memory_mib))};
            if (job.speed_ppm(more) > job.speed_ppm(share)) shares_[place] = more;
        }
    }

private:
    // What each job has before anybody borrows.
    void share_out() {
        shares_.clear();
        for (std::size_t place = 0; place < jobs_.size(); ++place) {
            shares_.push_back(cooling_[place] ? jobs_[place]->share : jobs_[place]->part);
        }
        if (rules_.scope == SensaRules::Scope::off) return;
        std::array<Places, CATEGORIES> takers, givers;
        for (const std::size_t place : urgent_) {
            const Rated& job = *jobs_[place];
            if (cooling_[place] || job.traits->label == Label::neutral) continue;
            auto& groups = job.traits->label == Label::sensitive ? takers : givers;
            groups[static_cast<std::size_t>(category(job, rules_.scope))].push_back(place);
        }
        for (std::size_t group = 0; group < CATEGORIES; ++group) {
            if (rules_.is_explicit) {
                share_in_pairs(takers[group], givers[group]);
            } else {
                share_inside(takers[group], givers[group]);
            }
        }
    }

    // Most urgent first, each with who gives most of what is needed.
    void share_in_pairs(const Places& takers, Places left) {
        for (const std::size_t taker : takers) {
            if (left.empty()) return;
            const auto giver = std::min_element(left.begin(), left.end(), [&](std::size_t one, std::size_t other) {
                const auto key = [&](std::size_t place) {
                    const std::int32_t useful = std::min(jobs_[taker]->need().cores, jobs_[place]->spare().cores);
                    return std::tuple{-useful, jobs_[place]->id()};
                };
                return key(one) < key(other);
            });
            share_inside({taker}, {*giver});
            left.erase(giver);
        }
    }

    // Givers drop to their least, takers have the rest; cores left over go back.
    void share_inside(const Places& takers, const Places& givers) {
        if (takers.empty() || givers.empty()) return;
        Allotment free{0, 0};
        for (const std::size_t place : givers) {
            const Allotment spare = jobs_[place]->spare();
            free = {free.cores + spare.cores, free.memory_mib + spare.memory_mib};
        }
        for (const std::size_t place : takers) {
            const Allotment need = jobs_[place]->need(), part = jobs_[place]->part;
            const std::int32_t cores = std::min(free.cores, need.cores);
            const std::int64_t memory_mib = std::min(free.memory_mib, need.memory_mib);
            shares_[place] = {part.cores + cores, part.memory_mib + memory_mib};
            free = {free.cores - cores, free.memory_mib - memory_mib};
        }
        for (const std::size_t place : givers) {
            const Allotment least = jobs_[place]->traits->least;
            const std::int32_t back = std::min(free.cores, jobs_[place]->spare().cores);
            shares_[place] = {least.cores + back, least.memory_mib};
            free.cores -= back;
        }
    }

    Allotment left() const {
        Allotment rest = room_;
        for (const Allotment& share : shares_) rest = {rest.cores - share.cores, rest.memory_mib - share.memory_mib};
        return rest;
    }

    // Whether a job needs more than it has here, and what.
    bool wants(std::size_t place, Allotment& wanted) const {
        const Rated& job = *jobs_[place];
        const Allotment share = shares_[place], held = job.share;
        const Ms guard_ms = job.guard_ms(rules_);
        if (job.speed_ppm(held) > job.speed_ppm(share)) {
            const Ms slack_ms = job.slack_ms(held, now_ms_);
            if (guard_ms <= slack_ms && slack_ms <= part_of(guard_ms, rules_.hysteresis_ppm)) {
                wanted = more_of(held, share);
                return true;
            }
        }
        if (job.slack_ms(share, now_ms_) >= guard_ms) return false;
        const Allotment best = more_of(job.traits->best, share);
        if (smallest(job, share, best, guard_ms, wanted)) return true;
        wanted = best;
        return !is_same(best, share) && job.slack_ms(best, now_ms_) >= 0;
    }

    // The least memory, then the fewest cores, with which a job keeps its guard.
    bool smallest(const Rated& job, Allotment share, Allotment best, Ms guard_ms, Allotment& found) const {
        std::vector<std::int64_t> sizes{share.memory_mib, best.memory_mib};
        if (job.curve != nullptr) {
            for (const std::int64_t one : job.curve->memory_mib) {
                const std::int64_t size = job.gpus() * one;
                if (share.memory_mib < size && size < best.memory_mib) sizes.push_back(size);
            }
        }
        std::sort(sizes.begin(), sizes.end());
        for (const std::int64_t memory_mib : sizes) {
            for (std::int32_t cores = share.cores; cores <= best.cores; ++cores) {
                found = {cores, memory_mib};
                if (job.slack_ms(found, now_ms_) >= guard_ms) return true;
            }
        }
        return false;
    }

    void raise(std::size_t place, Allotment wanted, const std::vector<Allotment>& base, const std::vector<bool>& borrows) {
        const Allotment share = shares_[place], rest = left();
        const Allotment more{wanted.cores - share.cores, wanted.memory_mib - share.memory_mib};
        Allotment got{std::min(more.cores, rest.cores), std::min(more.memory_mib, rest.memory_mib)};
        for (const std::size_t lender : lenders(borrows)) {
            if (is_same(got, more)) break;
            const Allotment lent =
                lend(lender, base[lender], {more.cores - got.cores, more.memory_mib - got.memory_mib});
            got = {got.cores + lent.cores, got.memory_mib + lent.memory_mib};
        }
        shares_[place] = {share.cores + got.cores, share.memory_mib + got.memory_mib};
    }

    Places lenders(const std::vector<bool>& borrows) const {
        using Key = std::tuple<std::int32_t, bool, Ms, std::int64_t, JobId>;
        std::vector<std::pair<Key, std::size_t>> able;
        for (std::size_t place = 0; place < jobs_.size(); ++place) {
            const Rated& job = *jobs_[place];
            if (job.curve == nullptr || borrows[place] || cooling_[place]) continue;
            const Allotment share = shares_[place];
            const bool spares = job.traits->label == Label::insensitive && share.cores > job.traits->least.cores;
            const Allotment less{std::max(0, share.cores - 1), share.memory_mib};
            able.push_back({{lending_class(job), !spares, -job.slack_ms(share, now_ms_),
                             job.speed_ppm(share) - job.speed_ppm(less), job.id()},
                            place});
        }
        std::sort(able.begin(), able.end());
        Places found;
        for (const auto& one : able) found.push_back(one.second);
        return found;
    }

    static std::int32_t lending_class(const Rated& job) {
        if (job.rank == Standing::best_effort) return 0;
        if (job.rank == Standing::hopeless) return 1;
        return job.kind == Service::Kind::soft ? 2 : 3;
    }

    static std::int64_t rounded_up(std::int64_t number, std::int64_t ppm) {
        return ceil_div(number * ppm, FULL_SPEED_PPM);
    }

    // Take what a lender may give of what is wanted; memory only where it costs nothing.
    Allotment lend(std::size_t place, Allotment base, Allotment wanted) {
        const Rated& lender = *jobs_[place];
        const Allotment share = shares_[place], part = lender.part;
        const std::int64_t least_cores = std::max<std::int64_t>(1, rounded_up(part.cores, rules_.floor_ppm));
        const std::int64_t least_mib =
            std::max(rounded_up(part.memory_mib, rules_.floor_ppm), lender.curve->footprint_mib * lender.gpus());
        const std::int64_t most_cores = part_of(base.cores, rules_.donate_ppm) - (base.cores - share.cores);
        const std::int64_t most_mib =
            part_of(base.memory_mib, rules_.donate_ppm) - (base.memory_mib - share.memory_mib);
        std::int64_t mib = std::max<std::int64_t>(
            0, std::min({wanted.memory_mib, most_mib, share.memory_mib - least_mib}));
        if (lender.speed_ppm({share.cores, share.memory_mib - mib}) < lender.speed_ppm(share)) mib = 0;
        auto given = static_cast<std::int32_t>(std::max<std::int64_t>(
            0, std::min({std::int64_t{wanted.cores}, most_cores, share.cores - least_cores})));
        for (; given > 0; --given) {
            const Allotment after{share.cores - given, share.memory_mib - mib};
            if (lender.deadline_ms == NONE || lender.slack_ms(after, now_ms_) >= lender.guard_ms(rules_)) break;
        }
        shares_[place] = {share.cores - given, share.memory_mib - mib};
        return {given, mib};
    }

    const Jobs& jobs_;
    const Allotment room_;
    const SensaRules& rules_;
    const Ms now_ms_;
    std::vector<bool> cooling_;
    Places urgent_;  // most urgent first
    std::vector<Allotment> shares_;
};

}  // namespace

std::vector<Allotment> split_node(const Jobs& jobs, Allotment room, const SensaRules& rules, Ms now_ms) {
    Node node(jobs, room, rules, now_ms);
    if (rules.lends) node.help_those_at_risk();
    if (rules.pools) node.pool();
    return node.take_shares();
}

}  // namespace trimtab
