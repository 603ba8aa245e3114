#include "index.hpp"

#include <algorithm>
#include <bit>

namespace trimtab {

namespace {

constexpr std::int32_t NOWHERE = -1;


}  // namespace

class Layer::Scan {
public:
    Scan(const Layer& layer, std::int32_t has) : words_(layer.words_.data() + layer.word(has, 0)), count_(layer.map_words_) {}

    // The next node, or NOWHERE.
    std::int32_t next() {
        while (bits_ == 0) {
            if (word_ == count_) return NOWHERE;
            bits_ = words_[word_++];
        }
        const auto node = static_cast<std::int32_t>((word_ - 1) * 64) + std::countr_zero(bits_);
        bits_ &= bits_ - 1;
        return node;
    }

private:
    const Word* words_;
    std::size_t count_;
    std::size_t word_ = 0;
    Word bits_ = 0;
};

void Layer::reset(std::int32_t nodes, std::int32_t gpus_per_node) {
    size_ = gpus_per_node;
    total_ = static_cast<std::int64_t>(nodes) * gpus_per_node;
    spare_.assign(static_cast<std::size_t>(nodes), gpus_per_node);
    open_ = nodes;
    if (nodes == 1) return;  // no bitmaps
    map_words_ = (static_cast<std::size_t>(nodes) + 63) / 64;
    words_.assign((static_cast<std::size_t>(size_) + 1) * map_words_, 0);
    for (std::int32_t node = 0; node < nodes; ++node) words_[word(size_, node)] |= bit(node);
}

bool Layer::find(std::int32_t gpus, Nodes& found) const {
    if (open_ == 0) return false;
    if (gpus > size_) return find_wide(gpus, found);
    const std::int32_t node = best_fit(gpus);
    if (node == NOWHERE) return false;
    found.add({node, gpus});
    return true;
}

// The lowest node with exactly so many free GPUs, or NOWHERE.
std::int32_t Layer::lowest(std::int32_t has) const {
    const Word* const map = words_.data() + word(has, 0);
    for (std::size_t at = 0; at < map_words_; ++at) {
        if (map[at] != 0) return static_cast<std::int32_t>(at * 64) + std::countr_zero(map[at]);
    }
    return NOWHERE;
}

// The node with fewest GPUs that still has enough, ties by id.
std::int32_t Layer::best_fit(std::int32_t gpus) const {
    if (map_words_ == 0) return spare_.front() >= gpus ? 0 : NOWHERE;
    for (std::int32_t has = gpus; has <= size_; ++has) {
        if (const std::int32_t node = lowest(has); node != NOWHERE) return node;
    }
    return NOWHERE;
}

// Wholly free nodes, lowest first, then the remainder by best fit among the others.
bool Layer::find_wide(std::int32_t gpus, Nodes& found) const {
    if (map_words_ == 0) return false;
    const std::int32_t whole = gpus / size_;
    const std::int32_t rest = gpus % size_;
    Scan free(*this, size_);
    std::int32_t node = 0;
    for (std::int32_t taken = 0; taken < whole && node != NOWHERE; ++taken) {
        node = free.next();
        found.add({node, size_});
    }
    if (node != NOWHERE && rest > 0) {
        node = best_fit(rest);
        if (node != NOWHERE && spare(node) == size_) node = free.next();
        found.add({node, rest});
    }
    if (node == NOWHERE) found.clear();
    return node != NOWHERE;
}

std::int32_t Layer::last_free() const {
    if (map_words_ == 0) return spare_.front() == size_ ? 0 : NOWHERE;
    const Word* const map = words_.data() + word(size_, 0);
    for (std::size_t at = map_words_; at-- > 0;) {
        if (map[at] != 0) return static_cast<std::int32_t>(at * 64) + 63 - std::countl_zero(map[at]);
    }
    return NOWHERE;
}

bool Layer::find_spread(std::int32_t gpus, Nodes& found) const {
    if (map_words_ == 0) return find(gpus, found);
    for (std::int32_t has = size_; has > 0; --has) {
        Scan nodes(*this, has);
        for (std::int32_t node = nodes.next(); node != NOWHERE; node = nodes.next()) {
            const std::int32_t part = std::min(has, gpus);
            found.add({node, part});
            gpus -= part;
            if (gpus == 0) return true;
        }
    }
    found.clear();
    return false;
}

void NodeIndex::reset(std::int32_t levels, std::int32_t nodes, std::int32_t gpus_per_node) {
    layers_.resize(static_cast<std::size_t>(levels));
    for (Layer& layer : layers_) layer.reset(nodes, gpus_per_node);
}

}  // namespace trimtab
