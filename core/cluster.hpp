// What a node has, what a job is given of it, and how fast that makes it; see `cluster.py` and `curve.py`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "units.hpp"

namespace trimtab {

// CPU and memory of a job on one node: `Share` in Python; below 0 cores, the proportional part of the node.
struct Allotment {
    std::int32_t cores = -1;
    std::int64_t memory_mib = 0;

    bool is_told() const { return cores >= 0; }
};

// Relative speed over cores x memory, both for each GPU.
struct Curve {
    std::vector<std::int32_t> cores;        // ascending
    std::vector<std::int64_t> memory_mib;   // ascending
    std::vector<std::int64_t> speeds_ppm;   // memory by memory
    std::int64_t footprint_mib = 0;

    std::int64_t at(std::int32_t gpus, Allotment share) const {
        const auto above = std::upper_bound(memory_mib.begin(), memory_mib.end(), share.memory_mib / gpus);
        const auto row = std::max<std::ptrdiff_t>(0, above - memory_mib.begin() - 1);
        const std::int64_t* const speeds = speeds_ppm.data() + row * static_cast<std::ptrdiff_t>(cores.size());
        const auto place = std::upper_bound(cores.begin(), cores.end(), share.cores / gpus) - cores.begin();
        if (place == static_cast<std::ptrdiff_t>(cores.size())) return speeds[place - 1];
        const std::int64_t low = place == 0 ? 0 : cores[static_cast<std::size_t>(place - 1)];
        const std::int64_t low_ppm = place == 0 ? 0 : speeds[place - 1];
        const std::int64_t span = gpus * (cores[static_cast<std::size_t>(place)] - low);
        return low_ppm + floor_div((speeds[place] - low_ppm) * (share.cores - gpus * low), span);
    }
};

struct VirtualCluster {
    std::int32_t nodes = 0;
    std::int32_t gpus_per_node = 0;
    std::int32_t first_node = 0;
    std::int32_t cores_per_node = 0;
    std::int64_t memory_mib_per_node = 0;

    std::int32_t gpus() const { return nodes * gpus_per_node; }

    // What so many GPUs of a node come with.
    Allotment proportional(std::int32_t gpus) const {
        const auto cores = std::int64_t{gpus} * cores_per_node / gpus_per_node;
        return {static_cast<std::int32_t>(cores), gpus * memory_mib_per_node / gpus_per_node};
    }

    // How fast a job is with a share, in ppm of its speed with the proportional one, at least 1.
    std::int64_t speed_ppm(const Curve& curve, std::int32_t gpus, Allotment share) const {
        const std::int64_t base_ppm = std::max<std::int64_t>(1, curve.at(gpus, proportional(gpus)));
        return std::max<std::int64_t>(1, curve.at(gpus, share) * FULL_SPEED_PPM / base_ppm);
    }
};

}  // namespace trimtab
