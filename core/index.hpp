// Free GPUs per level, indexed so that a best fit is a look-up; see `simulate/index.py`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace trimtab {

// Each node's free GPUs as one level sees them and, per number of them, the set of nodes as a bitmap of any
// length: a best fit is the lowest node of the first set that is not empty.
//
// Placement `count` is one node that has all GPUs; a single node needs no bitmaps.
class Layer {
public:
    void reset(std::int32_t nodes, std::int32_t gpus_per_node);

    std::int32_t nodes() const { return static_cast<std::int32_t>(spare_.size()); }
    std::int32_t spare(std::int32_t node) const { return spare_[static_cast<std::size_t>(node)]; }
    const std::vector<std::int32_t>& spares() const { return spare_; }  // by node
    std::int64_t total() const { return total_; }

    // Give (sign 1) or take (-1) GPUs.
    void add(const Nodes& nodes, std::int32_t sign) {
        for (const Share share : nodes) add(share, sign);
    }
    void add(Share share, std::int32_t sign) { add(share.node, share.gpus * sign); }

    friend bool operator==(const Layer& one, const Layer& two) = default;

    // A consolidated place for a gang, put into `found`; false if there is none.
    bool find(std::int32_t gpus, Nodes& found) const;

    // The last node of which all GPUs are free, or -1.
    std::int32_t last_free() const;

    // A place on the nodes with most free GPUs; false if there is none.
    bool find_spread(std::int32_t gpus, Nodes& found) const;

private:
    using Word = std::uint64_t;

    // The nodes of one bitmap, lowest first.
    class Scan;

    std::size_t word(std::int32_t has, std::int32_t node) const {
        return static_cast<std::size_t>(has) * map_words_ + (static_cast<std::size_t>(node) >> 6);
    }
    static constexpr Word bit(std::int32_t node) { return Word{1} << (node & 63); }
    void add(std::int32_t node, std::int32_t gpus) {
        total_ += gpus;
        std::int32_t& spare = spare_[static_cast<std::size_t>(node)];
        const std::int32_t before = spare, now = before + gpus;
        spare = now;
        open_ += (now > 0 ? 1 : 0) - (before > 0 ? 1 : 0);
        if (map_words_ == 0) return;
        if (before >= 0) words_[word(before, node)] &= ~bit(node);
        if (now >= 0) words_[word(now, node)] |= bit(node);
    }
    std::int32_t lowest(std::int32_t has) const;
    std::int32_t best_fit(std::int32_t gpus) const;
    bool find_wide(std::int32_t gpus, Nodes& found) const;

    std::int32_t size_ = 0;        // GPUs a node
    std::int64_t total_ = 0;       // free GPUs of all nodes
    std::int32_t open_ = 0;        // nodes with any
    std::size_t map_words_ = 0;    // of a bitmap of nodes, 0 if there are none
    std::vector<std::int32_t> spare_;
    std::vector<Word> words_;  // bitmap after bitmap
};

// A layer for each level: what is free for its jobs if they take all that lower levels hold.
class NodeIndex {
public:
    void reset(std::int32_t levels, std::int32_t nodes, std::int32_t gpus_per_node);

    // Give (sign 1) or take (-1) GPUs at the levels top .. bottom - 1.
    void add(std::int32_t top, std::int32_t bottom, const Nodes& nodes, std::int32_t sign) {
        for (std::int32_t level = top; level < bottom; ++level) layers_[static_cast<std::size_t>(level)].add(nodes, sign);
    }

    const Layer& layer(std::int32_t level) const { return layers_[static_cast<std::size_t>(level)]; }
    std::int32_t spare(std::int32_t level, std::int32_t node) const { return layer(level).spare(node); }
    std::int32_t nodes() const { return layers_.front().nodes(); }

private:
    std::vector<Layer> layers_;
};

}  // namespace trimtab
