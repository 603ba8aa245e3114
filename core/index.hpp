// Free GPUs per level, indexed so that a best fit is a look-up; see `simulate/index.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace trimtab {

// GPUs that an asker may have besides, by node.
class Extra {
public:
    void reset(std::int32_t nodes);
    void add(const Nodes& nodes);
    void remove(const Nodes& nodes);
    bool empty() const { return touched_.empty(); }
    const std::vector<std::int32_t>& touched() const { return touched_; }
    std::int32_t on(std::int32_t node) const { return more_[static_cast<std::size_t>(node)]; }

private:
    std::vector<std::int32_t> more_;
    std::vector<std::int32_t> touched_;  // nodes that have or had more; some may stand twice
};

// Per level, each node's free GPUs and, per number of them, the set of nodes as a bitmap of any length.
//
// Placement `count` is one node that has all GPUs; a single node needs no bitmaps.
class NodeIndex {
public:
    void reset(std::int32_t levels, std::int32_t nodes, std::int32_t gpus_per_node);

    // A consolidated place for a gang, put into `found`; false if there is none.
    bool find(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found);

    // A place on the nodes with most free GPUs; false if there is none.
    bool find_spread(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found);

    // Give (sign 1) or take (-1) GPUs at the levels top .. bottom - 1.
    void add(std::int32_t top, std::int32_t bottom, const Nodes& nodes, std::int32_t sign);

    // What a node has left at a level; below 0 while a walk has promised what is not yet given up.
    std::int32_t spare(std::int32_t level, std::int32_t node) const { return avail_[at(level, node)]; }

    // What all nodes together have left at a level.
    std::int64_t total(std::int32_t level) const { return total_[static_cast<std::size_t>(level)]; }

    std::int32_t nodes() const { return nodes_; }

private:
    using Word = std::uint64_t;

    std::size_t at(std::int32_t level, std::int32_t node) const {
        return static_cast<std::size_t>(level) * static_cast<std::size_t>(nodes_) + static_cast<std::size_t>(node);
    }
    std::size_t bucket(std::int32_t level, std::int32_t has) const {
        return static_cast<std::size_t>(level) * static_cast<std::size_t>(size_ + 1) + static_cast<std::size_t>(has);
    }
    Word* row(std::size_t bucket) { return with_.data() + bucket * words_; }
    void enter(std::int32_t level, std::int32_t node, std::int32_t has);
    void strike(std::int32_t level, std::int32_t node, std::int32_t has);
    std::int32_t has(std::int32_t level, std::int32_t node, const Extra* extra) const;
    std::int32_t lowest(std::int32_t level, std::int32_t has);
    std::int32_t best_fit(std::int32_t level, std::int32_t gpus, const Extra* extra, bool any_taken);
    bool find_wide(std::int32_t level, std::int32_t gpus, const Extra* extra, Nodes& found);

    std::int32_t nodes_ = 0;
    std::int32_t size_ = 0;   // GPUs a node
    std::size_t words_ = 0;   // of a bitmap of nodes
    std::vector<std::int32_t> avail_;
    std::vector<std::int64_t> total_;
    std::vector<std::int32_t> count_;  // nodes in each bitmap
    std::vector<Word> with_;
    std::vector<Word> taken_, excluded_;  // scratch
};

}  // namespace trimtab
