#include "synergy.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "index.hpp"

namespace trimtab {

namespace {

// A job in the pass. `nodes` are those it has afterwards.
struct Entry {
    const Job* job;
    std::int64_t key;
    const Ladder* ladder;
    Nodes nodes;

    bool runs() const { return job->state == State::running; }
};

// Who runs and where, decided job by job; see `Crew`.
class Crew {
public:
    explicit Crew(const View& view) : view_(view), rooms_(static_cast<std::size_t>(view.vc.nodes), Room(view.vc)) {
        free_.reset(view.vc.nodes, view.vc.gpus_per_node);
        for (std::int32_t node = 0; node < view.vc.nodes; ++node) {
            free_.add({node, view.free_gpus[static_cast<std::size_t>(node)] - view.vc.gpus_per_node}, 1);
        }
        lifted_ = free_;
        for (const Job* const job : view.running) lifted_.add(job->nodes, 1);
    }

    // Seat a job if there are GPUs for it; a running one that cannot stay is added to `lost`.
    bool seat(Entry& entry, std::vector<JobId>& lost) {
        if (entry.runs() && keeps(entry)) return true;
        if (entry.runs()) {
            lost.push_back(entry.job->id);
            free_.add(entry.job->nodes, 1);
        }
        if (entry.job->gpus >= failed_) return false;
        if (!find(free_, entry) && !find(lifted_, entry)) {
            failed_ = entry.job->gpus;
            return false;
        }
        free_.add(entry.nodes, -1);
        take(entry);
        return true;
    }

private:
    bool keeps(Entry& entry) {
        for (const Share share : entry.job->nodes) {
            if (lifted_.spare(share.node) < share.gpus) return false;
        }
        entry.nodes = entry.job->nodes;
        take(entry);
        return true;
    }

    void take(const Entry& entry) {
        lifted_.add(entry.nodes, -1);
        enter(view_.vc, entry, rooms_);
    }

    // GPUs for a job; what no single node holds goes by the placement rule.
    bool find(const Layer& free, Entry& entry) const {
        const std::int32_t gpus = entry.job->gpus;
        if (gpus <= view_.vc.gpus_per_node && find_room(free, entry)) return true;
        return free.find(gpus, entry.nodes) || (view_.relaxed && free.find_spread(gpus, entry.nodes));
    }

    // The node with fewest free GPUs that has a job's best share left, else its least.
    bool find_room(const Layer& free, Entry& entry) const {
        if (entry.ladder == nullptr) return false;
        for (const Option* const want : {&entry.ladder->best, &entry.ladder->lean}) {
            std::int32_t found = -1, fewest = std::numeric_limits<std::int32_t>::max();
            for (std::int32_t node = 0; node < free.nodes(); ++node) {
                const std::int32_t spare = free.spare(node);
                if (spare < entry.job->gpus || spare >= fewest) continue;
                if (rooms_[static_cast<std::size_t>(node)].holds(*want)) found = node, fewest = spare;
            }
            if (found < 0) continue;
            entry.nodes.add({found, entry.job->gpus});
            return true;
        }
        return false;
    }

public:
    // Let a job into the rooms of its nodes; over several of them it has its proportional parts.
    static void enter(const VirtualCluster& vc, const Entry& entry, std::vector<Room>& rooms) {
        const Ladder* const ladder = entry.nodes.size() == 1 ? entry.ladder : nullptr;
        for (const Share share : entry.nodes) {
            rooms[static_cast<std::size_t>(share.node)].add({entry.job->id, share.gpus, ladder, vc.proportional(share.gpus)},
                                                            ladder == nullptr ? nullptr : &ladder->best);
        }
    }

private:
    const View& view_;
    Layer free_, lifted_;  // what is really free; and with what running jobs hold that were not reached yet
    std::vector<Room> rooms_;
    std::int32_t failed_ = std::numeric_limits<std::int32_t>::max();  // fewest GPUs for which there was no place
};

// Give CPU and memory to those who run, in the policy's order; see `divide`.
std::vector<Room> divide(const View& view, const std::vector<Entry>& order) {
    std::vector<Room> rooms(static_cast<std::size_t>(view.vc.nodes), Room(view.vc));
    for (const Entry& entry : order) {
        if (!entry.nodes.empty()) Crew::enter(view.vc, entry, rooms);
    }
    for (Room& room : rooms) room.fill();
    return rooms;
}

// CPU and memory of jobs by id, where they are not the proportional part.
std::vector<Verdict::Given> given(const View& view, const std::vector<Room>& rooms) {
    std::vector<Verdict::Given> found;
    for (const Room& room : rooms) {
        for (const Seat& seat : room.seats()) {
            const Allotment due = view.vc.proportional(seat.gpus);
            if (seat.ladder == nullptr || (seat.at.cores == due.cores && seat.at.memory_mib == due.memory_mib)) continue;
            found.push_back({seat.id, {seat.at.cores, seat.at.memory_mib}});
        }
    }
    std::sort(found.begin(), found.end(), [](const auto& one, const auto& two) { return one.id < two.id; });
    return found;
}

Allotment share_of(const std::vector<Verdict::Given>& given, JobId id) {
    const auto place = std::lower_bound(given.begin(), given.end(), id, [](const auto& one, JobId job) { return one.id < job; });
    return place != given.end() && place->id == id ? place->share : Allotment{};
}

bool differ(Allotment one, Allotment two) {
    if (!one.is_told() || !two.is_told()) return one.is_told() != two.is_told();
    return one.cores != two.cores || one.memory_mib != two.memory_mib;
}

std::int64_t key_of(SynergyRules::Order order, const Job& job, Ms now_ms) {
    switch (order) {
        case SynergyRules::Order::fifo: break;
        case SynergyRules::Order::srtf: return job.remaining(now_ms);
        case SynergyRules::Order::las: return job.attained_gpu_ms();
    }
    return 0;
}

}  // namespace

Verdict Synergy::decide(const View& view) const {
    std::vector<Entry> order;
    order.reserve(view.running.size() + view.pending.size());
    for (const auto* const jobs : {&view.running, &view.pending}) {
        for (const Job* const job : *jobs) {
            const bool has_choice = rules_.gives && job->gpus <= view.vc.gpus_per_node;
            order.push_back({job, key_of(rules_.order, *job, view.now_ms),
                             has_choice ? ladders_.of(view.curve(*job), job->gpus, view.vc) : nullptr, {}});
        }
    }
    const auto by_key = [](const Entry& one, const Entry& two) {
        return one.key != two.key ? one.key < two.key : one.job->id < two.job->id;
    };
    // Under fifo, running jobs are reached first; CPU and memory are given in order of arrival all the same.
    if (rules_.order != SynergyRules::Order::fifo) std::sort(order.begin(), order.end(), by_key);

    Verdict verdict;
    Crew crew(view);
    for (Entry& entry : order) {
        if (!crew.seat(entry, verdict.lost)) continue;
        const bool is_lost = !verdict.lost.empty() && verdict.lost.back() == entry.job->id;
        if (!entry.runs() || is_lost) verdict.places.emplace_back(entry.job->id, entry.nodes);
    }
    std::sort(order.begin(), order.end(), by_key);
    const std::vector<Verdict::Given> shares = given(view, divide(view, order));
    for (const auto& [id, nodes] : verdict.places) {
        if (const Allotment share = share_of(shares, id); share.is_told()) verdict.shares.push_back({id, share});
    }
    for (const Job* const job : view.running) {
        if (std::find(verdict.lost.begin(), verdict.lost.end(), job->id) != verdict.lost.end()) continue;
        const Allotment share = share_of(shares, job->id);
        if (differ(share, view.care(*job).share)) verdict.resizes.push_back({job->id, share});
    }
    verdict.is_empty = verdict.lost.empty() && verdict.places.empty() && verdict.resizes.empty();
    return verdict;
}

Ms Synergy::next_review_ms(const View& view) const {
    const bool matters = rules_.order == SynergyRules::Order::las && !view.pending.empty() && !view.running.empty();
    return matters && rules_.round_ms != 0 ? view.now_ms + rules_.round_ms : std::int64_t{NONE};
}

}  // namespace trimtab
