#include "leases.hpp"

#include <algorithm>

namespace trimtab {

void Desk::clear() {
    waiting_.clear();
    ended.clear();
    ends_.clear();
}

void Desk::wait(Job& job) {
    job.seat = static_cast<std::int32_t>(waiting_.size());
    waiting_.push_back(job.id);
}

void Desk::serve(const Job& job, std::vector<Job>& jobs) {
    const auto seat = static_cast<std::size_t>(job.seat);
    if (seat >= waiting_.size() || waiting_[seat] != job.id) return;
    waiting_[seat] = waiting_.back();
    jobs[static_cast<std::size_t>(waiting_.back())].seat = job.seat;
    waiting_.pop_back();
}

void Desk::push(End end) {
    ends_.push_back(end);
    std::push_heap(ends_.begin(), ends_.end());
}

void Desk::pop() {
    std::pop_heap(ends_.begin(), ends_.end());
    ends_.pop_back();
}

bool Desk::next_ended(const std::vector<Job>& jobs, Ms by_ms, JobId& found) {
    while (!ends_.empty() && ends_.front().end_ms <= by_ms) {
        const End end = ends_.front();
        pop();
        if (!holds(jobs, end)) continue;
        found = end.job;
        return true;
    }
    return false;
}

Ms Desk::next_end_ms(const std::vector<Job>& jobs) {
    while (!ends_.empty() && !holds(jobs, ends_.front())) pop();
    return ends_.empty() ? std::int64_t{NONE} : ends_.front().end_ms;
}

bool Desk::has(const Job& job) const {
    if (std::find(ended.begin(), ended.end(), job.id) != ended.end()) return true;
    return std::any_of(ends_.begin(), ends_.end(), [&job](const End& end) {
        return end.job == job.id && end.end_ms == job.lease_end_ms;
    });
}

}  // namespace trimtab
