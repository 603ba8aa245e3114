#include "lucid.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

namespace {

constexpr std::int32_t NOWHERE = -1;
constexpr std::int32_t MORE_WHEN_WAITING = 10, LESS_WHEN_WAITING = 5;
constexpr std::int64_t FORECAST_BINS = 5;

std::int64_t service_of(const Job& job) { return job.estimate_ms * job.member_gpus; }

}  // namespace

std::int64_t Pace::at(Ms now_ms) const {
    const auto later = [](Ms time_ms, const auto& step) { return time_ms < step.first; };
    const auto next = std::upper_bound(steps.begin(), steps.end(), now_ms, later);
    return (next == steps.begin() ? next : next - 1)->second;
}

Ms Pace::next_ms(Ms now_ms) const {
    const auto later = [](Ms time_ms, const auto& step) { return time_ms < step.first; };
    const auto next = std::upper_bound(steps.begin(), steps.end(), now_ms, later);
    return next == steps.end() ? std::int64_t{NONE} : next->first;
}

// ---- who is there ------------------------------------------------------------------------------------

void Lucid::reset(std::int32_t nodes, std::int32_t gpus_per_node, const std::vector<std::int32_t>& widths,
                  std::int32_t kinds) {
    nodes_ = nodes;
    size_ = gpus_per_node;
    kinds_ = std::max(kinds, 1);
    widths_ = widths;
    main_.reset(nodes, gpus_per_node);
    profiler_.clear();
    open_.clear();
    used_.assign(static_cast<std::size_t>(nodes), 0);
    limit_ = 0;
    new_.clear();
    queue_.clear();
    pending_.assign(widths.size(), 0);
    fresh_.assign(widths.size(), 0);
    singles_.assign(widths.size(), {});
    versions_.assign(widths.size(), 1);
    failures_.assign(widths.size() * static_cast<std::size_t>(kinds_), {});
}

void Lucid::enter(const Job& job, std::int32_t width, std::int32_t kind) {
    if (job.until_ms != NONE) {
        for (const Share share : job.nodes) {
            if (used_[static_cast<std::size_t>(share.node)] == 0) {
                main_.add({share.node, size_}, -1);
                profiler_.insert(std::lower_bound(profiler_.begin(), profiler_.end(), share.node), share.node);
            }
            used_[static_cast<std::size_t>(share.node)] += share.gpus;
        }
        return;
    }
    if (!job.is_guest()) main_.add(job.nodes, -1);
    if (job.partner < 0) stay_alone(job, width, kind);
}

void Lucid::stay_alone(const Job& job, std::int32_t width, std::int32_t kind) {
    if (job.nodes.size() > 1) return;
    add_single(width, {job.started_ms, job.id, kind, job.member_gpus, service_of(job)});
}

void Lucid::add_single(std::int32_t width, const Single& single) {
    std::vector<Single>& line = singles_[static_cast<std::size_t>(width)];
    line.insert(std::lower_bound(line.begin(), line.end(), single), single);
    ++versions_[static_cast<std::size_t>(width)];
}

void Lucid::leave(const Job& job, std::int32_t width) {
    if (job.until_ms != NONE) {
        for (const Share share : job.nodes) used_[static_cast<std::size_t>(share.node)] -= share.gpus;
        return;
    }
    main_.add(job.nodes, 1);
    if (job.nodes.size() > 1) return;
    std::vector<Single>& line = singles_[static_cast<std::size_t>(width)];
    line.erase(std::lower_bound(line.begin(), line.end(), Single{job.started_ms, job.id, 0, 0, 0}));
}

void Lucid::push(const Job& job, std::int32_t width, std::int32_t kind) {
    const Waiting waiting{0, job.id, width, kind, job.first_start_ms == NONE, job.gpus, job.member_gpus, service_of(job)};
    count(waiting, 1);
    insert(waiting);
}

void Lucid::count(const Waiting& job, std::int32_t by) {
    pending_[static_cast<std::size_t>(job.width)] += by;
    if (job.is_new) fresh_[static_cast<std::size_t>(job.width)] += by;
}

void Lucid::insert(Waiting job) {
    const bool is_profiled = job.is_new && job.gpus <= limit_;
    job.key = is_profiled ? job.gpus : job.service;
    std::vector<Waiting>& line = is_profiled ? new_ : queue_;
    line.insert(std::upper_bound(line.begin(), line.end(), job), job);
}

// Let another limit decide who is profiled.
void Lucid::split(std::int32_t limit) {
    if (limit == limit_) return;
    limit_ = limit;
    std::vector<Waiting> waiting = std::move(new_);
    waiting.insert(waiting.end(), queue_.begin(), queue_.end());
    new_.clear();
    queue_.clear();
    for (const Waiting& job : waiting) insert(job);
}

void Lucid::all(std::vector<JobId>& found) const {
    for (const Waiting& job : new_) found.push_back(job.id);
    for (const Waiting& job : queue_) found.push_back(job.id);
}

// ---- the profiler ------------------------------------------------------------------------------------

// How many of so many nodes may profile: every waiting gang must fit on the others.
std::int32_t Lucid::room(std::int32_t nodes) const {
    std::int32_t widest = 0;
    for (std::size_t width = 0; width < widths_.size(); ++width) {
        if (pending_[width] > 0) widest = widths_[width];
    }
    const auto needed = static_cast<std::int32_t>(ceil_div(widest, size_));
    return std::max(0, std::min({nodes, nodes_ - 1, nodes_ - needed}));
}

// Nodes that profile already come first, then idle ones, each last to first.
void Lucid::lay_out(const LucidRules& rules) {
    const std::int32_t wanted = room(rules.prof_nodes);
    const std::int32_t gpus = wanted * std::min(rules.prof_factor, size_);
    open_.clear();
    for (const std::int32_t node : profiler_) {
        if (used_[static_cast<std::size_t>(node)] > 0) {
            open_.push_back(node);
        } else {
            main_.add({node, size_}, 1);
        }
    }
    profiler_ = open_;
    const auto busy = static_cast<std::int32_t>(open_.size());
    std::int32_t more = wanted;
    if (rules.autoscales && wanted > 0 && room(wanted + 1) > wanted) {
        std::int32_t waiting = 0;
        for (std::size_t width = 0; width < widths_.size() && widths_[width] <= gpus; ++width) waiting += fresh_[width];
        more += waiting > MORE_WHEN_WAITING || (busy > wanted && waiting >= LESS_WHEN_WAITING) ? 1 : 0;
    }
    if (busy > more) open_.erase(open_.begin(), open_.end() - more);
    for (std::int32_t missing = more - busy; missing > 0; --missing) {
        const std::int32_t node = main_.last_free();
        if (node == NOWHERE) break;
        main_.add({node, size_}, -1);
        for (std::vector<std::int32_t>* nodes : {&profiler_, &open_}) {
            nodes->insert(std::lower_bound(nodes->begin(), nodes->end(), node), node);
        }
    }
    split(std::min(static_cast<std::int32_t>(open_.size()), wanted) * std::min(rules.prof_factor, size_));
}

// The open node with fewest free GPUs that has enough, ties by id, none of `taken`.
std::int32_t Lucid::best_profiler(std::int32_t gpus, const Nodes& taken) const {
    std::int32_t best = NOWHERE, least = std::numeric_limits<std::int32_t>::max();
    for (const std::int32_t node : open_) {
        const std::int32_t free = size_ - used_[static_cast<std::size_t>(node)];
        const bool is_taken = std::any_of(taken.begin(), taken.begin() + taken.size(), [node](Share share) { return share.node == node; });
        if (free < gpus || free >= least || is_taken) continue;
        best = node;
        least = free;
    }
    return best;
}

bool Lucid::place_profile(std::int32_t gpus, Nodes& found) const {
    std::int32_t whole = gpus > size_ ? gpus / size_ : 0;
    const std::int32_t rest = gpus - whole * size_;
    for (const std::int32_t node : open_) {
        if (whole == 0) break;
        if (used_[static_cast<std::size_t>(node)] > 0) continue;
        found.add({node, size_});
        --whole;
    }
    if (whole > 0) return false;
    if (rest == 0) return true;
    const std::int32_t node = best_profiler(rest, found);
    if (node != NOWHERE) found.add({node, rest});
    return node != NOWHERE;
}

// Start profiles, fewest GPUs first; the first job that does not fit stops the others.
void Lucid::profile(const LucidScene& scene, Verdict& verdict) {
    std::size_t started = 0;
    for (; started < new_.size(); ++started) {
        const Waiting& job = new_[started];
        Nodes nodes;
        if (!place_profile(job.gpus, nodes)) break;
        for (const Share share : nodes) used_[static_cast<std::size_t>(share.node)] += share.gpus;
        count(job, -1);
        verdict.places.emplace_back(job.id, std::move(nodes));
        verdict.terms.push_back({job.id, scene.now_ms + scene.rules.t_prof_ms, -1});
    }
    new_.erase(new_.begin(), new_.begin() + static_cast<std::ptrdiff_t>(started));
}

// ---- the binder --------------------------------------------------------------------------------------

bool Lucid::shares(const LucidScene& scene) const {
    const std::int64_t below_ppm = scene.rules.off_below_ppm;
    const bool busy = below_ppm == 0 || scene.pace == nullptr || scene.pace->at(scene.now_ms) > below_ppm;
    return busy && scene.rules.gsc > 0 && scene.pairing != nullptr;
}

bool Lucid::packs_first(const LucidScene& scene) const {
    if (scene.rules.prefers != LucidRules::Prefers::forecast) {
        return scene.rules.prefers == LucidRules::Prefers::pack_first;
    }
    const Wide coming_ppm = scene.pace == nullptr ? 0 : Wide{FORECAST_BINS} * scene.pace->at(scene.now_ms);
    return coming_ppm > Wide{main_.total()} * FULL_SPEED_PPM;
}

Verdict Lucid::pass(const LucidScene& scene) {
    Verdict verdict;
    lay_out(scene.rules);
    profile(scene, verdict);
    const bool may_share = shares(scene), is_packed_first = packs_first(scene);
    failed_ = std::numeric_limits<std::int32_t>::max();
    std::size_t kept = 0, next = 0;
    for (; next < queue_.size(); ++next) {
        const Waiting job = queue_[next];
        bool started = may_share && is_packed_first && start_beside(scene, job, verdict);
        started = started || start_alone(scene, job, verdict);
        started = started || (may_share && !is_packed_first && start_beside(scene, job, verdict));
        if (started) {
            count(job, -1);
        } else if (scene.rules.strict) {
            break;
        } else {
            queue_[kept++] = job;
        }
    }
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(kept), queue_.begin() + static_cast<std::ptrdiff_t>(next));
    verdict.is_empty = verdict.places.empty();
    return verdict;
}

bool Lucid::start_alone(const LucidScene& scene, const Waiting& job, Verdict& verdict) {
    if (job.gpus >= failed_) return false;
    Nodes nodes;
    if (!main_.find(job.gpus, nodes) && !(scene.relaxed && main_.find_spread(job.gpus, nodes))) {
        failed_ = job.gpus;
        return false;
    }
    main_.add(nodes, -1);
    if (nodes.size() == 1) add_single(job.width, {scene.now_ms, job.id, job.kind, job.member_gpus, job.service});
    verdict.places.emplace_back(job.id, std::move(nodes));
    return true;
}

bool Lucid::goes(const LucidScene& scene, const Waiting& job, const Single& other) const {
    const LucidRules& rules = scene.rules;
    const Pairing& pairing = *scene.pairing;
    const auto mine = static_cast<std::size_t>(job.kind), its = static_cast<std::size_t>(other.kind);
    return job.member_gpus == other.member_gpus &&
           pairing.gmem_mib[mine] + pairing.gmem_mib[its] < rules.mem_limit_mib &&
           rules.scores[mine] + rules.scores[its] <= rules.gsc && pairing.fits[pairing.at(job.kind, other.kind)] != 0 &&
           (rules.ratio_ppm == NONE || Wide{job.service} * FULL_SPEED_PPM <= Wide{rules.ratio_ppm} * other.service);
}

// Start a job on the GPUs of a running one with as many.
bool Lucid::start_beside(const LucidScene& scene, const Waiting& job, Verdict& verdict) {
    if (job.gpus > size_) return false;
    const auto width = static_cast<std::size_t>(job.width);
    Failure& failure = failures_[width * static_cast<std::size_t>(kinds_) + static_cast<std::size_t>(job.kind)];
    if (failure.version == versions_[width] && job.service >= failure.service) return false;
    std::vector<Single>& line = singles_[width];
    std::size_t best = line.size();
    std::int64_t most_ppm = -1;
    for (std::size_t at = 0; at < line.size(); ++at) {
        if (!goes(scene, job, line[at])) continue;
        const std::size_t pair = scene.pairing->at(job.kind, line[at].kind);
        const std::int64_t kept_ppm = scene.pairing->newcomers_ppm[pair] + scene.pairing->partners_ppm[pair];
        if (kept_ppm > most_ppm) {
            best = at;
            most_ppm = kept_ppm;
        }
        if (!scene.rules.is_best) break;
    }
    if (best == line.size()) {
        failure = {versions_[width], job.service};
        return false;
    }
    const JobId partner = line[best].id;
    line.erase(line.begin() + static_cast<std::ptrdiff_t>(best));
    verdict.places.emplace_back(job.id, Nodes());
    verdict.terms.push_back({job.id, NONE, partner});
    return true;
}

Ms Lucid::next_review_ms(const LucidScene& scene) const {
    const LucidRules& rules = scene.rules;
    const bool depends = rules.off_below_ppm > 0 || rules.prefers == LucidRules::Prefers::forecast;
    const bool waits = !new_.empty() || !queue_.empty();
    if (scene.pace == nullptr || scene.pairing == nullptr || rules.gsc == 0 || !depends || !waits) return NONE;
    return scene.pace->next_ms(scene.now_ms);
}

}  // namespace trimtab
