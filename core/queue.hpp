// Pending jobs of one virtual cluster, first of each class at hand; see `simulate/queue.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"
#include "plan.hpp"

namespace trimtab {

// Heaps, one a class (level, width, may it be spread). Jobs of one class fit or fail alike. Entries are not
// removed when a job moves on: its stamp has changed by then, which makes them stale.
class PendingQueue {
public:
    struct Item {
        Order order;
        std::int32_t job_class;
    };

    // Forget all jobs. Those pushed next are only put in order by `ready`.
    void reset(std::int32_t levels, std::int32_t widths);
    void ready();

    // Number of a class; `width` is the place of the gang's width among the distinct ones.
    std::int32_t class_of(std::int32_t level, std::int32_t width, bool alone) const {
        return (level * widths_ + width) * 2 + (alone ? 1 : 0);
    }

    void push(const Job& job, const Order& order, std::int32_t job_class);

    // Add all jobs to `found`, in any order.
    void all(const std::vector<Job>& jobs, std::vector<JobId>& found) const;

    // The first job of each class, in any order.
    void heads(const std::vector<Job>& jobs, std::vector<Item>& found);

    // Take the first job of a class out and look for the next; false if there is none.
    bool after_head(const std::vector<Job>& jobs, std::int32_t job_class, Item& next);

private:
    struct Entry {
        Order order;
        std::uint32_t stamp;
        friend bool operator<(const Entry& one, const Entry& two) { return two.order < one.order; }  // least on top
    };

    // Whether an entry's job still waits as it did when it was entered.
    static bool waits(const std::vector<Job>& jobs, const Entry& entry);
    bool head(const std::vector<Job>& jobs, std::int32_t job_class, Item& found);

    std::int32_t widths_ = 1;
    bool is_ready_ = true;
    std::vector<std::vector<Entry>> heaps_;
    std::vector<std::int32_t> busy_;  // classes whose heap holds entries
};

}  // namespace trimtab
