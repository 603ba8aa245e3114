#include "timers.hpp"

#include <algorithm>

namespace trimtab {

void Timers::set(const Timer& timer) {
    const std::int32_t place = place_[static_cast<std::size_t>(timer.job)];
    if (place == ABSENT) {
        heap_.push_back(timer);
        rise(heap_.size() - 1, timer);
    } else if (timer < heap_[static_cast<std::size_t>(place)]) {
        rise(static_cast<std::size_t>(place), timer);
    } else {
        sink(static_cast<std::size_t>(place), timer);
    }
}

void Timers::erase(JobId job) {
    const std::int32_t found = place_[static_cast<std::size_t>(job)];
    if (found == ABSENT) return;
    place_[static_cast<std::size_t>(job)] = ABSENT;
    const auto place = static_cast<std::size_t>(found);
    const Timer last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    if (place > 0 && last < heap_[(place - 1) / WAYS]) {
        rise(place, last);
    } else {
        sink(place, last);
    }
}

void Timers::clear() {
    for (const Timer& timer : heap_) place_[static_cast<std::size_t>(timer.job)] = ABSENT;
    heap_.clear();
}

void Timers::put(std::size_t place, const Timer& timer) {
    heap_[place] = timer;
    place_[static_cast<std::size_t>(timer.job)] = static_cast<std::int32_t>(place);
}

// Let a timer rise from a place, others making way.
void Timers::rise(std::size_t place, const Timer& timer) {
    while (place > 0) {
        const std::size_t above = (place - 1) / WAYS;
        if (!(timer < heap_[above])) break;
        put(place, heap_[above]);
        place = above;
    }
    put(place, timer);
}

// Let the earliest of those below move up, all the way; then the timer rises to where it belongs.
void Timers::sink(std::size_t place, const Timer& timer) {
    const std::size_t count = heap_.size();
    for (std::size_t below = WAYS * place + 1; below < count; below = WAYS * place + 1) {
        const std::size_t end = std::min(below + WAYS, count);
        std::size_t first = below;
        for (std::size_t next = below + 1; next < end; ++next) first = heap_[next] < heap_[first] ? next : first;
        put(place, heap_[first]);
        place = first;
    }
    rise(place, timer);
}

}  // namespace trimtab
