#include "tiresias.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace trimtab::tiresias {

std::int64_t seniority(const Job& job) {
    return job.first_ms == NONE ? std::numeric_limits<std::int64_t>::max() : job.first_ms;
}

std::int64_t gittins(const Job& job, const Grades& grades, Ms now_ms, const Plan& plan) {
    const Ms held_ms = job.graded_ms + (job.nodes.empty() ? 0 : now_ms - job.since_ms);
    const GpuMs attained = job.member_gpus * held_ms;
    const std::int32_t level = grades_passed(grades, attained);
    const bool is_bounded = level < static_cast<std::int32_t>(grades.size());
    const GpuMs bound = is_bounded ? grades[static_cast<std::size_t>(level)] : std::int64_t{NONE};
    return -std::bit_cast<std::int64_t>(plan.gittins->at(attained, bound));
}

Ms index_change_ms(const Job& job, const Plan& plan) {
    const GpuMs size = plan.gittins->next_size(job.attained_gpu_ms());
    return size == NONE ? std::int64_t{NONE} : ceil_div(size - job.attained_gpu_ms(), job.member_gpus);
}

Ms starve_limit_ms(const Job& job, const Plan& plan) {
    const Wide product = static_cast<Wide>(plan.starve_ppm) * job.graded_ms + (FULL_SPEED_PPM - 1);
    return static_cast<Ms>(std::min<Wide>(product / FULL_SPEED_PPM, NEVER_MS / 2));
}

}  // namespace trimtab::tiresias
