#include "lineup.hpp"

#include <algorithm>

namespace trimtab {

namespace {

// An entry is put in its place where few others have to make way for it.
constexpr std::ptrdiff_t NEAR_THE_END = 512;
constexpr std::size_t MOST_FRESH = 64;

const Job& job_of(const std::vector<Job>& jobs, JobId id) { return jobs[static_cast<std::size_t>(id)]; }

bool is_valid(const std::vector<Job>& jobs, JobId id, std::uint32_t turn) { return job_of(jobs, id).turn == turn; }

bool comes_last(const LateJob& one, const LateJob& two) { return two < one; }

}  // namespace

void LineUp::clear() {
    for (Rate& rate : rates_) {
        rate.sorted.clear();
        rate.fresh.clear();
    }
    unpaid_.clear();
    is_ready_ = false;
}

void LineUp::ready(const std::vector<Job>& jobs) {
    is_ready_ = true;
    for (Rate& rate : rates_) merge(jobs, rate);
}

void LineUp::enter(const std::vector<Job>& jobs, const Job& job, const RunningKey& key, Ms now_ms) {
    if (key.rate == key.overhead_rate || key.paid_ms <= now_ms) {
        add(jobs, key, job.id, job.turn);
        return;
    }
    unpaid_.push_back({key, job.id, job.turn});
}

LineUp::Rate& LineUp::rate_of(const RunningKey& key) {
    for (Rate& rate : rates_) {
        if (rate.fall == key.rate) return rate;
    }
    Rate& rate = rates_.emplace_back();
    rate.fall = key.rate;
    rate.least = key.least;
    return rate;
}

void LineUp::add(const std::vector<Job>& jobs, const RunningKey& key, JobId id, std::uint32_t turn) {
    Rate& rate = rate_of(key);
    std::vector<Entry>& sorted = rate.sorted;
    const Entry entry{key.base + static_cast<Wide>(key.paid_ms) * key.rate, id, turn};
    if (!is_ready_) {
        rate.fresh.push_back(entry);
        return;
    }
    if (sorted.empty() || sorted.back() < entry) {
        sorted.push_back(entry);
    } else if (const auto at = std::upper_bound(sorted.begin(), sorted.end(), entry); sorted.end() - at <= NEAR_THE_END) {
        sorted.insert(at, entry);
    } else {
        rate.fresh.push_back(entry);
    }
    if (sorted.size() > rate.most || rate.fresh.size() > MOST_FRESH) merge(jobs, rate);
}

void LineUp::merge(const std::vector<Job>& jobs, Rate& rate) {
    std::sort(rate.fresh.begin(), rate.fresh.end());
    merged_.clear();
    auto next = rate.fresh.begin();
    for (const Entry& entry : rate.sorted) {
        if (!is_valid(jobs, entry.id, entry.turn)) continue;
        for (; next != rate.fresh.end() && *next < entry; ++next) merged_.push_back(*next);
        merged_.push_back(entry);
    }
    merged_.insert(merged_.end(), next, rate.fresh.end());
    rate.sorted.swap(merged_);
    rate.fresh.clear();
    rate.most = 2 * rate.sorted.size() + 64;
}

void LineUp::after(const std::vector<Job>& jobs, const Order& place, Ms now_ms, Later& found) {
    found.clear();
    collect_unpaid(jobs, place, now_ms, found);
    for (Rate& rate : rates_) {
        collect(jobs, rate, place, now_ms, found);
        collect_fresh(jobs, rate, place, now_ms, found);
    }
}

void LineUp::collect(const std::vector<Job>& jobs, Rate& rate, const Order& place, Ms now_ms, Later& found) {
    std::vector<Entry>& sorted = rate.sorted;
    const Wide fallen = static_cast<Wide>(now_ms) * rate.fall, least = rate.least;
    Later::Run& run = found.open();
    auto next = sorted.end(), kept = next;  // those out of date drop out of the end that is looked at
    while (next != sorted.begin()) {
        const Wide key = std::max(least, (next - 1)->line - fallen);
        if (key < place.key) break;
        const Entry entry = *--next;
        const Job& job = job_of(jobs, entry.id);
        if (job.turn != entry.turn) continue;
        *--kept = entry;
        const Order order{static_cast<std::int64_t>(key), 0, place.level, entry.id};
        if (place < order) run.emplace_back(order, job);
    }
    sorted.erase(next, kept);
    // Keys that have stopped are equal, and stand by their old order.
    if (!run.empty() && run.back().order.key == rate.least) {
        std::sort(run.begin(), run.end(), comes_last);
    }
    found.keep();
}

void LineUp::collect_fresh(const std::vector<Job>& jobs, Rate& rate, const Order& place, Ms now_ms, Later& found) {
    if (rate.fresh.empty()) return;
    std::erase_if(rate.fresh, [&](const Entry& entry) { return !is_valid(jobs, entry.id, entry.turn); });
    Later::Run& run = found.open();
    for (const Entry& entry : rate.fresh) {
        const Order order{static_cast<std::int64_t>(rate.key_at(entry, now_ms)), 0, place.level, entry.id};
        if (place < order) run.emplace_back(order, job_of(jobs, order.id));
    }
    std::sort(run.begin(), run.end(), comes_last);
    found.keep();
}

// Look at each job whose restart cost was unpaid; those that have paid by now move on to their rate.
void LineUp::collect_unpaid(const std::vector<Job>& jobs, const Order& place, Ms now_ms, Later& found) {
    Later::Run& run = found.open();
    for (std::size_t at = 0; at < unpaid_.size();) {
        const Unpaid& unpaid = unpaid_[at];
        const bool is_here = is_valid(jobs, unpaid.id, unpaid.turn);
        if (is_here && unpaid.key.paid_ms > now_ms) {
            const Order order{unpaid.key.at(now_ms), 0, place.level, unpaid.id};
            if (place < order) run.emplace_back(order, job_of(jobs, order.id));
            ++at;
            continue;
        }
        if (is_here) add(jobs, unpaid.key, unpaid.id, unpaid.turn);
        unpaid_[at] = unpaid_.back();
        unpaid_.pop_back();
    }
    std::sort(run.begin(), run.end(), comes_last);
    found.keep();
}

}  // namespace trimtab
