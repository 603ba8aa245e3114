// The Gittins index of `policies/tiresias.py`: how likely a job is to complete per unit of service.
#pragma once

#include <vector>

#include "units.hpp"

namespace trimtab {

class GittinsIndex {
public:
    // Thin the services of completed jobs to at most 64 evenly spaced order statistics.
    explicit GittinsIndex(std::vector<GpuMs> completed_gpu_ms);

    // G at an attained service, per GPU-ms; `bound` (or NONE) is the queue's upper threshold.
    double at(GpuMs attained_gpu_ms, GpuMs bound_gpu_ms) const;

    // The first size of the sample above an attained service, or NONE.
    GpuMs next_size(GpuMs attained_gpu_ms) const;

private:
    std::vector<GpuMs> sample_gpu_ms_;
};

}  // namespace trimtab
