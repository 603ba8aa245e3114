// The timeline as the engine writes it; Python turns it into `trimtab.timeline.Timeline`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace trimtab {

// In the order of the names in `simulate/fast.py`.
enum class EventKind : std::int32_t { submit, reject, start, preempt, demote, promote, finish, knobs, resize };

struct LogEntry {
    Ms time_ms;
    EventKind kind;
    JobId job;            // -1 for an event of the whole cluster
    std::int32_t detail;  // knobs: which setting; else how many shares
    JobId beside = -1;    // start: on whose GPUs
};

// CPU and memory that an entry tells.
struct Given {
    std::int64_t entry;
    Allotment share;
};

struct Log {
    bool kept = false;
    std::vector<LogEntry> entries;
    std::vector<Share> shares;  // of all of them, one after another
    std::vector<Given> given;

    // Make room for what most runs of so many jobs write: a submission, a start, a finish and something besides.
    void reserve(std::size_t jobs) {
        entries.reserve(4 * jobs);
        shares.reserve(2 * jobs);
    }
};

}  // namespace trimtab
