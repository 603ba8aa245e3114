// Taking a state out of an engine, and going on from one; see `Snapshot` in `simulate/state.py`.
#include <algorithm>
#include <cstddef>

#include "engine.hpp"

namespace trimtab {

void Engine::settle() {
    for (JobId id = first_; id >= 0; id = at(id).after) at(id).settle(now_ms_);
    for (Partition& part : parts_) part.count(now_ms_, 0);
}

SavedState Engine::save() {
    SavedState saved;
    settle();
    for (JobId id = first_; id >= 0; id = at(id).after) {
        saved.jobs.push_back(at(id));
        saved.cares.push_back(care(id));
    }
    saved.now_ms = now_ms_;
    saved.grades = grades_;
    saved.arrived = arrived_;
    saved.places = {running_place_, tail_place_, front_place_};
    saved.tick_anchor_ms = tick_anchor_ms_;
    for (const Partition& part : parts_) {
        saved.dirty.push_back(part.dirty);
        saved.reviews_ms.push_back(part.review_ms);
        saved.job_ms.push_back(part.job_ms);
        saved.memories.push_back(part.memory);
    }
    saved.completed_gpu_ms = completed_;
    saved.sampled = sampled_;
    saved.sampled_ms = sampled_ms_;
    for (const Timers::Timer& timer : timers_.all()) {
        if (timer.time_ms == now_ms_ && timer.kind == Timed::change) saved.crossing.push_back(timer.job);
    }
    std::sort(saved.crossing.begin(), saved.crossing.end());
    return saved;
}

void Engine::restore(const SavedState& saved) {
    now_ms_ = saved.now_ms;
    arrived_ = saved.arrived;
    running_place_ = saved.places[0];
    tail_place_ = saved.places[1];
    front_place_ = saved.places[2];
    tick_anchor_ms_ = saved.tick_anchor_ms;
    completed_ = saved.completed_gpu_ms;
    sampled_ = saved.sampled;
    sampled_ms_ = saved.sampled_ms;
    if (!cares_.empty()) {
        for (std::size_t place = 0; place < saved.jobs.size(); ++place) {
            cares_[static_cast<std::size_t>(saved.jobs[place].id)] = saved.cares[place];
        }
    }
    for (const Job& job : saved.jobs) {
        Job& twin = at(job.id) = job;
        twin.grades = number_of(saved.grades[static_cast<std::size_t>(job.grades)]);
        link(twin);
        home_of(twin).active += twin.gpus / twin.member_gpus;
        held_before_gpu_ms_ += twin.gpus * twin.held_ms;
        if (twin.state == State::running) {
            Partition& part = home_of(twin);
            twin.seat = static_cast<std::int32_t>(part.running.size());
            part.running.push_back(twin.id);
            used_gpus_ += twin.gpus;
            twin.behind = !runs_first(twin);
            if (twin.behind) part.behind.push_back(twin.id);
        }
    }
    take_sample();
    rebuild();
    for (const JobId id : saved.crossing) timers_.set({now_ms_, id, Timed::change});
    bool any_dirty = false;
    for (std::size_t home = 0; home < parts_.size(); ++home) {
        parts_[home].dirty = saved.dirty[home];
        parts_[home].review_ms = saved.reviews_ms[home];
        parts_[home].job_ms = saved.job_ms[home];
        parts_[home].memory = saved.memories[home];
        parts_[home].counted_ms = now_ms_;
        if (is_whole_pass()) parts_[home].lease_due_ms = lease_due_ms(parts_[home], now_ms_);
        any_dirty = any_dirty || saved.dirty[home];
    }
    if (any_dirty && on_tick()) tick_ms_ = now_ms_;
}

}  // namespace trimtab
