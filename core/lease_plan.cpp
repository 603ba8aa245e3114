#include "lease_plan.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trimtab {

namespace {

using Order = std::vector<std::size_t>;  // places of requests

Capacity left(const std::vector<Request>& requests, const std::vector<Leases>& plans, std::int32_t gpus) {
    Capacity capacity(gpus);
    for (std::size_t place = 0; place < requests.size(); ++place) capacity.take(requests[place].gpus, plans[place]);
    return capacity;
}

// Plan all anew; false if a job does not find its leases.
bool pack(const std::vector<Request>& requests, const Order& order, Capacity& capacity, std::vector<Leases>& plans) {
    for (const std::size_t place : order) {
        const Request& request = requests[place];
        plans[place] = capacity.latest(request.gpus, request.leases, request.window());
        if (static_cast<std::int64_t>(plans[place].size()) < request.leases) return false;
        capacity.take(request.gpus, plans[place]);
    }
    return true;
}

// The last plan without what is no longer needed, and with what is missing as far as there is.
Capacity keep(const std::vector<Request>& requests, const Order& order, const std::vector<Leases>& kept,
              std::int32_t gpus, std::vector<Leases>& plans) {
    for (std::size_t place = 0; place < requests.size(); ++place) {
        const Request& request = requests[place];
        const Leases& has = kept[place];
        const auto end = std::lower_bound(has.begin(), has.end(), request.window());
        plans[place].assign(end - std::min<std::ptrdiff_t>(request.leases, end - has.begin()), end);
    }
    Capacity capacity = left(requests, plans, gpus);
    for (const std::size_t place : order) {
        const Request& request = requests[place];
        Leases& plan = plans[place];
        const std::int64_t missing = request.leases - static_cast<std::int64_t>(plan.size());
        const Leases more = capacity.latest(request.gpus, missing, request.window(), plan);
        capacity.take(request.gpus, more);
        plan.insert(plan.end(), more.begin(), more.end());
        std::sort(plan.begin(), plan.end());
    }
    return capacity;
}

// Move a job before the best of its deadlines that has room.
void improve(const Request& request, Leases& plan, Capacity& capacity) {
    capacity.take(-request.gpus, plan);
    for (const std::int64_t window : request.windows) {
        Leases found = capacity.latest(request.gpus, request.leases, window);
        if (static_cast<std::int64_t>(found.size()) == request.leases) {
            plan = std::move(found);
            break;
        }
    }
    capacity.take(request.gpus, plan);
}

void bring_forward(const Request& request, Leases& plan, Capacity& capacity) {
    if (plan.empty() || plan.front() <= 0 || capacity.free(0) < request.gpus) return;
    capacity.take(-request.gpus, plan.front());
    plan.front() = 0;
    capacity.take(request.gpus, 0);
}

}  // namespace

bool operator<(const Request& one, const Request& two) {
    const auto key = [](const Request& request) {
        return std::tuple(-request.gpus, request.window() - request.leases, -request.window(), request.id);
    };
    return key(one) < key(two);
}

Leases Capacity::latest(std::int32_t gpus, std::int64_t count, std::int64_t window, const Leases& but) const {
    Leases found;
    for (std::int64_t lease = window - 1; lease >= 0; --lease) {
        if (static_cast<std::int64_t>(found.size()) == count) break;
        if (free(lease) >= gpus && !std::binary_search(but.begin(), but.end(), lease)) found.push_back(lease);
    }
    std::reverse(found.begin(), found.end());
    return found;
}

std::int64_t Capacity::smallest_window(std::int32_t gpus, std::int64_t count) const {
    std::int64_t lease = 0;
    for (; count > 0; ++lease) count -= free(lease) >= gpus ? 1 : 0;
    return lease;
}

std::vector<Leases> plan_greedily(const std::vector<Request>& requests, const std::vector<Leases>& kept,
                                  std::int32_t gpus, bool maximize) {
    Order order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t two) { return requests[one] < requests[two]; });
    std::vector<Leases> plans(requests.size());
    Capacity capacity(gpus);
    if (!pack(requests, order, capacity, plans)) capacity = keep(requests, order, kept, gpus, plans);
    for (const std::size_t place : order) {
        if (requests[place].windows.size() > 1) improve(requests[place], plans[place], capacity);
    }
    if (maximize) {
        for (const std::size_t place : order) bring_forward(requests[place], plans[place], capacity);
    }
    return plans;
}

}  // namespace trimtab
