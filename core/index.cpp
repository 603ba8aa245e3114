#include "index.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace trimtab {

namespace {

constexpr std::int32_t NOWHERE = -1;

constexpr std::size_t word_of(std::int32_t node) { return static_cast<std::size_t>(node) >> 6; }
constexpr std::uint64_t bit_of(std::int32_t node) { return std::uint64_t{1} << (node & 63); }
constexpr std::int32_t node_of(std::size_t word, std::uint64_t bits) {
    return static_cast<std::int32_t>(word * 64) + std::countr_zero(bits);
}

}  // namespace

void Extra::reset(std::int32_t nodes) {
    if (more_.size() != static_cast<std::size_t>(nodes)) {
        more_.assign(static_cast<std::size_t>(nodes), 0);
    } else {
        for (const std::int32_t node : touched_) more_[static_cast<std::size_t>(node)] = 0;
    }
    touched_.clear();
}

void Extra::add(const Nodes& nodes) {
    for (const Share share : nodes) {
        std::int32_t& more = more_[static_cast<std::size_t>(share.node)];
        if (more == 0) touched_.push_back(share.node);
        more += share.gpus;
    }
}

void Extra::remove(const Nodes& nodes) {
    for (const Share share : nodes) more_[static_cast<std::size_t>(share.node)] -= share.gpus;
}

void NodeIndex::reset(std::int32_t levels, std::int32_t nodes, std::int32_t gpus_per_node) {
    nodes_ = nodes;
    size_ = gpus_per_node;
    words_ = (static_cast<std::size_t>(nodes) + 63) / 64;
    const auto count = static_cast<std::size_t>(levels);
    avail_.assign(count * static_cast<std::size_t>(nodes), gpus_per_node);
    total_.assign(count, static_cast<std::int64_t>(nodes) * gpus_per_node);
    if (nodes == 1) return;
    count_.assign(count * static_cast<std::size_t>(size_ + 1), 0);
    with_.assign(count_.size() * words_, 0);
    taken_.assign(words_, 0);
    excluded_.assign(words_, 0);
    for (std::int32_t level = 0; level < levels; ++level) {
        count_[bucket(level, size_)] = nodes;
        Word* everyone = row(bucket(level, size_));
        for (std::int32_t node = 0; node < nodes; ++node) everyone[word_of(node)] |= bit_of(node);
    }
}

void NodeIndex::enter(std::int32_t level, std::int32_t node, std::int32_t has) {
    const std::size_t to = bucket(level, has);
    ++count_[to];
    row(to)[word_of(node)] |= bit_of(node);
}

void NodeIndex::strike(std::int32_t level, std::int32_t node, std::int32_t has) {
    const std::size_t from = bucket(level, has);
    --count_[from];
    row(from)[word_of(node)] &= ~bit_of(node);
}

void NodeIndex::add(std::int32_t top, std::int32_t bottom, const Nodes& nodes, std::int32_t sign) {
    for (std::int32_t level = top; level < bottom; ++level) {
        for (const Share share : nodes) {
            const std::int32_t change = share.gpus * sign;
            total_[static_cast<std::size_t>(level)] += change;
            std::int32_t& avail = avail_[at(level, share.node)];
            const std::int32_t before = avail;
            avail += change;
            if (nodes_ == 1) continue;
            if (before > 0) strike(level, share.node, before);
            if (avail > 0) enter(level, share.node, avail);
        }
    }
}

std::int32_t NodeIndex::has(std::int32_t level, std::int32_t node, const Extra* extra) const {
    return spare(level, node) + (extra == nullptr ? 0 : extra->on(node));
}

bool NodeIndex::find(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found) {
    if (extra != nullptr && extra->empty()) extra = nullptr;
    if (gpus > size_) return find_wide(level, gpus, extra, found);
    const std::int32_t node = best_fit(level, gpus, extra, false);
    if (node == NOWHERE) return false;
    found.add({node, gpus});
    return true;
}

// Wholly free nodes, lowest first, then the remainder by best fit among the others.
bool NodeIndex::find_wide(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found) {
    if (nodes_ == 1) return false;
    const std::int32_t whole = gpus / size_;
    const std::int32_t rest = gpus % size_;
    const Word* free = row(bucket(level, size_));
    std::copy(free, free + words_, taken_.begin());
    std::int32_t full = count_[bucket(level, size_)];
    if (extra != nullptr) {
        for (const std::int32_t node : extra->touched()) {
            if (has(level, node, extra) != size_ || (taken_[word_of(node)] & bit_of(node)) != 0) continue;
            taken_[word_of(node)] |= bit_of(node);
            ++full;
        }
    }
    if (full < whole) return false;
    std::int32_t missing = whole;
    for (std::size_t word = 0; word < words_; ++word) {
        Word kept = 0;
        for (Word bits = taken_[word]; bits != 0 && missing > 0; bits &= bits - 1) {
            kept |= bits & -bits;
            found.add({node_of(word, bits), size_});
            --missing;
        }
        taken_[word] = kept;
    }
    if (rest == 0) return true;
    const std::int32_t node = best_fit(level, rest, extra, true);
    if (node == NOWHERE) {
        found.clear();
        return false;
    }
    found.add({node, rest});
    return true;
}

// The lowest node with exactly so many free GPUs, none of `excluded_`.
std::int32_t NodeIndex::lowest(std::int32_t level, std::int32_t has) {
    const Word* nodes = row(bucket(level, has));
    for (std::size_t word = 0; word < words_; ++word) {
        if (const Word bits = nodes[word] & ~excluded_[word]; bits != 0) return node_of(word, bits);
    }
    return NOWHERE;
}

// The node with fewest GPUs that still has enough, ties by id, none of `taken_`.
std::int32_t NodeIndex::best_fit(std::int32_t level, std::int32_t gpus, const Extra* extra, bool any_taken) {
    if (nodes_ == 1) return has(level, 0, extra) >= gpus ? 0 : NOWHERE;
    if (any_taken) {
        excluded_ = taken_;
    } else {
        std::fill(excluded_.begin(), excluded_.end(), 0);
    }
    std::pair<std::int32_t, std::int32_t> best{size_ + 1, NOWHERE};
    if (extra != nullptr) {
        for (const std::int32_t node : extra->touched()) {
            excluded_[word_of(node)] |= bit_of(node);
            const bool is_taken = any_taken && (taken_[word_of(node)] & bit_of(node)) != 0;
            const std::int32_t free = has(level, node, extra);
            if (free >= gpus && !is_taken) best = std::min(best, {free, node});
        }
    }
    for (std::int32_t free = gpus; free <= std::min(best.first, size_); ++free) {
        if (count_[bucket(level, free)] == 0) continue;
        const std::int32_t node = lowest(level, free);
        if (node != NOWHERE) return std::min(best, {free, node}).second;
    }
    return best.second;
}

bool NodeIndex::find_spread(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found) {
    std::vector<std::pair<std::int32_t, std::int32_t>> spares;
    for (std::int32_t node = 0; node < nodes_; ++node) {
        if (const std::int32_t free = has(level, node, extra); free > 0) spares.emplace_back(-free, node);
    }
    std::sort(spares.begin(), spares.end());
    for (const auto& [minus_free, node] : spares) {
        const std::int32_t part = std::min(-minus_free, gpus);
        found.add({node, part});
        gpus -= part;
        if (gpus == 0) return true;
    }
    found.clear();
    return false;
}

}  // namespace trimtab
