// The indexed walk: the same decisions as `simulate/walk.py`, looking only at jobs that matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "job.hpp"
#include "partition.hpp"
#include "plan.hpp"

namespace trimtab {

// What a walk reads: all jobs, what they are told, and the plan.
struct Scene {
    std::vector<Job>& jobs;
    const Workload& workload;
    const std::vector<Grades>& grades;  // by Job::grades
    const Plan& plan;
    Ms now_ms;
    bool relaxed;

    Job& job(JobId id) const { return jobs[static_cast<std::size_t>(id)]; }
    Order order(const Job& job) const {
        return order_of(job, grades[static_cast<std::size_t>(job.grades)], now_ms, plan);
    }
};

// One walk over one virtual cluster; `run` changes its index and leaves what is to be done here. The object
// is kept from walk to walk for the memory it holds, not for what is in it.
class Walk {
public:
    std::vector<JobId> lost;  // running jobs that lose their GPUs
    std::vector<std::pair<JobId, Nodes>> places;  // of jobs that get some, in order

    void run(const Scene& scene, Partition& part);

private:
    static constexpr std::int32_t RUNNING = -1;  // class of a running job that must be looked at
    using Item = PendingQueue::Item;

    // Running jobs in walk order; `held[i]` is what the jobs from the i-th on hold, held.back() = 0.
    struct Ranks {
        std::vector<std::pair<Order, JobId>> jobs;
        std::vector<std::int64_t> held;
        bool made = false;

        std::size_t first_after(const Order& order) const;
    };

    // A running job that comes later in the walk than what was asked about last.
    struct Standing {
        Order order;
        std::int32_t gpus;
    };

    // Several of them, and the GPUs they hold: together and, once asked for, by node.
    struct Later {
        std::vector<Standing> jobs;
        std::int64_t held = 0;
        Extra extra;
        bool made = false;
        bool spread = false;  // whether `extra` is filled

        void clear() {
            jobs.clear();
            held = 0;
            spread = false;
        }
    };

    bool alone(const Job& job) const;
    void fail(std::int32_t gpus, bool is_alone);
    bool place(Job& job, const Order& order, bool is_alone);
    bool find(std::int32_t level, std::int32_t gpus, const Extra* extra, bool is_alone, Nodes& found);
    bool find_over(const Job& job, const Order& order, bool is_alone, Nodes& found);
    Later& later_of(const Job& job, const Order& order);
    Later& later_of_level(std::int32_t level, const Order& order);
    void find_later(std::int32_t level, const Order& order, Later& later);
    void doubt(const Nodes& nodes, const Order& order);
    bool keeps(const Job& job, const Order& order);
    std::int64_t held_later_on(std::int32_t node, std::int32_t level, const Order& order);
    void lose(Job& job);
    void push(const Item& item);
    Item pop();
    Ranks& ranks(std::int32_t level);
    Ranks& ranks_on(std::int32_t node, std::int32_t level);

    const Scene* scene_ = nullptr;
    Partition* part_ = nullptr;
    std::vector<Item> items_;
    std::vector<JobId> listed_;
    std::int32_t doubted_ = 0;  // running jobs among the items
    std::int32_t failed_alone_ = 0, failed_spread_ = 0;  // smallest width that failed
    std::vector<Ranks> by_level_;
    std::vector<Later> later_by_level_;
    Ranks on_node_;
    Later behind_;
};

}  // namespace trimtab
