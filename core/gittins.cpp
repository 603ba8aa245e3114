#include "gittins.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace trimtab {

namespace {
constexpr std::size_t POINTS = 64;
}

GittinsIndex::GittinsIndex(std::vector<GpuMs> completed_gpu_ms) {
    std::sort(completed_gpu_ms.begin(), completed_gpu_ms.end());
    if (completed_gpu_ms.size() <= POINTS) {
        sample_gpu_ms_ = std::move(completed_gpu_ms);
        return;
    }
    for (std::size_t i = 0; i < POINTS; ++i) {
        sample_gpu_ms_.push_back(completed_gpu_ms[i * (completed_gpu_ms.size() - 1) / (POINTS - 1)]);
    }
}

// The same operations in the same order as the reference, so the same doubles: whole numbers below 2^53
// are exact, and each division rounds once.
double GittinsIndex::at(GpuMs attained_gpu_ms, GpuMs bound_gpu_ms) const {
    const auto tail = std::upper_bound(sample_gpu_ms_.begin(), sample_gpu_ms_.end(), attained_gpu_ms);
    const std::int64_t longer = sample_gpu_ms_.end() - tail;
    double best = 0.0;
    std::int64_t below = 0;  // sum of x - a over the support points passed
    std::int64_t count = 0;
    for (auto service = tail; service != sample_gpu_ms_.end(); ++service) {
        ++count;
        if (bound_gpu_ms != NONE && *service > bound_gpu_ms) {
            const std::int64_t spent = below + (longer - count + 1) * (bound_gpu_ms - attained_gpu_ms);
            if (spent == 0) return best;
            return std::max(best, static_cast<double>(count - 1) / static_cast<double>(spent));
        }
        below += *service - attained_gpu_ms;
        const std::int64_t spent = below + (longer - count) * (*service - attained_gpu_ms);
        best = std::max(best, static_cast<double>(count) / static_cast<double>(spent));
    }
    return best;
}

GpuMs GittinsIndex::next_size(GpuMs attained_gpu_ms) const {
    const auto next = std::upper_bound(sample_gpu_ms_.begin(), sample_gpu_ms_.end(), attained_gpu_ms);
    return next == sample_gpu_ms_.end() ? std::int64_t{NONE} : *next;
}

}  // namespace trimtab
