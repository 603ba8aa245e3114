// Jobs: what was submitted (Workload) and the state of each one (Job), named as in `trimtab/job.py`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cluster.hpp"
#include "units.hpp"

namespace trimtab {

// GPUs held on one node.
struct Share {
    std::int32_t node;
    std::int32_t gpus;
};

// The GPUs a gang holds. Most gangs are on one node, so the first share is kept in place.
class Nodes {
public:
    Nodes() = default;
    Nodes(const Nodes& other) : size_(other.size_), first_(other.first_), all_(copy_of(other)) {}
    Nodes(Nodes&&) = default;
    Nodes& operator=(const Nodes& other) {
        size_ = other.size_;
        first_ = other.first_;
        all_ = copy_of(other);
        return *this;
    }
    Nodes& operator=(Nodes&&) = default;
    ~Nodes() = default;

    void add(Share share) {
        if (size_ == 0) {
            first_ = share;
        } else {
            if (size_ == 1) all_ = std::make_unique<std::vector<Share>>(1, first_);
            all_->push_back(share);
        }
        ++size_;
    }
    void clear() {
        size_ = 0;
        all_.reset();
    }
    bool empty() const { return size_ == 0; }
    std::int32_t size() const { return size_; }
    const Share* begin() const { return size_ > 1 ? all_->data() : &first_; }
    const Share* end() const { return begin() + size_; }

private:
    using Shares = std::unique_ptr<std::vector<Share>>;

    static Shares copy_of(const Nodes& other) {
        return other.size_ > 1 ? std::make_unique<std::vector<Share>>(*other.all_) : nullptr;
    }

    std::int32_t size_ = 0;
    Share first_{};
    Shares all_;  // where there are several
};

// What a job's user wants of it; see `Service`.
struct Service {
    enum class Kind : std::uint8_t { strict, soft, best };

    Kind kind = Kind::best;
    std::vector<Ms> deadlines_ms;  // absolute, ascending
    std::vector<std::int64_t> values;
};

// What a whole-pass policy did about a job beyond giving it GPUs; see the attributes of `JobView`.
struct Care {
    Allotment share;
    std::int32_t resizes = 0;
    Ms resized_ms = NONE;
    Ms promise_ms = NONE;
    std::vector<std::int64_t> note;
};

// Who wants a job, and what that is worth to the site; see `add_claims` in `simulate/native.py`.
struct Claim {
    Ms limit_ms;
    std::int64_t account;  // numbers that stand for names
    std::int64_t user;
    std::int64_t tier;  // of its partition
    std::int64_t partition_ppm;
    std::int64_t qos_ppm;
    std::int64_t qos_priority;
    std::int64_t qos;  // place among the qualities of service
};

// Jobs by dense id, in submit order. `duration_ms` is the truth that only the simulator knows.
struct Workload {
    std::vector<Ms> submit_ms;
    std::vector<Ms> duration_ms;
    std::vector<std::int64_t> spread_ppm;  // speed of a gang that is not consolidated
    std::vector<std::int64_t> skew_ppm;    // largest tensor / all tensors
    std::vector<std::int32_t> gpus;
    std::vector<std::int32_t> member_gpus;  // of one of the jobs that are simulated as this one
    std::vector<std::int32_t> home;         // index of the virtual cluster, -1 for none
    std::vector<std::int32_t> width_class;   // place of `gpus` among the distinct widths
    std::vector<std::int32_t> member_class;  // place of `member_gpus` among them
    std::vector<std::int32_t> widths;        // the distinct widths, ascending
    std::vector<std::int32_t> service;       // place of what its user wants among them; empty: nobody wants anything
    std::vector<Service> services;
    std::vector<std::int32_t> known_curve;  // place of a job's curve as policies know it, -1 for none; may be empty
    std::vector<std::int32_t> true_curve;   // and as it is
    std::vector<Curve> curves;
    std::vector<Claim> claims;  // by job; empty where nobody looks at them
    std::vector<std::vector<std::int64_t>> preempts;  // quality of service -> those it may preempt
    std::map<std::int64_t, std::int64_t> shares;      // of accounts, where they are told

    bool may_preempt(std::int64_t qos, std::int64_t other) const {
        const std::vector<std::int64_t>& those = preempts[static_cast<std::size_t>(qos)];
        return std::find(those.begin(), those.end(), other) != those.end();
    }

    const Service& service_of(JobId id) const {
        static const Service BEST_EFFORT;
        return service.empty() ? BEST_EFFORT : services[static_cast<std::size_t>(service[static_cast<std::size_t>(id)])];
    }
    const Curve* known_curve_of(JobId id) const { return curve_of(known_curve, id); }
    const Curve* true_curve_of(JobId id) const { return curve_of(true_curve, id); }

    std::int32_t width_classes() const { return std::max<std::int32_t>(1, static_cast<std::int32_t>(widths.size())); }

    JobId size() const { return static_cast<JobId>(submit_ms.size()); }

    // Number the distinct widths; there may be any number of them.
    void number_widths() {
        widths = gpus;
        widths.insert(widths.end(), member_gpus.begin(), member_gpus.end());
        std::sort(widths.begin(), widths.end());
        widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
        width_class = classes_of(gpus);
        member_class = classes_of(member_gpus);
    }

private:
    const Curve* curve_of(const std::vector<std::int32_t>& places, JobId id) const {
        if (places.empty()) return nullptr;
        const std::int32_t place = places[static_cast<std::size_t>(id)];
        return place < 0 ? nullptr : &curves[static_cast<std::size_t>(place)];
    }

    std::vector<std::int32_t> classes_of(const std::vector<std::int32_t>& column) const {
        std::vector<std::int32_t> classes;
        classes.reserve(column.size());
        for (const std::int32_t width : column) {
            const auto place = std::lower_bound(widths.begin(), widths.end(), width) - widths.begin();
            classes.push_back(static_cast<std::int32_t>(place));
        }
        return classes;
    }
};

enum class State : std::uint8_t { absent, pending, running, finished, rejected };

// One job; see the attributes of `JobView`. Times in ms on the engine's clock, NONE for what did not happen. In cache
// lines: what a walk asks of the running jobs, then what changes as a job moves on, then the rest.
struct alignas(64) Job {
    Nodes nodes;
    std::int32_t gpus = 0;
    std::int32_t level = 0;
    std::uint32_t turn = 0;   // counts its changes in the order of running jobs
    std::uint32_t stamp = 0;  // counts its changes in the queue of pending jobs
    State state = State::absent;
    bool shielded = false;
    bool lined = false;   // has a valid entry among the running jobs of its level
    bool behind = false;  // put at the end of its queue at this instant
    bool listed = false;  // marks of a walk, false outside it
    bool placed = false;
    bool dropped = false;

    Ms since_ms = 0;  // the instant up to which the numbers below are settled
    Ms held_ms = 0;
    Ms graded_ms = 0;
    Work done = 0;
    std::int64_t speed_ppm = FULL_SPEED_PPM;
    Ms overhead_ms = 0;
    std::int64_t place = 0;
    Ms estimate_ms = NONE;

    Ms first_ms = NONE;
    Ms started_ms = NONE;
    Ms stopped_ms = 0;
    Ms first_start_ms = NONE;
    JobId id = 0;
    std::int32_t home = 0;
    std::int32_t grades = 0;  // number of its set of grades (Engine::grades_of)
    std::int32_t preemptions = 0;
    std::int32_t promotions = 0;
    JobId before = -1;  // neighbours among the active jobs, by id
    JobId after = -1;
    std::int32_t seat = 0;  // place among the running or waiting jobs of its virtual cluster
    std::int32_t member_gpus = 0;
    Ms paid_ms = 0;  // restart cost paid so far
    Ms lease_start_ms = NONE;  // its lease, where its policy gives any
    Ms lease_end_ms = NONE;
    Ms renewal_ms = NONE;            // for how long a lease is renewed when it ends while nobody waits
    std::int64_t submit_job_ms = 0;  // of its virtual cluster when it was submitted
    std::int64_t life_job_ms = 0;    // the same integral over its life, once it has finished
    Ms until_ms = NONE;   // when it loses its GPUs and its work if it has not finished
    JobId partner = -1;   // with whom it shares its GPUs

    bool active() const { return state == State::pending || state == State::running; }

    // Whether its GPUs are counted as its partner's.
    bool is_guest() const { return partner >= 0 && partner < id; }

    // When it finished, NONE if it did not; nothing is settled afterwards.
    Ms finish_ms() const { return state == State::finished ? since_ms : std::int64_t{NONE}; }

    void lease(Ms start_ms, Ms end_ms, Ms renewal) {
        lease_start_ms = start_ms;
        lease_end_ms = end_ms;
        renewal_ms = renewal;
    }

    // Bring held time, unpaid overhead and work done up to now; nothing changes while pending.
    void settle(Ms now_ms) {
        if (state == State::running) {
            const Ms elapsed_ms = now_ms - since_ms;
            const Ms due_ms = std::min(elapsed_ms, overhead_ms);
            held_ms += elapsed_ms;
            graded_ms += elapsed_ms;
            overhead_ms -= due_ms;
            paid_ms += due_ms;
            done += (elapsed_ms - due_ms) * speed_ppm;
        }
        since_ms = now_ms;
    }

    GpuMs attained_gpu_ms() const { return member_gpus * graded_ms; }

    // Work done by `now_ms` if nothing happens to it before.
    Work done_by(Ms now_ms) const {
        if (state != State::running) return done;
        return done + std::max<Ms>(0, now_ms - since_ms - overhead_ms) * speed_ppm;
    }

    // Estimated work left, never below 0; needs an estimate.
    Work remaining(Ms now_ms) const {
        if (estimate_ms == NONE) throw InvariantError("job " + std::to_string(id) + " has no estimate");
        return std::max<Work>(0, estimate_ms * FULL_SPEED_PPM - done_by(now_ms));
    }

    // Restart cost still to be paid: now if it runs, at its next start if it waits.
    Ms unpaid_overhead_ms(Ms now_ms) const {
        if (state != State::running) return overhead_ms;
        return std::max<Ms>(0, overhead_ms - (now_ms - since_ms));
    }
};

// Tells policies how long a job may run, from nothing later than the present.
class Estimator {
public:
    virtual ~Estimator() = default;
    virtual void observe(JobId job, Ms duration_ms, Ms now_ms) = 0;
    virtual bool retrain(Ms now_ms, Ms period_ms) = 0;
    virtual Ms estimate_ms(JobId job, Ms now_ms, double history_weight) = 0;
    virtual std::shared_ptr<Estimator> fork() = 0;
};

// Tells what it was told, whatever happens; so all forks are one.
class OracleEstimator final : public Estimator, public std::enable_shared_from_this<OracleEstimator> {
public:
    explicit OracleEstimator(std::vector<Ms> told_ms) : told_ms_(std::move(told_ms)) {}
    void observe(JobId, Ms, Ms) override {}
    bool retrain(Ms, Ms) override { return false; }
    Ms estimate_ms(JobId job, Ms, double) override { return told_ms_.at(static_cast<std::size_t>(job)); }
    std::shared_ptr<Estimator> fork() override { return shared_from_this(); }

private:
    std::vector<Ms> told_ms_;
};

}  // namespace trimtab
