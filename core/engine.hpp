// The compiled twin of `simulate/engine.py`: same names, same order of rules, same answers.
//
// At one instant, in this order: completions by id; policy timers by kind, then id; knob updates; arrivals by
// id; then one scheduling pass in each virtual cluster where something happened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job.hpp"
#include "log.hpp"
#include "partition.hpp"
#include "plan.hpp"
#include "themis.hpp"
#include "timers.hpp"
#include "walk.hpp"

namespace trimtab {

// Places of running jobs lie far below those of pending ones: they come first in their queue.
inline constexpr std::int64_t FIRST_RUNNING_PLACE = -(std::int64_t{1} << 60);

// Whether a job has the place of a running one, not yet one at the end of a queue.
inline bool runs_first(const Job& job) { return job.place < FIRST_RUNNING_PLACE / 2; }

struct Environment {
    bool counted = false;  // placement `count`
    bool relaxed = false;
    std::vector<Ms> restart_ms;  // by width class
    Ms cold_start_ms = 0;
    Ms adjust_ms = 0;
    bool has_estimates = false;  // whether there are any for policies that order by them
    std::shared_ptr<Estimator> estimator;
    std::vector<GpuMs> completed_gpu_ms;
    std::shared_ptr<const Decider> decider;  // of a whole-pass policy in Python
    std::shared_ptr<const Pairing> pairing;  // of jobs that share GPUs, if that changes their speed
    std::shared_ptr<const Pace> pace;        // how many submissions are forecast, if they are
};

// What a snapshot holds apart from knobs and estimator; see `Snapshot`.
struct SavedState {
    Ms now_ms = 0;
    std::vector<Job> jobs;  // active ones, by id; `grades` numbers the sets below
    std::vector<Care> cares;  // of the same
    std::vector<Grades> grades;
    std::int32_t arrived = 0;
    std::array<std::int64_t, 3> places{};
    Ms tick_anchor_ms = 0;
    std::vector<bool> dirty;
    std::vector<GpuMs> completed_gpu_ms;
    std::int64_t sampled = 0;  // completed services in the plan's sample ..
    Ms sampled_ms = 0;         // .. and when it was taken
    std::vector<Ms> reviews_ms;   // by virtual cluster, NONE for none
    std::vector<std::int64_t> job_ms;  // by virtual cluster
    std::vector<std::vector<std::int64_t>> memories;  // by virtual cluster
    std::vector<JobId> crossing;  // running jobs whose level is to be looked at this very instant
};

class Engine {
public:
    Engine(std::shared_ptr<const Workload> workload, const std::vector<VirtualCluster>& vcs, std::string policy,
           Plan plan, Environment environment, bool timeline);

    // Continue from a snapshot taken under the plan this engine was made with.
    void restore(const SavedState& saved);

    // An independent copy, with an estimator of its own.
    Engine fork() const;

    // Become such a copy.
    void become(const Engine& other);

    // Run until nothing is left to happen, or up to (not including) an instant (NONE: no limit). Where a whole-pass
    // policy leaves jobs waiting for ever, that is nothing left to happen.
    // Never inlined: benchmarks/instructions.py counts inside it.
    [[gnu::noinline]] void run(Ms until_ms);

    // Change the plan at an instant that has not been simulated yet.
    void update(Ms time_ms, Plan plan);

    // Whether a policy of one's own is asked, which takes a Python that is not busy elsewhere.
    bool asks_policy() const { return environment_.decider != nullptr || plan_.planner != nullptr; }

    // Whether a whole-pass policy has let jobs wait in an empty cluster for too long.
    bool idles() const;

    // Called now and then during a run, so that it can be interrupted by throwing.
    static inline void (*pause)() = nullptr;

    // A run with more preemptions than these ends in `Thrashing`; NONE for no limit.
    void limit_preemptions(std::int64_t most) { preemptions_max_ = most; }
    std::int64_t preemptions_max() const { return preemptions_max_; }

    SavedState save();

    Ms now_ms() const { return now_ms_; }
    std::int64_t events() const { return events_; }
    std::int64_t preemptions() const { return preemptions_; }
    GpuMs held_gpu_ms() const { return held_gpu_ms_; }
    GpuMs held_before_gpu_ms() const { return held_before_gpu_ms_; }
    std::int32_t knobs() const { return plan_.knobs; }
    const Workload& workload() const { return *workload_; }
    const Job& job(JobId id) const { return jobs_[static_cast<std::size_t>(id)]; }
    const Care& care(JobId id) const {
        static const Care NOTHING;
        return cares_.empty() ? NOTHING : cares_[static_cast<std::size_t>(id)];
    }
    const Grades& grades_of(const Job& job) const { return grades_[static_cast<std::size_t>(job.grades)]; }
    const std::vector<JobId>& closed() const { return closed_; }  // finished and rejected jobs, in order
    const Log& log() const { return log_; }
    std::int32_t active_count() const { return active_; }
    JobId first_active() const { return first_; }

    const Partition& home_of(const Job& job) const { return parts_[static_cast<std::size_t>(job.home)]; }

    // Bring the numbers of all active jobs and virtual clusters up to now.
    void settle();

    // Compare everything derived with what follows from who runs where and who waits; raises where they differ.
    void check_indexes() const;

private:
    Ms next_ms();
    bool more_comes() const;
    void instant(Ms now_ms);
    void clock(Ms now_ms);

    void arrive(JobId id);
    void finish(Job& job);
    void expire(Job& job);
    void change_level(Job& job);
    void promote(Job& job);
    void unshield(Job& job);

    void adopt(Plan plan);
    void take_sample();
    void change_knobs(Plan plan);
    void regrade(Job& job, bool levels_anew);
    void move_anchor(Ms before_ms);
    void rebuild();
    void refresh_sample();

    void enqueue(Job& job);
    std::int32_t class_of(const Job& job) const;
    Ms starved_ms(const Job& job) const;
    void schedule(Job& job);
    void move(Job& job, std::int32_t level);
    void lift(Job& job);
    Ms ask_estimate_ms(JobId id);
    Ms ask(JobId id);

    bool on_tick();
    void pass(Partition& part);
    void decide(Partition& part);
    void auction(Partition& part);
    void bind(Partition& part);
    Ms lease_due_ms(const Partition& part, Ms from_ms) const;
    const Decider* decider() const { return plan_.native ? plan_.native.get() : environment_.decider.get(); }
    bool is_whole_pass() const { return decider() != nullptr || plan_.auction.has_value() || plan_.lucid != nullptr; }
    Nodes nodes_of(const Verdict& verdict, JobId id) const;
    void pair(Job& job, Job& other);
    void give_back(Partition& part, Job& job);
    LucidScene lucid_scene() const;
    std::int32_t width_of(const Job& job) const { return workload_->width_class[static_cast<std::size_t>(job.id)]; }
    std::int32_t kind_of(const Job& job) const { return environment_.pairing ? environment_.pairing->kind_of(job.id) : 0; }
    View view(const Partition& part);
    void carry_out(Partition& part, Verdict& verdict);
    void resize(Partition& part, Job& job, Allotment share);
    std::int64_t speed_ppm(const Partition& part, const Job& job) const;
    void note_given(const Partition& part, const Job& job);
    void commit(Partition& part);
    void start(Partition& part, Job& job, Nodes nodes);
    void stop(Partition& part, Job& job);
    void check_progress();
    void release(Job& job);

    void check_end() const;
    void check_nodes(const Partition& part, const Partition& anew) const;
    void check_jobs() const;
    void check_lines(const Partition& part, const Partition& anew, const std::vector<Job>& copies) const;
    void note(EventKind kind, JobId id, std::int32_t detail = 0);
    void note_nodes(EventKind kind, const Job& job);

    Job& at(JobId id) { return jobs_[static_cast<std::size_t>(id)]; }
    Partition& home_of(const Job& job) { return parts_[static_cast<std::size_t>(job.home)]; }
    Scene scene();
    std::int32_t number_of(const Grades& grades);
    void link(Job& job);
    void unlink(Job& job);
    void order_by_queue(std::vector<JobId>& ids);

    std::shared_ptr<const Workload> workload_;
    std::string policy_;
    Environment environment_;
    std::shared_ptr<Estimator> estimator_;
    Plan plan_;
    std::int32_t plan_grades_ = 0;  // number of the plan's own set of grades
    std::vector<Grades> grades_;    // all sets of grades met so far
    std::vector<Job> jobs_;         // by id, absent before they arrive
    std::vector<Care> cares_;       // by id, where a policy is asked
    JobId first_ = -1, last_ = -1;  // active jobs, linked by id
    std::int32_t active_ = 0;
    std::vector<Partition> parts_;
    Timers timers_;
    std::vector<std::pair<Ms, Plan>> updates_;
    std::vector<GpuMs> completed_;
    std::int64_t sampled_ = 0;
    Ms sampled_ms_ = 0;
    Ms now_ms_ = 0;
    Ms tick_anchor_ms_ = 0;
    Ms tick_ms_ = NONE;  // the next instant at which a pass that waits may happen
    std::int64_t running_place_, tail_place_, front_place_;
    std::int64_t used_gpus_ = 0;
    std::int64_t idle_passes_ = 0;    // of a whole-pass policy that lets jobs wait in an empty cluster
    std::int64_t wasted_starts_ = 0;  // that ended before their restart cost was paid
    std::pair<std::size_t, Wide> progress_{0, 0};  // completions and work done when last looked at
    GpuMs held_gpu_ms_ = 0;
    GpuMs held_before_gpu_ms_ = 0;
    GpuMs held_by_finished_gpu_ms_ = 0;
    std::int64_t events_ = 0;
    std::int64_t instants_ = 0;
    std::int64_t preemptions_ = 0;
    std::int64_t preemptions_max_ = NONE;
    JobId arrived_ = 0;
    std::vector<JobId> closed_;
    Log log_;
    Walk walk_;
    Themis themis_;
    Verdict verdict_;  // of an auction
    std::vector<JobId> settlers_, dropped_;  // scratch of a commit
};

}  // namespace trimtab
