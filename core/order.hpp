// A job's place in the walk, and what is needed to know it at any instant.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

#include "units.hpp"

namespace trimtab {

// A key of several numbers, each as whole part and fraction; kept by the hooks it came from.
struct LongKey {
    std::vector<std::int64_t> parts;
};

// An instant, which may lie before 0, or the largest number as an order's second number.
inline std::int64_t second_of(std::int64_t instant_ms) {
    constexpr std::int64_t LARGEST = std::numeric_limits<std::int64_t>::max();
    return instant_ms == LARGEST ? LARGEST : instant_ms + NEVER_MS;
}

// In place of an order's second number, which is never negative: a key of which the first does not tell all.
inline std::int64_t long_key(const LongKey* key) {
    return std::numeric_limits<std::int64_t>::min() | static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(key));
}
std::strong_ordering compare_long(std::int64_t one_key, std::int64_t two_key);

// A job's place in the walk: level, key inside it, id. Keys are whole numbers, or have their fraction or seniority as
// second number; longer ones are told apart behind it.
struct Order {
    std::int64_t key;
    std::int64_t second;
    std::int32_t level;
    JobId id;

    friend bool operator<(const Order& one, const Order& two) {
        if (one.level != two.level) return one.level < two.level;
        if (one.key != two.key) return one.key < two.key;
        if (one.second != two.second) {
            if ((one.second & two.second) >= 0) return one.second < two.second;
            if (const auto found = compare_long(one.second, two.second); found != 0) return found < 0;
        }
        return one.id < two.id;
    }
};

// What a running job's key is made of, so that it is known at any instant without looking at the job.
struct RunningKey {
    std::int64_t base = 0;           // its key when restart cost is paid
    std::int64_t rate = 0;           // by how much it falls a millisecond from then on ..
    std::int64_t least = INT64_MIN;  // .. and where it stops
    Ms paid_ms = 0;                  // when restart cost is paid
    std::int64_t overhead_rate = 0;  // by how much unpaid restart cost raises it, a millisecond

    std::int64_t at(Ms now_ms) const {
        const Ms unpaid_ms = std::max<Ms>(0, paid_ms - now_ms), paid_for_ms = std::max<Ms>(0, now_ms - paid_ms);
        return std::max(least, base - paid_for_ms * rate + unpaid_ms * overhead_rate);
    }
};

}  // namespace trimtab
