#include "themis.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace trimtab {

namespace {

constexpr std::int64_t PPM = 1'000'000;
constexpr std::int64_t WHOLE = std::int64_t{1} << 40;
constexpr Ms OLDEST_MS = std::int64_t{1} << 42;  // 139 years; rho in 128 bits needs a bound

__extension__ typedef unsigned __int128 Wider;

}  // namespace

std::int64_t log2_units(std::int64_t numerator, std::int64_t denominator) {
    constexpr int ONE = 62, DIGITS = 40;
    std::int64_t found = 63 - __builtin_clzll(static_cast<unsigned long long>(numerator / denominator));
    Wider mantissa = (static_cast<Wider>(numerator) << ONE) / (static_cast<Wider>(denominator) << found);
    for (int digit = 0; digit < DIGITS; ++digit) {
        mantissa = mantissa * mantissa >> ONE;
        found <<= 1;
        if (mantissa >> (ONE + 1) != 0) {
            mantissa >>= 1;
            ++found;
        }
    }
    return found;
}

namespace {

double near(Wide value) {
    const auto narrow = static_cast<std::int64_t>(value);
    return narrow == value ? static_cast<double>(narrow) : static_cast<double>(value);
}

// one * two / (three * four) rounded down, none of them negative. As doubles it is mostly near enough to need one correction.
std::int64_t quotient(std::int64_t one, Wide two, std::int64_t three, Wide four) {
    constexpr double EXACT = 1e15;
    const double near_by = static_cast<double>(one) * near(two) / (static_cast<double>(three) * near(four));
    const Wide numerator = one * two, denominator = three * four;
    if (near_by > EXACT) return static_cast<std::int64_t>(numerator / denominator);
    auto found = static_cast<std::int64_t>(near_by);
    while (found * denominator > numerator) --found;
    while ((found + 1) * denominator <= numerator) ++found;
    return found;
}

}  // namespace

Crowding Crowding::of(Ms age_ms, std::int64_t job_ms, std::int32_t gpus, std::int32_t vc_gpus, bool paper) {
    if (paper) return {job_ms, age_ms};
    const Wide asked = Wide{gpus} * job_ms, there = Wide{vc_gpus} * age_ms;
    return asked <= there ? Crowding{1, 1} : Crowding{asked, there};
}

void Themis::run(const Scene& scene, Partition& part, Verdict& verdict) {
    scene_ = &scene;
    part_ = &part;
    verdict.lost.clear();
    verdict.places.clear();
    verdict.grants.clear();
    settle_leases();
    const bool is_due = rules().delay_ms == 0 || part.review_ms == scene.now_ms;
    if (part.desk.waiting().empty() || !is_due) return;
    const Layer& free = part.index.layer(0);
    if (part.desk.ended.empty() && free.total() == 0) return;
    offer(free);
    if (serves_anyone()) {
        bid();
        order();
        walk(bids_.size(), -1, verdict, won_);
    } else {  // all who hold GPUs go on
        visible_ = 0;
        kept_ = part.desk.ended;
    }
    grant(verdict);
    part.desk.ended.clear();
}

Ms Themis::next_review_ms(const Scene& scene, const Partition& part) {
    const AuctionRules& rules = *scene.plan.auction;
    if (rules.delay_ms == 0 || part.review_ms == scene.now_ms) return NONE;
    if (part.review_ms != NONE) return part.review_ms;
    if (part.desk.waiting().empty()) return NONE;
    const auto is_over = [&scene](JobId id) { return scene.job(id).lease_end_ms <= scene.now_ms; };
    const bool asked = part.index.layer(0).total() > 0 || std::any_of(part.running.begin(), part.running.end(), is_over);
    return asked ? scene.now_ms + rules.delay_ms : std::int64_t{NONE};
}

// ---- leases ----------------------------------------------------------------------------------------

// Bring all leases up to now, and find those that have ended.
void Themis::settle_leases() {
    Desk& desk = part_->desk;
    if (part_->renewal_ms != rules().lease_ms) {
        part_->renewal_ms = rules().lease_ms;
        for (const JobId id : part_->running) {
            Job& job = scene_->job(id);
            const Ms end_before_ms = job.lease_end_ms;
            stand(job);
            if (job.lease_end_ms != end_before_ms) desk.lease(job);  // else it is in line already
        }
    }
    const auto is_gone = [this](JobId id) {
        const Job& job = scene_->job(id);
        return job.state != State::running || job.lease_end_ms > scene_->now_ms;
    };
    desk.ended.erase(std::remove_if(desk.ended.begin(), desk.ended.end(), is_gone), desk.ended.end());
    for (JobId id = 0; desk.next_ended(scene_->jobs, scene_->now_ms, id);) {
        Job& job = scene_->job(id);
        stand(job);
        job.lease_end_ms <= scene_->now_ms ? desk.ended.push_back(id) : desk.lease(job);
    }
}

// Let a running job's lease stand as it does by now; see `_standing`.
void Themis::stand(Job& job) const {
    if (job.lease_end_ms == NONE) return;
    const Ms now_ms = scene_->now_ms, lease_ms = rules().lease_ms;
    Ms start_ms = job.lease_start_ms, end_ms = job.lease_end_ms;
    if (end_ms < now_ms && part_->review_ms == NONE) {
        start_ms = end_ms + (now_ms - 1 - end_ms) / job.renewal_ms * job.renewal_ms;
        end_ms = start_ms + job.renewal_ms;
    }
    if (rules().cuts && job.renewal_ms != lease_ms && end_ms > now_ms) end_ms = std::max(now_ms, start_ms + lease_ms);
    if (end_ms <= now_ms && part_->desk.waiting().empty()) {
        start_ms = now_ms;
        end_ms = now_ms + lease_ms;
    }
    if (end_ms != job.lease_end_ms || job.renewal_ms != lease_ms) job.lease(start_ms, end_ms, lease_ms);
}

// ---- what is offered -------------------------------------------------------------------------------

// Offer what is free, and the GPUs of jobs whose lease has ended.
void Themis::offer(const Layer& free) {
    offered_ = free;
    for (const JobId id : part_->desk.ended) offered_.add(scene_->job(id).nodes, 1);
}

// Whether a waiting job is no wider than that.
bool Themis::serves_anyone() const {
    const std::vector<JobId>& waiting = part_->desk.waiting();
    return std::any_of(waiting.begin(), waiting.end(), [this](JobId id) { return scene_->job(id).gpus <= offered_.total(); });
}

// ---- bids ------------------------------------------------------------------------------------------

// A bid of each job that waits or whose lease has ended.
void Themis::bid() {
    bids_.clear();
    consolidated_.clear();
    for (const JobId id : part_->desk.waiting()) {
        const Job& job = scene_->job(id);
        bids_.push_back(bid_of(job, speed_of(job)));
    }
    for (const JobId id : part_->desk.ended) bids_.push_back(bid_of(scene_->job(id), scene_->job(id).speed_ppm));
}

Themis::Bid Themis::bid_of(const Job& job, std::int64_t speed_ppm) const {
    const Ms age_ms = scene_->now_ms - scene_->workload.submit_ms[static_cast<std::size_t>(job.id)];
    const Work left = job.remaining(scene_->now_ms);
    const Ms left_ms = speed_ppm == FULL_SPEED_PPM ? ceil_div(left, FULL_SPEED_PPM) : ceil_div(left, speed_ppm);
    const Ms time_ms = std::max<Ms>(1, age_ms + left_ms);
    if (age_ms >= OLDEST_MS) throw ConfigError("a job waits for longer than 64 bits; use the reference engine.");
    return {rho_ppm(job, time_ms, std::max<Ms>(1, job.estimate_ms)), time_ms, job.id, job.gpus, job.member_gpus};
}

// How fast a waiting job would run on what is offered; at full speed if it would have to wait.
std::int64_t Themis::speed_of(const Job& job) {
    const std::int64_t spread_ppm = scene_->workload.spread_ppm[static_cast<std::size_t>(job.id)];
    if (!scene_->relaxed || spread_ppm < rules().threshold_ppm) return FULL_SPEED_PPM;
    const auto is_width = [&job](const std::pair<std::int32_t, bool>& one) { return one.first == job.gpus; };
    auto known = std::find_if(consolidated_.begin(), consolidated_.end(), is_width);
    if (known == consolidated_.end()) {
        Nodes nodes;
        consolidated_.emplace_back(job.gpus, offered_.find(job.gpus, nodes));
        known = consolidated_.end() - 1;
    }
    return known->second ? FULL_SPEED_PPM : spread_ppm;
}

std::int64_t Themis::rho_ppm(const Job& job, Ms time_ms, Ms run_ms) const {
    const Ms age_ms = scene_->now_ms - scene_->workload.submit_ms[static_cast<std::size_t>(job.id)];
    const Ms lived_ms = age_ms == 0 ? 1 : age_ms;
    const std::int64_t job_ms = age_ms == 0 ? part_->active : part_->life_job_ms(job);
    const Crowding crowding = Crowding::of(lived_ms, job_ms, job.member_gpus, part_->vc.gpus(), rules().paper);
    return quotient(time_ms, PPM * crowding.under, run_ms, crowding.over);
}

// ---- order -----------------------------------------------------------------------------------------

// The visible bids by what waiting would cost them, then the others by falling rho; without those that are too wide.
void Themis::order() {
    const auto worse = [](const Bid& one, const Bid& two) {
        return one.rho_ppm != two.rho_ppm ? one.rho_ppm > two.rho_ppm : one.id < two.id;
    };
    const auto count = static_cast<std::int64_t>(bids_.size());
    const std::int64_t share = std::max<std::int64_t>(1, ceil_div(rules().visible_ppm * count, PPM));
    const auto seen = bids_.begin() + static_cast<std::ptrdiff_t>(share);
    std::nth_element(bids_.begin(), seen, bids_.end(), worse);
    const auto is_wide = [this](const Bid& bid) { return bid.gpus > offered_.total(); };
    const auto seen_end = std::remove_if(bids_.begin(), seen, is_wide);
    visible_ = static_cast<std::size_t>(seen_end - bids_.begin());
    bids_.erase(std::remove_if(seen, bids_.end(), is_wide), bids_.end());
    bids_.erase(seen_end, seen);
    std::sort(bids_.begin() + static_cast<std::ptrdiff_t>(visible_), bids_.end(), worse);
    order_by_gain();
}

void Themis::order_by_gain() {
    const auto end = bids_.begin() + static_cast<std::ptrdiff_t>(visible_);
    std::sort(bids_.begin(), end, [](const Bid& one, const Bid& two) {
        if (one.time_ms != two.time_ms) return one.time_ms < two.time_ms;
        return one.rho_ppm != two.rho_ppm ? one.rho_ppm > two.rho_ppm : one.id < two.id;
    });
    const std::int32_t gpus = visible_ == 0 ? 0 : bids_.front().member_gpus;
    if (std::all_of(bids_.begin(), end, [gpus](const Bid& bid) { return bid.member_gpus == gpus; })) return;
    widths_.clear();
    for (auto bid = end; bid != bids_.begin();) {
        --bid;  // the first one last
        const auto is_its = [bid](const Width& width) { return width.member_gpus == bid->member_gpus; };
        auto width = std::find_if(widths_.begin(), widths_.end(), is_its);
        if (width == widths_.end()) width = widths_.insert(width, Width{bid->member_gpus, 0, {}});
        width->bids.push_back(*bid);
    }
    for (Width& width : widths_) look(width);
    const auto is_first = [this](const Width& one, const Width& two) { return is_before(one, two); };
    for (auto bid = bids_.begin(); bid != end; ++bid) {
        const auto width = std::min_element(widths_.begin(), widths_.end(), is_first);
        *bid = width->bids.back();
        width->bids.pop_back();
        width->bids.empty() ? static_cast<void>(widths_.erase(width)) : look(*width);
    }
}

// See about what the first of a width would gain.
void Themis::look(Width& width) const {
    const auto time_ms = static_cast<double>(width.bids.back().time_ms);
    width.gain = std::log2((time_ms + static_cast<double>(rules().lease_ms)) / time_ms);
}

// Whether the first of a width gains more a GPU than another's. Only what is close is worked out digit by digit: doubles
// are right to a billionth of the last of its forty.
bool Themis::is_before(const Width& one, const Width& two) const {
    constexpr double CLOSE = 1e-11;
    const double more = one.gain * two.member_gpus - two.gain * one.member_gpus;
    if (std::abs(more) > CLOSE * (one.member_gpus + two.member_gpus)) return more > 0;
    const auto gain = [this](const Width& width) {
        const Ms time_ms = width.bids.back().time_ms;
        return log2_units(time_ms + rules().lease_ms, time_ms);
    };
    const std::int64_t its = gain(one) * two.member_gpus, other = gain(two) * one.member_gpus;
    if (its != other) return its > other;
    const Bid &bid = one.bids.back(), &second = two.bids.back();
    return bid.rho_ppm != second.rho_ppm ? bid.rho_ppm > second.rho_ppm : bid.id < second.id;
}

// ---- the walk --------------------------------------------------------------------------------------

// Walk through the first bids but one, over what is offered, and mark who wins; see `walk_through`.
void Themis::walk(std::size_t count, JobId absent, Verdict& found, std::vector<char>& won) {
    lifted_ = offered_;
    really_free_ = part_->index.layer(0);
    if (absent >= 0) really_free_.add(scene_->job(absent).nodes, 1);
    failed_alone_ = failed_spread_ = part_->vc.gpus() + 1;
    kept_.clear();
    won.assign(count, 0);
    for (std::size_t place_in = 0; place_in < count; ++place_in) {
        const Job& job = scene_->job(bids_[place_in].id);
        if (job.id == absent) continue;
        if (job.state == State::running) {
            const auto has = [this](Share share) { return lifted_.spare(share.node) >= share.gpus; };
            if (std::all_of(job.nodes.begin(), job.nodes.end(), has)) {
                lifted_.add(job.nodes, -1);
                kept_.push_back(job.id);
                won[place_in] = 1;
                continue;
            }
            found.lost.push_back(job.id);
            really_free_.add(job.nodes, 1);
        }
        Nodes nodes;
        if (!place(job, nodes)) continue;
        lifted_.add(nodes, -1);
        really_free_.add(nodes, -1);
        found.places.emplace_back(job.id, std::move(nodes));
        won[place_in] = 1;
    }
}

// Find a place among what is really free, or else among what is offered. What failed once fails to the end.
bool Themis::place(const Job& job, Nodes& found) {
    const std::int64_t spread_ppm = scene_->workload.spread_ppm[static_cast<std::size_t>(job.id)];
    const bool alone = !scene_->relaxed || (job.gpus > 1 && spread_ppm < rules().threshold_ppm);
    std::int32_t& failed = alone ? failed_alone_ : failed_spread_;
    if (job.gpus >= failed || job.gpus > lifted_.total()) return false;
    for (const Layer* layer : {&really_free_, &lifted_}) {
        if (layer->find(job.gpus, found) || (!alone && layer->find_spread(job.gpus, found))) return true;
    }
    failed = job.gpus;
    return false;
}

// ---- winners ---------------------------------------------------------------------------------------

// Give a lease to each job that keeps or gets GPUs.
void Themis::grant(Verdict& verdict) {
    Ids holders;
    for (const auto& [id, nodes] : verdict.places) holders.push_back(id);
    holders.insert(holders.end(), kept_.begin(), kept_.end());
    std::vector<std::pair<JobId, std::int64_t>> shares;
    if (rules().payment) {
        suppose(-1, won_);
        for (std::size_t place = 0; place < visible_; ++place) {
            if (won_[place] != 0) shares.emplace_back(bids_[place].id, share_of(place));
        }
    }
    for (const JobId id : holders) {
        const auto is_its = [id](const std::pair<JobId, std::int64_t>& one) { return one.first == id; };
        const auto paid = std::find_if(shares.begin(), shares.end(), is_its);
        const std::int64_t share = paid == shares.end() ? WHOLE : paid->second;
        const Ms lease_ms = std::max<Ms>(1, static_cast<Ms>(Wide{rules().lease_ms} * share / WHOLE));
        verdict.grants.push_back({id, scene_->now_ms, scene_->now_ms + lease_ms, rules().lease_ms});
    }
}

// See who of the visible bids would win without one of them.
void Themis::suppose(JobId absent, std::vector<char>& won) {
    what_if_.lost.clear();
    what_if_.places.clear();
    walk(visible_, absent, what_if_, won);
}

// What a winner keeps of its lease, in units of 2**-40: the product over those whom it displaces.
std::int64_t Themis::share_of(std::size_t own_place) {
    suppose(bids_[own_place].id, won_alone_);
    std::int64_t share = WHOLE;
    for (std::size_t place = 0; place < visible_; ++place) {
        if (won_alone_[place] == 0 || won_[place] != 0) continue;
        const Ms time_ms = bids_[place].time_ms;
        share = static_cast<std::int64_t>(Wide{share} * time_ms / (time_ms + rules().lease_ms));
    }
    return share;
}

}  // namespace trimtab
