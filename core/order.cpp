#include "order.hpp"

namespace trimtab {

std::strong_ordering compare_long(std::int64_t one_key, std::int64_t two_key) {
    constexpr std::int64_t PLAIN = std::numeric_limits<std::int64_t>::max();
    const auto parts = [](std::int64_t key) -> const std::vector<std::int64_t>& {
        return reinterpret_cast<const LongKey*>(static_cast<std::intptr_t>(key & PLAIN))->parts;
    };
    return parts(one_key) <=> parts(two_key);
}

}  // namespace trimtab
