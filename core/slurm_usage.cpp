#include "slurm_usage.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace trimtab {

namespace {

constexpr Ms MINUTE_MS = 60'000;
constexpr int DECAY_BITS = 40;
constexpr std::size_t ROW = 5;

std::int64_t scaled(std::int64_t number, std::int64_t decay) {
    return static_cast<std::int64_t>(static_cast<Wide>(number) * decay >> DECAY_BITS);
}

// What is left after so many minutes, in 2**-40.
std::int64_t decay(std::int64_t minute, std::int64_t minutes) {
    std::int64_t left = std::int64_t{1} << DECAY_BITS;
    for (; minutes > 0; minutes >>= 1) {
        if (minutes & 1) left = scaled(left, minute);
        minute = scaled(minute, minute);
    }
    return left;
}

int sign(Wide number) { return number > 0 ? 1 : number < 0 ? -1 : 0; }

// An association among all, with what it is compared by.
struct Contender {
    SlurmUsage* usage;
    std::int64_t shares;  // of its account
    GpuMs sum_gpu_ms;     // used by all of its account
    std::int64_t users;   // of its account

    Wide part() const { return static_cast<Wide>(usage->gpu_ms) * users; }
};

// Below 0 if the first has used less than its share.
int compare(const Contender& one, const Contender& other) {
    const Wide by_share =
        static_cast<Wide>(one.sum_gpu_ms) * other.shares - static_cast<Wide>(other.sum_gpu_ms) * one.shares;
    if (by_share != 0) return sign(by_share);
    const Wide first = one.part(), second = other.part();
    if (first == 0 || second == 0) return (first > 0 ? 1 : 0) - (second > 0 ? 1 : 0);
    return sign(first * other.sum_gpu_ms - second * one.sum_gpu_ms);
}

// What comes before the associations in a memory, in its order.
template <typename Books>
auto head(Books& books) {
    auto& by = books.formula;
    return std::array{
        &books.at_ms, &books.calculated_ms, &books.main_due_ms, &books.fill_due_ms, &books.rested_ms, &books.pending,
        &books.running, &by.age, &by.fairshare, &by.size, &by.partition, &by.qos, &by.tres, &by.max_age_ms,
        &by.favors_small, &by.minute_decay, &by.period_ms};
}

}  // namespace

SlurmBooks::SlurmBooks(const std::vector<std::int64_t>& memory, Ms now_ms, const SlurmRules& rules)
    : at_ms(now_ms), calculated_ms(floor_div(now_ms, rules.formula.period_ms) * rules.formula.period_ms),
      main_due_ms(NEVER_MS), fill_due_ms(NEVER_MS), rested_ms(now_ms), pending(0), running(0), formula(rules.formula) {
    if (memory.empty()) return;
    auto next = memory.begin();
    for (std::int64_t* const value : head(*this)) *value = *next++;
    usage.reserve(static_cast<std::size_t>(memory.end() - next) / ROW);
    for (; next != memory.end(); next += ROW) usage.push_back({next[0], next[1], next[2], next[3], next[4]});
}

std::vector<std::int64_t> SlurmBooks::memory() const {
    std::vector<std::int64_t> found;
    for (const std::int64_t* const value : head(*this)) found.push_back(*value);
    found.reserve(found.size() + ROW * usage.size());
    for (const SlurmUsage& one : usage) {
        for (const std::int64_t value : {one.account, one.user, one.gpu_ms, one.accrued_gpu_ms, one.gpus}) {
            found.push_back(value);
        }
    }
    return found;
}

void SlurmBooks::advance(Ms now_ms, const SlurmFormula& next) {
    while (next_calculation_ms() <= now_ms) {
        calculate(now_ms);
        formula = next;
    }
    charge(now_ms);
}

// Let usage decay until the next calculation; where there is none, until the last one up to now.
void SlurmBooks::calculate(Ms now_ms) {
    const Ms period_ms = formula.period_ms;
    const bool is_used = std::any_of(usage.begin(), usage.end(), [](const SlurmUsage& one) {
        return one.gpu_ms != 0 || one.accrued_gpu_ms != 0 || one.gpus != 0;
    });
    calculated_ms += is_used ? period_ms : (now_ms - calculated_ms) / period_ms * period_ms;
    charge(calculated_ms);
    const std::int64_t left = decay(formula.minute_decay, period_ms / MINUTE_MS);
    for (SlurmUsage& one : usage) {
        one.gpu_ms = scaled(one.gpu_ms, left) + one.accrued_gpu_ms;
        one.accrued_gpu_ms = 0;
    }
}

void SlurmBooks::charge(Ms to_ms) {
    for (SlurmUsage& one : usage) one.accrued_gpu_ms += one.gpus * (to_ms - at_ms);
    at_ms = to_ms;
}

SlurmUsage& SlurmBooks::of(std::int64_t account, std::int64_t user) {
    const auto is_before = [](const SlurmUsage& one, const std::pair<std::int64_t, std::int64_t>& who) {
        return std::tie(one.account, one.user) < std::tie(who.first, who.second);
    };
    const auto found = std::lower_bound(usage.begin(), usage.end(), std::pair(account, user), is_before);
    if (found != usage.end() && found->account == account && found->user == user) return *found;
    return *usage.insert(found, SlurmUsage{account, user});
}

void SlurmBooks::share(const std::map<std::int64_t, std::int64_t>& shares) {
    std::vector<Contender> order;
    order.reserve(usage.size());
    for (auto from = usage.begin(); from != usage.end();) {
        auto to = from;
        GpuMs sum_gpu_ms = 0;
        for (; to != usage.end() && to->account == from->account; ++to) sum_gpu_ms += to->gpu_ms;
        const auto told = shares.find(from->account);
        const std::int64_t its_shares = told == shares.end() ? 1 : told->second, users = to - from;
        for (; from != to; ++from) order.push_back({&*from, its_shares, sum_gpu_ms, users});
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Contender& one, const Contender& other) { return compare(one, other) < 0; });
    const auto count = static_cast<std::int64_t>(order.size());
    for (std::int64_t place = 0; place < count; ++place) {
        const Contender& one = order[static_cast<std::size_t>(place)];
        const bool is_level = place > 0 && compare(order[static_cast<std::size_t>(place - 1)], one) == 0;
        one.usage->fair_ppm = is_level ? order[static_cast<std::size_t>(place - 1)].usage->fair_ppm
                                       : FULL_SPEED_PPM * (count - place) / count;
    }
}

}  // namespace trimtab
