// Plans of whole leases; see `policies/lease_plan.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "units.hpp"

namespace trimtab {

using Leases = std::vector<std::int64_t>;  // ascending

// What a job needs of the leases to come.
struct Request {
    JobId id;
    std::int32_t gpus;
    std::int64_t leases;
    Leases windows;  // leases before each of its deadlines

    std::int64_t window() const { return windows.back(); }

    // Whether a job is packed before another one.
    friend bool operator<(const Request& one, const Request& two);
};

// GPUs that are not planned yet, lease by lease, without end.
class Capacity {
public:
    explicit Capacity(std::int32_t gpus) : gpus_(gpus) {}

    std::int32_t free(std::int64_t lease) const {
        return gpus_ - (lease < static_cast<std::int64_t>(planned_.size()) ? planned_[static_cast<std::size_t>(lease)] : 0);
    }
    void take(std::int32_t gpus, const Leases& leases) {
        for (const std::int64_t lease : leases) take(gpus, lease);
    }
    void take(std::int32_t gpus, std::int64_t lease) {
        if (lease >= static_cast<std::int64_t>(planned_.size())) planned_.resize(static_cast<std::size_t>(lease) + 1);
        planned_[static_cast<std::size_t>(lease)] += gpus;
    }
    Leases latest(std::int32_t gpus, std::int64_t count, std::int64_t window, const Leases& but = {}) const;
    std::int64_t smallest_window(std::int32_t gpus, std::int64_t count) const;

private:
    std::int32_t gpus_;
    std::vector<std::int32_t> planned_;
};

// The plans of requests, in their order; `kept` is the last plan of each.
std::vector<Leases> plan_greedily(const std::vector<Request>& requests, const std::vector<Leases>& kept,
                                  std::int32_t gpus, bool maximize);

}  // namespace trimtab
