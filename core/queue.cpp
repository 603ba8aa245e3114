#include "queue.hpp"

#include <algorithm>

namespace trimtab {

bool PendingQueue::waits(const std::vector<Job>& jobs, const Entry& entry) {
    const Job& job = jobs[static_cast<std::size_t>(entry.order.id)];
    return job.active() && job.stamp == entry.stamp;
}

void PendingQueue::reset(std::int32_t levels, std::int32_t widths) {
    for (const std::int32_t job_class : busy_) heaps_[static_cast<std::size_t>(job_class)].clear();
    busy_.clear();
    is_ready_ = false;
    widths_ = widths;
    const auto classes = static_cast<std::size_t>(levels) * static_cast<std::size_t>(widths) * 2;
    if (heaps_.size() < classes) heaps_.resize(classes);
}

void PendingQueue::push(const Job& job, const Order& order, std::int32_t job_class) {
    std::vector<Entry>& heap = heaps_[static_cast<std::size_t>(job_class)];
    if (heap.empty()) busy_.push_back(job_class);
    heap.push_back({order, job.stamp});
    if (is_ready_) std::push_heap(heap.begin(), heap.end());
}

void PendingQueue::ready() {
    is_ready_ = true;
    for (const std::int32_t job_class : busy_) {
        std::vector<Entry>& heap = heaps_[static_cast<std::size_t>(job_class)];
        std::make_heap(heap.begin(), heap.end());
    }
}

void PendingQueue::all(const std::vector<Job>& jobs, std::vector<JobId>& found) const {
    for (const std::int32_t job_class : busy_) {
        for (const Entry& entry : heaps_[static_cast<std::size_t>(job_class)]) {
            if (waits(jobs, entry)) found.push_back(entry.order.id);
        }
    }
}

void PendingQueue::heads(const std::vector<Job>& jobs, std::vector<Item>& found) {
    found.clear();
    for (std::size_t place = 0; place < busy_.size();) {
        Item item;
        if (head(jobs, busy_[place], item)) {
            found.push_back(item);
            ++place;
        } else {
            busy_[place] = busy_.back();
            busy_.pop_back();
        }
    }
}

bool PendingQueue::head(const std::vector<Job>& jobs, std::int32_t job_class, Item& found) {
    std::vector<Entry>& heap = heaps_[static_cast<std::size_t>(job_class)];
    while (!heap.empty()) {
        if (waits(jobs, heap.front())) {
            found = {heap.front().order, job_class};
            return true;
        }
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
    }
    return false;
}

bool PendingQueue::after_head(const std::vector<Job>& jobs, std::int32_t job_class, Item& next) {
    std::vector<Entry>& heap = heaps_[static_cast<std::size_t>(job_class)];
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    if (head(jobs, job_class, next)) return true;
    busy_.erase(std::find(busy_.begin(), busy_.end(), job_class));
    return false;
}

}  // namespace trimtab
