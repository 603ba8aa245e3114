#include "engine.hpp"

#include <algorithm>
#include <limits>

namespace trimtab {

namespace {

constexpr GpuMs LONGEST_ESTIMATE_GPU_MS = std::int64_t{1} << 42;

constexpr std::int64_t INSTANTS_A_PAUSE = 1 << 16;

// A whole-pass policy may let jobs wait in an empty cluster through so many reviews, not for ever.
constexpr std::int64_t MOST_IDLE_PASSES = 10'000;

// Whether a gang is anywhere else than wholly taken nodes and one for the rest.
bool is_spread(const Nodes& nodes, std::int32_t gpus, std::int32_t gpus_per_node) {
    const auto is_whole = [gpus_per_node](Share share) { return share.gpus == gpus_per_node; };
    return nodes.size() > ceil_div(gpus, gpus_per_node) ||
           std::count_if(nodes.begin(), nodes.end(), is_whole) < gpus / gpus_per_node;
}

}  // namespace

Engine::Engine(std::shared_ptr<const Workload> workload, const std::vector<VirtualCluster>& vcs,
               std::string policy, Plan plan, Environment environment, bool timeline)
    : workload_(std::move(workload)),
      policy_(std::move(policy)),
      environment_(std::move(environment)),
      estimator_(environment_.estimator),
      jobs_(static_cast<std::size_t>(workload_->size())),
      timers_(workload_->size()),
      completed_(environment_.completed_gpu_ms),
      running_place_(FIRST_RUNNING_PLACE),
      tail_place_(0),
      front_place_(-1) {
    log_.kept = timeline;
    if (timeline) log_.reserve(jobs_.size());
    closed_.reserve(jobs_.size());
    completed_.reserve(completed_.size() + jobs_.size());
    now_ms_ = workload_->size() == 0 ? 0 : workload_->submit_ms.front();
    sampled_ = static_cast<std::int64_t>(completed_.size());
    sampled_ms_ = now_ms_;
    for (const VirtualCluster& vc : vcs) parts_.emplace_back(vc, environment_.counted, workload_->width_classes());
    adopt(std::move(plan));
    rebuild();
}

Engine Engine::fork() const {
    Engine twin = *this;
    if (estimator_) twin.estimator_ = estimator_->fork();
    return twin;
}

void Engine::become(const Engine& other) {
    *this = other;
    if (estimator_) estimator_ = estimator_->fork();
}

// ---- running ---------------------------------------------------------------------------------------

void Engine::run(Ms until_ms) {
    for (Ms now_ms = next_ms(); now_ms != NONE && (until_ms == NONE || now_ms < until_ms); now_ms = next_ms()) {
        [[maybe_unused]] const std::int64_t events_before = events_;
        instant(now_ms);
#if TRIMTAB_CHECK_EVERY > 0
        if (events_ / TRIMTAB_CHECK_EVERY != events_before / TRIMTAB_CHECK_EVERY) check_indexes();
#endif
        if (idles()) return;
        if (++instants_ % INSTANTS_A_PAUSE == 0 && pause != nullptr) pause();
    }
    if (until_ms != NONE) {
        clock(std::max(until_ms, now_ms_));
    } else {
        check_end();
    }
}

void Engine::update(Ms time_ms, Plan plan) {
    const auto later = [](Ms time, const std::pair<Ms, Plan>& update) { return time < update.first; };
    updates_.emplace(std::upper_bound(updates_.begin(), updates_.end(), time_ms, later), time_ms, std::move(plan));
}

bool Engine::idles() const { return idle_passes_ > MOST_IDLE_PASSES && !more_comes(); }

// Whether jobs or knobs are still to come from outside.
bool Engine::more_comes() const { return arrived_ < workload_->size() || !updates_.empty(); }

// The next instant at which something happens, or NONE.
Ms Engine::next_ms() {
    if (active_ == 0 && !more_comes()) return NONE;
    Ms next = NEVER_MS;
    if (!timers_.empty()) next = timers_.first().time_ms;
    if (tick_ms_ != NONE) next = std::min(next, tick_ms_);
    if (is_whole_pass()) {
        for (const Partition& part : parts_) {
            for (const Ms due_ms : {part.review_ms, part.lease_due_ms}) {
                const bool is_heard = part.dirty && due_ms <= now_ms_;  // its pass waits for a tick
                if (due_ms != NONE && !is_heard) next = std::min(next, due_ms);
            }
        }
    }
    if (arrived_ < workload_->size()) {
        next = std::min(next, workload_->submit_ms[static_cast<std::size_t>(arrived_)]);
    }
    if (!updates_.empty()) next = std::min(next, updates_.front().first);
    if (plan_.refresh_ms != 0 && active_ > 0) {
        next = std::min(next, sampled_ms_ - floor_mod(sampled_ms_, plan_.refresh_ms) + plan_.refresh_ms);
    }
    return next == NEVER_MS ? std::int64_t{NONE} : std::max(next, now_ms_);
}

void Engine::instant(Ms now_ms) {
    clock(now_ms);
    if (tick_ms_ != NONE && tick_ms_ <= now_ms) tick_ms_ = NONE;  // a tick only brings the instant
    while (!timers_.empty() && timers_.first().time_ms <= now_ms) {
        const Timers::Timer timer = timers_.first();
        ++events_;
        Job& job = at(timer.job);
        switch (timer.kind) {
            case Timed::finish: finish(job); break;
            case Timed::expire: expire(job); break;
            case Timed::change: change_level(job); break;
            case Timed::promote: promote(job); break;
            case Timed::unshield: unshield(job); break;
        }
    }
    for (Partition& part : parts_) {
        part.dirty = part.dirty || part.review_ms == now_ms || part.lease_due_ms == now_ms;
    }
    while (!updates_.empty() && updates_.front().first <= now_ms) {
        Plan plan = std::move(updates_.front().second);
        updates_.erase(updates_.begin());
        change_knobs(std::move(plan));
    }
    while (arrived_ < workload_->size() && workload_->submit_ms[static_cast<std::size_t>(arrived_)] <= now_ms) {
        arrive(arrived_);
    }
    if (plan_.refresh_ms != 0) refresh_sample();
    for (Partition& part : parts_) {
        if (part.dirty && on_tick()) pass(part);
    }
}

void Engine::clock(Ms now_ms) {
    held_gpu_ms_ += used_gpus_ * (now_ms - now_ms_);
    now_ms_ = now_ms;
}

// ---- events ----------------------------------------------------------------------------------------

void Engine::arrive(JobId id) {
    ++arrived_;
    ++events_;
    const auto place = static_cast<std::size_t>(id);
    Job& job = jobs_[place];
    job.id = id;
    job.gpus = workload_->gpus[place];
    job.member_gpus = workload_->member_gpus[place];
    job.home = workload_->home[place];
    note(EventKind::submit, id);
    if (job.home < 0 || job.gpus > home_of(job).vc.gpus()) {
        job.state = State::rejected;
        closed_.push_back(id);
        note(EventKind::reject, id);
        return;
    }
    if (estimator_) job.estimate_ms = ask_estimate_ms(id);
    job.state = State::pending;
    job.since_ms = job.stopped_ms = now_ms_;
    job.overhead_ms = environment_.cold_start_ms;
    job.grades = plan_grades_;
    job.level = level_of(job, grades_of(job), plan_);
    job.place = ++tail_place_;
    home_of(job).count(now_ms_, job.gpus / job.member_gpus);
    job.submit_job_ms = home_of(job).job_ms;
    link(job);
    enqueue(job);
}

// Estimate a job that arrives; before, let the estimator retrain and queued jobs be estimated anew.
Ms Engine::ask_estimate_ms(JobId id) {
    if (estimator_->retrain(now_ms_, plan_.retrain_ms) && plan_.rescore) {
        for (JobId other = first_; other >= 0; other = at(other).after) {
            Job& job = at(other);
            if (job.state == State::pending && job.done == 0) {
                job.estimate_ms = ask(other);
            }
        }
        rebuild();
    }
    return ask(id);
}

// Times GPUs and parts per million, an estimate has to fit in 64 bits; learnt ones are not known beforehand.
Ms Engine::ask(JobId id) {
    const Ms estimate_ms = estimator_->estimate_ms(id, now_ms_, plan_.history_weight);
    if (estimate_ms > LONGEST_ESTIMATE_GPU_MS / std::max(1, workload_->gpus[static_cast<std::size_t>(id)])) {
        throw ConfigError("job " + std::to_string(id) + " is estimated to run " + std::to_string(estimate_ms) +
                          " ms, too long for 64 bits; use the reference engine; the run ends here.");
    }
    return estimate_ms;
}

void Engine::finish(Job& job) {
    job.settle(now_ms_);
    const Ms duration_ms = workload_->duration_ms[static_cast<std::size_t>(job.id)];
    const Work work = duration_ms * FULL_SPEED_PPM;
    if (job.done < work || job.done - work >= std::max(job.speed_ppm, FULL_SPEED_PPM) || job.overhead_ms != 0) {
        throw InvariantError("job " + std::to_string(job.id) + " ends with work " + std::to_string(job.done) +
                             " of " + std::to_string(work) + " done");
    }
    job.done = work;
    release(job);
    home_of(job).count(now_ms_, -(job.gpus / job.member_gpus));
    job.life_job_ms = home_of(job).life_job_ms(job);
    job.state = State::finished;
    ++job.stamp;
    timers_.erase(job.id);
    unlink(job);
    job.nodes.clear();
    closed_.push_back(job.id);
    held_by_finished_gpu_ms_ += job.held_ms * job.gpus;
    completed_.push_back(job.member_gpus * duration_ms);
    if (estimator_) estimator_->observe(job.id, duration_ms, now_ms_);
    note(EventKind::finish, job.id);
}

void Engine::change_level(Job& job) {
    job.settle(now_ms_);
    const std::int32_t level = level_of(job, grades_of(job), plan_);
    if (level != job.level) {
        note(level > job.level ? EventKind::demote : EventKind::promote, job.id);
        if (plan_.preemptive && !job.shielded) {
            const bool sinks = level > job.level;
            const auto [top, bottom] = std::minmax(job.level, level);
            home_of(job).index.add(top, bottom, job.nodes, sinks ? 1 : -1);
        }
        move(job, level);
        home_of(job).line_up(job, jobs_, plan_);
    }
    home_of(job).dirty = true;
    schedule(job);
}

void Engine::promote(Job& job) {
    lift(job);
    enqueue(job);
}

void Engine::unshield(Job& job) {
    Partition& part = home_of(job);
    job.shielded = false;
    part.index.add(0, job.level, job.nodes, 1);
    part.dirty = true;
    job.settle(now_ms_);
    part.line_up(job, jobs_, plan_);
    schedule(job);
}

// ---- knobs -----------------------------------------------------------------------------------------

void Engine::adopt(Plan plan) {
    plan_ = std::move(plan);
    if (decider() != nullptr) cares_.resize(jobs_.size());
    take_sample();
    if (plan_.needs_nodes && environment_.counted) {
        throw ConfigError("policy " + policy_ + " needs nodes, not placement count; nothing was run.");
    }
    if (plan_.needs_estimates && !environment_.has_estimates) {
        throw ConfigError("policy " + policy_ + " orders by estimates, and there are none; nothing was run.");
    }
}

// Let what depends on completed jobs be made from those in the sample.
void Engine::take_sample() {
    if (plan_.is_gittins() || plan_.planner) {
        std::vector<GpuMs> sample(completed_.begin(), completed_.begin() + sampled_);
        if (plan_.planner) {
            Plan made = plan_.planner->plan(sample);
            made.knobs = plan_.knobs;
            made.text = plan_.text;
            made.planner = plan_.planner;
            plan_ = std::move(made);
        }
        if (plan_.is_gittins()) plan_.gittins = std::make_shared<const GittinsIndex>(std::move(sample));
    }
    plan_grades_ = number_of(plan_.grades);
}

std::int32_t Engine::number_of(const Grades& grades) {
    const auto known = std::find(grades_.begin(), grades_.end(), grades);
    if (known != grades_.end()) return static_cast<std::int32_t>(known - grades_.begin());
    grades_.push_back(grades);
    return static_cast<std::int32_t>(grades_.size()) - 1;
}

void Engine::change_knobs(Plan plan) {
    if (plan.knobs == plan_.knobs) return;
    ++events_;
    const Ms quantum_before_ms = plan_.quantum_ms;
    const std::shared_ptr<const Hooks> hooks_before = plan_.hooks;
    adopt(std::move(plan));
    note(EventKind::knobs, -1, plan_.knobs);
    move_anchor(quantum_before_ms);
    const bool levels_anew = plan_.hooks ? !plan_.hooks->has_level_of(hooks_before.get()) : hooks_before != nullptr;
    for (JobId id = first_; id >= 0; id = at(id).after) regrade(at(id), levels_anew);
    rebuild();
}

// Bring a job that is already there under the new plan.
void Engine::regrade(Job& job, bool levels_anew) {
    job.settle(now_ms_);
    const bool graded_anew = plan_.regrade == Regrade::immediate && (job.grades != plan_grades_ || levels_anew);
    if (plan_.regrade != Regrade::new_only) job.grades = plan_grades_;
    std::int32_t level = std::min(job.level, static_cast<std::int32_t>(grades_of(job).size()));
    if (graded_anew) {
        const std::int32_t level_before = std::exchange(job.level, 0);
        level = level_of(job, grades_of(job), plan_);
        job.level = level_before;
    }
    if (level != job.level) move(job, level);
    const Ms safe_ms = job.started_ms == NONE ? -1 : job.started_ms + plan_.min_run_ms;
    job.shielded = job.state == State::running && safe_ms > now_ms_;
    const Ms due_ms = starved_ms(job);
    if (due_ms != NONE && due_ms <= now_ms_) lift(job);
}

// Let a new quantum count on from the last tick: next tick = max(now, last tick + new).
void Engine::move_anchor(Ms before_ms) {
    const Ms quantum_ms = plan_.quantum_ms;
    if (quantum_ms == 0 || before_ms == 0 || quantum_ms == before_ms) return;
    const Ms last_ms = now_ms_ - floor_mod(now_ms_ - tick_anchor_ms_, before_ms);
    tick_anchor_ms_ = std::max(now_ms_, last_ms + quantum_ms);
}

// Build every queue and index from the jobs' own state; nothing derived outlives a change.
void Engine::rebuild() {
    timers_.clear();
    tick_ms_ = NONE;
    std::size_t grades = 0;
    for (JobId id = first_; id >= 0; id = at(id).after) {
        Job& job = at(id);
        if (job.state == State::running) job.settle(now_ms_);
        grades = std::max(grades, grades_of(job).size());
    }
    const std::int32_t queues = std::max(plan_.levels(), static_cast<std::int32_t>(grades) + 1);
    for (Partition& part : parts_) {
        part.rebuild(jobs_, queues, plan_);
        part.dirty = true;
        if (!plan_.lucid) continue;
        part.lucid.reset(part.vc.nodes, part.vc.gpus_per_node, workload_->widths,
                         environment_.pairing ? environment_.pairing->kinds : 1);
        for (const JobId id : part.running) part.lucid.enter(at(id), width_of(at(id)), kind_of(at(id)));
    }
    for (JobId id = first_; id >= 0; id = at(id).after) {
        Job& job = at(id);
        job.state == State::pending ? enqueue(job) : schedule(job);
    }
    for (Partition& part : parts_) part.queue.ready();
}

// Take the services of the jobs completed so far into the plan, once a refresh period.
void Engine::refresh_sample() {
    if (floor_div(now_ms_, plan_.refresh_ms) <= floor_div(sampled_ms_, plan_.refresh_ms)) return;
    sampled_ = static_cast<std::int64_t>(completed_.size());
    sampled_ms_ = now_ms_;
    take_sample();
    rebuild();
}

// ---- queue and levels ------------------------------------------------------------------------------

// Enter a pending job in its queue, and the time at which it will be starving.
void Engine::enqueue(Job& job) {
    Partition& part = home_of(job);
    if (plan_.auction) part.desk.wait(job);
    if (plan_.lucid) part.lucid.push(job, width_of(job), kind_of(job));
    if (!is_whole_pass()) part.queue.push(job, order_of(job, grades_of(job), now_ms_, plan_), class_of(job));
    const Ms due_ms = starved_ms(job);
    due_ms == NONE ? timers_.erase(job.id) : timers_.set({due_ms, job.id, Timed::promote});
    part.dirty = true;
}

std::int32_t Engine::class_of(const Job& job) const {
    const PendingQueue& queue = parts_[static_cast<std::size_t>(job.home)].queue;
    if (plan_.strict) return queue.class_of(job.level, 0, true);
    const auto place = static_cast<std::size_t>(job.id);
    const bool alone = !environment_.relaxed || plan_.consolidates(job, workload_->skew_ppm[place]);
    return queue.class_of(job.level, workload_->width_class[place], alone);
}

// When a pending job that has run and sunk is lifted to the first queue, or NONE.
Ms Engine::starved_ms(const Job& job) const {
    if (plan_.starve == Starve::never || job.level == 0 || job.graded_ms == 0 || job.state != State::pending) {
        return NONE;
    }
    const Ms limit_ms = starve_limit_ms(job, grades_of(job), plan_);
    return limit_ms == NONE ? limit_ms : job.stopped_ms + limit_ms;
}

// Enter the next thing that will happen to a running job, settled to now.
void Engine::schedule(Job& job) {
    ++job.stamp;
    const Work left = workload_->duration_ms[static_cast<std::size_t>(job.id)] * FULL_SPEED_PPM - job.done;
    Timers::Timer next{now_ms_ + job.overhead_ms + ceil_div(left, job.speed_ppm), job.id, Timed::finish};
    const Ms change_ms = next_change_ms(job, grades_of(job), plan_);
    if (change_ms != NONE && now_ms_ + change_ms < next.time_ms) next = {now_ms_ + change_ms, job.id, Timed::change};
    if (job.until_ms != NONE && job.until_ms < next.time_ms) next = {job.until_ms, job.id, Timed::expire};
    if (job.shielded && job.started_ms != NONE) {
        next = std::min(next, {job.started_ms + plan_.min_run_ms, job.id, Timed::unshield});
    }
    timers_.set(next);
}

// Put a job at the end of another queue; one that waits and moves up loses its seniority there.
void Engine::move(Job& job, std::int32_t level) {
    if (job.state == State::running) {
        if (!job.behind) home_of(job).behind.push_back(job.id);
        job.behind = true;
    } else if (level < job.level) {
        job.first_ms = NONE;
    }
    job.level = level;
    job.place = ++tail_place_;
}

// Promote a starving job: first queue, service forgotten for grading, progress kept.
void Engine::lift(Job& job) {
    ++job.stamp;
    move(job, 0);
    job.graded_ms = 0;
    job.first_ms = NONE;
    ++job.promotions;
    job.stopped_ms = now_ms_;
    note(EventKind::promote, job.id);
}

// ---- the pass --------------------------------------------------------------------------------------

// Whether a pass may happen now; if not, the next tick is entered.
bool Engine::on_tick() {
    const Ms quantum_ms = plan_.quantum_ms;
    if (quantum_ms == 0) return true;
    const Ms wait_ms =
        now_ms_ < tick_anchor_ms_ ? tick_anchor_ms_ - now_ms_ : floor_mod(tick_anchor_ms_ - now_ms_, quantum_ms);
    if (wait_ms == 0) return true;
    tick_ms_ = now_ms_ + wait_ms;
    return false;
}

Scene Engine::scene() {
    return {jobs_, *workload_, grades_, plan_, now_ms_, environment_.relaxed};
}

void Engine::pass(Partition& part) {
    part.dirty = false;
    if (plan_.lucid) {
        bind(part);
    } else if (decider() != nullptr) {
        decide(part);
    } else if (plan_.auction) {
        auction(part);
    } else {
        walk_.run(scene(), part);
        commit(part);
    }
}

// Ask a whole-pass policy, and when it wants to be asked again.
void Engine::decide(Partition& part) {
    part.count(now_ms_, 0);
    Verdict verdict = decider()->decide(view(part));
    const bool is_idle = verdict.is_empty && part.running.empty();
    carry_out(part, verdict);
    idle_passes_ = is_idle ? idle_passes_ + 1 : 0;
    part.review_ms = decider()->next_review_ms(view(part));
    part.lease_due_ms = lease_due_ms(part, now_ms_ + 1);
}

// The same for Themis, which knows who waits and whose lease ends next.
void Engine::auction(Partition& part) {
    part.count(now_ms_, 0);
    themis_.run(scene(), part, verdict_);
    carry_out(part, verdict_);
    part.review_ms = Themis::next_review_ms(scene(), part);
    part.lease_due_ms = part.desk.waiting().empty() ? std::int64_t{NONE} : part.desk.next_end_ms(jobs_);
}

// When the first lease ends, not before an instant, if a job waits; else nobody need be asked.
Ms Engine::lease_due_ms(const Partition& part, Ms from_ms) const {
    Ms due_ms = NONE;
    bool waits = false;
    for (JobId id = first_; id >= 0; id = job(id).after) {
        const Job& one = job(id);
        if (&parts_[static_cast<std::size_t>(one.home)] != &part) continue;
        waits = waits || one.state == State::pending;
        const bool is_later = one.lease_end_ms == NONE || one.lease_end_ms < from_ms;
        if (!is_later && (due_ms == NONE || one.lease_end_ms < due_ms)) due_ms = one.lease_end_ms;
    }
    return waits ? due_ms : std::int64_t{NONE};
}

View Engine::view(const Partition& part) {
    View view{now_ms_, static_cast<std::int32_t>(&part - parts_.data()), plan_.knobs, {}, {},
              part.index.layer(part.levels - 1).spares(), workload_->submit_ms, part.job_ms, part.review_ms,
              part.vc, *workload_, cares_, environment_.relaxed, part.counted, part.memory};
    for (JobId id = first_; id >= 0; id = at(id).after) {
        Job& job = at(id);
        if (job.home != view.home) continue;
        job.settle(now_ms_);
        (job.state == State::pending ? view.pending : view.running).push_back(&job);
    }
    return view;
}

// Preempt, then start, in walk order; then each queue stands as running jobs first, pending after.
void Engine::commit(Partition& part) {
    if (walk_.lost.empty() && walk_.places.empty() && part.behind.empty()) return;
    settlers_.clear();
    dropped_.clear();
    for (const auto& [id, nodes] : walk_.places) at(id).placed = true;
    for (const JobId id : walk_.lost) {
        if (at(id).placed) continue;
        at(id).dropped = true;
        dropped_.push_back(id);
    }
    for (const auto& [id, nodes] : walk_.places) {
        const bool is_moved = at(id).state == State::running;
        if (!is_moved || at(id).behind) settlers_.push_back(id);
    }
    for (const JobId id : part.behind) {
        if (!at(id).placed && !at(id).dropped) settlers_.push_back(id);
    }
    order_by_queue(settlers_);
    for (const JobId id : settlers_) {
        at(id).place = ++running_place_;
        if (at(id).state == State::running) part.line_up(at(id), jobs_, plan_);
    }
    for (const JobId id : walk_.lost) stop(part, at(id));
    for (auto& [id, nodes] : walk_.places) start(part, at(id), std::move(nodes));
    if (!dropped_.empty()) {
        std::vector<JobId> in_order = dropped_;
        order_by_queue(in_order);
        for (auto id = in_order.rbegin(); id != in_order.rend(); ++id) {
            if (runs_first(at(*id))) at(*id).place = front_place_--;
        }
    }
    for (const JobId id : dropped_) {
        at(id).dropped = false;
        enqueue(at(id));
    }
    for (const auto& [id, nodes] : walk_.places) at(id).placed = false;
    for (const JobId id : part.behind) at(id).behind = false;
    part.behind.clear();
    part.dirty = false;
}

void Engine::order_by_queue(std::vector<JobId>& ids) {
    if (ids.size() < 2) return;
    std::sort(ids.begin(), ids.end(), [this](JobId one, JobId two) {
        const Job &first = at(one), &second = at(two);
        if (first.level != second.level) return first.level < second.level;
        if (first.place != second.place) return first.place < second.place;
        return one < two;
    });
}

void Engine::start(Partition& part, Job& job, Nodes nodes) {
    if (job.state != State::pending) {
        throw InvariantError("job " + std::to_string(job.id) + " cannot start while it does not wait");
    }
    job.state = State::running;
    ++job.stamp;
    if (plan_.auction) part.desk.serve(job, jobs_);
    job.nodes = std::move(nodes);
    job.since_ms = job.started_ms = now_ms_;
    if (job.first_ms == NONE) job.first_ms = now_ms_;
    if (job.first_start_ms == NONE) job.first_start_ms = now_ms_;
    job.speed_ppm = speed_ppm(part, job);
    if (part.preemptive && plan_.min_run_ms != 0) {
        job.shielded = true;
        part.index.add(0, job.level, job.nodes, -1);
    }
    part.hold(job, jobs_, plan_);
    used_gpus_ += job.gpus;
    for (const Share share : job.nodes) {
        if (part.index.spare(part.levels - 1, share.node) < 0) {
            throw InvariantError("node " + std::to_string(share.node) + " holds more GPUs than it has after job " +
                                 std::to_string(job.id) + " started");
        }
    }
    note_nodes(EventKind::start, job);
    if (log_.kept) {
        log_.entries.back().beside = job.partner;
        if (care(job.id).share.is_told()) note_given(part, job);
    }
    schedule(job);
}

// The speed of a running job that has its GPUs for itself.
std::int64_t Engine::speed_ppm(const Partition& part, const Job& job) const {
    if (environment_.relaxed && is_spread(job.nodes, job.gpus, part.vc.gpus_per_node)) {
        return workload_->spread_ppm[static_cast<std::size_t>(job.id)];
    }
    const Allotment share = care(job.id).share;
    const Curve* const curve = share.is_told() ? workload_->true_curve_of(job.id) : nullptr;
    return curve == nullptr ? FULL_SPEED_PPM : part.vc.speed_ppm(*curve, job.gpus, share);
}

void Engine::stop(Partition& part, Job& job) {
    job.settle(now_ms_);
    note_nodes(EventKind::preempt, job);
    part.drop(job, jobs_);
    if (!job.placed || !plan_.keys_stand()) Partition::leave_line(job);
    used_gpus_ -= job.gpus;
    job.nodes.clear();
    if (!cares_.empty() && !job.placed) cares_[static_cast<std::size_t>(job.id)].share = {};
    job.lease(NONE, NONE, NONE);
    job.shielded = false;
    job.until_ms = NONE;
    ++job.preemptions;
    ++preemptions_;
    if (preemptions_max_ != NONE && preemptions_ > preemptions_max_) {
        throw Thrashing("more than " + std::to_string(preemptions_max_) + " preemptions under " + plan_.text);
    }
    job.stopped_ms = now_ms_;
    if (job.overhead_ms != 0 && ++wasted_starts_ > 1000 + 100 * std::int64_t{active_}) check_progress();
    const std::int32_t width = workload_->member_class[static_cast<std::size_t>(job.id)];
    job.overhead_ms = environment_.restart_ms[static_cast<std::size_t>(width)];
    job.state = State::pending;
    ++job.stamp;
}

// Refuse to go on for ever: with little service a queue and promotion, restarts may eat it all.
//
// Called after so many starts that ended before their restart cost was paid that, without promotions, every
// job would have come to rest at the bottom of its queues.
void Engine::check_progress() {
    Wide done = 0;
    settle();
    for (JobId id = first_; id >= 0; id = at(id).after) done += at(id).done;
    const std::pair<std::size_t, Wide> progress{completed_.size(), done};
    if (progress == progress_ && !more_comes()) {
        throw Thrashing("policy " + policy_ + " under " + plan_.text + ": " + std::to_string(active_) +
                        " jobs take turns and none runs long enough to pay for its restart; the run ends here.");
    }
    progress_ = progress;
    wasted_starts_ = 0;
}

void Engine::release(Job& job) {
    Partition& part = home_of(job);
    give_back(part, job);
    part.drop(job, jobs_);
    Partition::leave_line(job);
    part.dirty = true;
    used_gpus_ -= job.gpus;
}

// ---- accounts --------------------------------------------------------------------------------------

void Engine::note(EventKind kind, JobId id, std::int32_t detail) {
    if (log_.kept) log_.entries.push_back({now_ms_, kind, id, detail, -1});
}

void Engine::note_nodes(EventKind kind, const Job& job) {
    if (!log_.kept) return;
    log_.entries.push_back({now_ms_, kind, job.id, job.nodes.size(), -1});
    const std::int32_t first_node = parts_[static_cast<std::size_t>(job.home)].vc.first_node;
    for (const Share share : job.nodes) {
        log_.shares.push_back({first_node + share.node, share.gpus});
    }
}

void Engine::link(Job& job) {
    job.before = last_;
    job.after = -1;
    (last_ < 0 ? first_ : at(last_).after) = job.id;
    last_ = job.id;
    ++active_;
}

void Engine::unlink(Job& job) {
    (job.before < 0 ? first_ : at(job.before).after) = job.after;
    (job.after < 0 ? last_ : at(job.after).before) = job.before;
    --active_;
}

// Of what has finished, the GPU time held equals the sum over the jobs; waiting for ever is told by the caller.
void Engine::check_end() const {
    if (active_ > 0 || workload_->size() == 0) return;
    if (held_by_finished_gpu_ms_ != held_gpu_ms_ + held_before_gpu_ms_) {
        throw InvariantError("GPU time held " + std::to_string(held_gpu_ms_) + " ms, by the jobs' own count " +
                             std::to_string(held_by_finished_gpu_ms_) + " ms");
    }
}

}  // namespace trimtab
