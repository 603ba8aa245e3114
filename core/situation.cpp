#include "situation.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

namespace trimtab {

Situation::Situation(Engine start, Ms until_ms) : start_(std::move(start)), until_ms_(until_ms) {
    done_before_.assign(static_cast<std::size_t>(start_.workload().size()), 0);
    for (JobId id = start_.first_active(); id >= 0; id = start_.job(id).after) {
        done_before_[static_cast<std::size_t>(id)] = start_.job(id).done;
    }
}

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
    const Ms began_ms = engine.now_ms();
    engine.update(began_ms, plan);
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
    const Workload& workload = engine.workload();
    for (JobId id = 0; id < workload.size(); ++id) {
        const auto place = static_cast<std::size_t>(id);
        const Job& job = engine.job(id);
        if (!job.active() && job.state != State::finished) continue;
        const Ms end_ms = job.active() ? engine.now_ms() : job.finish_ms();
        const Work done = job.active() ? job.done_by(end_ms) : workload.duration_ms[place] * FULL_SPEED_PPM;
        found.age_ms.push_back(end_ms - workload.submit_ms[place]);
        found.idle_ms.push_back(end_ms - std::max(workload.submit_ms[place], began_ms) -
                                floor_div(done - done_before_[place], FULL_SPEED_PPM));
    }
    return found;
}

}  // namespace trimtab
