// Many settings tried on one state: each candidate is a copy of the engine, so copying is forking.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"

namespace trimtab {

// How long each job of a situation stays; see `objective.Stays`.
struct Stays {
    std::vector<JobId> ids;
    std::vector<Ms> age_ms;
    std::vector<Ms> left_ms;  // of each at the end, at full speed
    std::vector<Ms> idle_ms;
    std::vector<std::int32_t> members;  // jobs that each stands for
    std::vector<std::uint8_t> fair;     // whether rho <= 1
    std::int64_t jobs = 0;  // sums over all members from here on
    Ms run_ms = 0;
    Ms queue_ms = 0;
    Ms restart_ms = 0;
    std::int64_t preemptions = 0;
    bool thrashes = false;   // too many preemptions: there are no stays
    std::int32_t stuck = 0;  // jobs that would wait for ever ..
    JobId first_stuck = -1;  // .. and the first of them
};

class Situation {
public:
    // `start` stands at the situation's instant; the simulation stops at `until_ms` (NONE: it drains).
    // Its limit of preemptions holds for each candidate.
    Situation(Engine start, Ms until_ms);

    // The stays under each plan from now on, in order; the same on any number of threads.
    // Never inlined: benchmarks/instructions.py counts inside it.
    [[gnu::noinline]] std::vector<Stays> stays(const std::vector<Plan>& plans, std::int32_t threads) const;

    const Engine& start() const { return start_; }

private:
    Stays one(Engine& engine, const Plan& plan) const;
    void count(const Engine& engine, const Job& job, Stays& found) const;

    Engine start_;
    Ms until_ms_;
};

}  // namespace trimtab
