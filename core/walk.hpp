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
        std::vector<Order> jobs;
        std::vector<std::int64_t> held;
        bool made = false;

        std::size_t first_after(const Order& order) const;
    };

    // A running job on the node that is looked at, and the GPUs it holds there.
    struct Here {
        Order order;
        std::int32_t gpus;
        friend bool operator<(const Here& one, const Here& two) { return one.order < two.order; }
    };

    bool alone(const Job& job) const;
    void fail(std::int32_t gpus, bool is_alone);
    bool place(Job& job, const Order& order, bool is_alone);
    bool find(const Layer& layer, const Job& job, bool is_alone, Nodes& found) const;
    bool find_over(const Job& job, const Order& order, bool is_alone, Nodes& found);
    void extend(const Job& job, const Order& order);
    void find_later(const Job& job, const Order& order);
    void sort_later(const std::vector<JobId>& jobs, const Order& order);
    void leave_out(const Order& order);
    void extend_by(const LateJob& other, std::int32_t sign);
    void take(std::int32_t top, const Nodes& nodes, std::int32_t sign);
    void doubt(const Nodes& nodes, const Order& order);
    void list_last(std::int32_t level, const Order& order, std::int64_t lacking);
    void list_last_on(std::int32_t node, std::int32_t level, const Order& order, std::int64_t lacking);
    void list(const Order& order);
    bool keeps(const Job& job, const Order& order);
    std::int64_t held_later_on(std::int32_t node, std::int32_t level, const Order& order);
    void lose(Job& job, const Order& order);
    void push(const Item& item);
    Ranks& ranks(std::int32_t level);

    const Scene* scene_ = nullptr;
    Partition* part_ = nullptr;
    std::vector<Item> items_;  // jobs still to be looked at, the next one last
    std::vector<JobId> listed_;
    std::int32_t doubted_ = 0;  // running jobs among the items
    std::int32_t failed_alone_ = 0, failed_spread_ = 0;  // smallest width that failed
    std::vector<Ranks> by_level_;
    std::vector<Here> here_;
    Layer reach_;                     // what the last job that asked may have, if any job comes later
    std::int32_t reach_level_ = -1;   // its level, -1 if nobody has asked in this walk
    Later later_;                     // the running jobs of that level that come later: `reach_` has their GPUs
};

}  // namespace trimtab
