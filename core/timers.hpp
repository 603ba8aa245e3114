// What happens next, and to which job: one entry a job at most, so nothing in it is ever out of date.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace trimtab {

// Kinds of timed events, in the order they are handled at one instant.
enum class Timed : std::int32_t { finish, expire, change, promote, unshield };

// A heap by time, kind and id, that knows each job's place in it.
class Timers {
public:
    struct Timer {
        Ms time_ms;
        JobId job;
        Timed kind;

        // Kind and id as one number, in the order in which they are handled.
        std::uint64_t turn() const {
            return static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint32_t>(job);
        }
        friend bool operator<(const Timer& one, const Timer& two) {
            return one.time_ms != two.time_ms ? one.time_ms < two.time_ms : one.turn() < two.turn();
        }
    };

    explicit Timers(JobId jobs) : place_(static_cast<std::size_t>(jobs), ABSENT) {}

    bool empty() const { return heap_.empty(); }
    bool has(JobId job) const { return place_[static_cast<std::size_t>(job)] != ABSENT; }
    const Timer& first() const { return heap_.front(); }
    const std::vector<Timer>& all() const { return heap_; }  // in any order

    // Enter a job's timer, in place of the one it has.
    void set(const Timer& timer);

    // Strike out a job's timer if it has one.
    void erase(JobId job);

    void clear();

private:
    static constexpr std::int32_t ABSENT = -1;
    static constexpr std::size_t WAYS = 4;  // below each timer in the heap

    void put(std::size_t place, const Timer& timer);
    void rise(std::size_t place, const Timer& timer);
    void sink(std::size_t place, const Timer& timer);

    std::vector<Timer> heap_;
    std::vector<std::int32_t> place_;  // by job
};

}  // namespace trimtab
