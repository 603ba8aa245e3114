#include "situation.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "themis.hpp"

namespace trimtab {

Situation::Situation(Engine start, Ms until_ms) : start_(std::move(start)), until_ms_(until_ms) { start_.settle(); }

std::vector<Stays> Situation::stays(const std::vector<Plan>& plans, std::int32_t threads) const {
    std::vector<Stays> found(plans.size());
    std::vector<std::exception_ptr> failures(plans.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        std::optional<Engine> engine;  // kept from candidate to candidate for the memory it holds
        for (std::size_t place = next++; place < plans.size(); place = next++) {
            try {
                engine ? engine->become(start_) : static_cast<void>(engine.emplace(start_.fork()));
                found[place] = one(*engine, plans[place]);
            } catch (...) {
                failures[place] = std::current_exception();
            }
        }
    };
    const auto helpers = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), plans.size());
    std::vector<std::thread> crew;
    for (std::size_t helper = 1; helper < helpers; ++helper) crew.emplace_back(work);
    work();
    for (std::thread& helper : crew) helper.join();
    for (const std::exception_ptr& failure : failures) {
        if (failure) std::rethrow_exception(failure);
    }
    return found;
}

Stays Situation::one(Engine& engine, const Plan& plan) const {
    engine.update(engine.now_ms(), plan);
    Stays found;
    try {
        engine.run(until_ms_);
    } catch (const Thrashing&) {
        found.thrashes = true;
        return found;
    }
    if (until_ms_ == NONE && engine.active_count() > 0) {
        found.stuck = engine.active_count();
        found.first_stuck = engine.first_active();
        return found;
    }
    engine.settle();
    for (JobId id = 0; id < engine.workload().size(); ++id) {
        const Job& job = engine.job(id);
        if (job.active() || job.state == State::finished) count(engine, job, found);
    }
    return found;
}

// Whether a job takes no longer than alone on its share (rho <= 1). One that has not finished counts as if it went on
// at full speed; see `Stays` in `objective.py`.
static bool is_fair(const Engine& engine, const Job& job, Ms age_ms, Ms left_ms) {
    const Partition& part = engine.home_of(job);
    const Ms run_ms = engine.workload().duration_ms[static_cast<std::size_t>(job.id)];
    const std::int64_t job_ms = job.active() ? part.life_job_ms(job) : job.life_job_ms;
    const Crowding crowding = Crowding::of(age_ms, job_ms, job.member_gpus, part.vc.gpus(), false);
    return Wide{age_ms + left_ms} * crowding.under <= run_ms * crowding.over;
}

static Ms left_ms_of(const Engine& engine, const Job& job) {
    const Ms run_ms = engine.workload().duration_ms[static_cast<std::size_t>(job.id)];
    return std::max<Ms>(0, ceil_div(run_ms * FULL_SPEED_PPM - job.done, FULL_SPEED_PPM));
}

// Add a settled job's stay, from the situation's instant or its submission on.
void Situation::count(const Engine& engine, const Job& job, Stays& found) const {
    const Ms end_ms = job.since_ms;
    const Job& before = start_.job(job.id);
    const Ms submit_ms = start_.workload().submit_ms[static_cast<std::size_t>(job.id)];
    const Ms stay_ms = end_ms - std::max(submit_ms, start_.now_ms());
    const Ms run_ms = floor_div(job.done - before.done, FULL_SPEED_PPM);
    const std::int32_t members = job.gpus / job.member_gpus;
    const Ms left_ms = left_ms_of(engine, job);
    found.ids.push_back(job.id);
    found.age_ms.push_back(end_ms - submit_ms);
    found.left_ms.push_back(left_ms);
    found.idle_ms.push_back(stay_ms - run_ms);
    found.members.push_back(members);
    found.fair.push_back(is_fair(engine, job, end_ms - submit_ms, left_ms) ? 1 : 0);
    found.jobs += members;
    found.run_ms += members * run_ms;
    found.queue_ms += members * (stay_ms - (job.held_ms - before.held_ms));
    found.restart_ms += members * (job.paid_ms - before.paid_ms);
    found.preemptions += std::int64_t{members} * (job.preemptions - before.preemptions);
}

}  // namespace trimtab
