// The timeline as the engine writes it; Python turns it into `trimtab.timeline.Timeline`.
#pragma once

#include <cstdint>
#include <vector>

#include "job.hpp"

namespace trimtab {

// In the order of the names in `simulate/fast.py`.
enum class EventKind : std::int32_t { submit, reject, start, preempt, demote, promote, finish, knobs };

struct Log {
    bool kept = false;
    std::vector<Ms> time_ms;
    std::vector<std::int32_t> kind;
    std::vector<std::int32_t> job;     // -1 for an event of the whole cluster
    std::vector<std::int32_t> detail;  // knobs: which setting; else how many shares
    std::vector<std::int32_t> node;    // of all shares, one after another
    std::vector<std::int32_t> gpus;

    void add(Ms now_ms, EventKind what, JobId id, std::int32_t extra) {
        time_ms.push_back(now_ms);
        kind.push_back(static_cast<std::int32_t>(what));
        job.push_back(id);
        detail.push_back(extra);
    }
};

}  // namespace trimtab
