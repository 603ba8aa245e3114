// What Python sees of the core: module `trimtab._core`, used through `simulate/fast.py`.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "chronus.hpp"
#include "engine.hpp"
#include "python.hpp"
#include "python_policy.hpp"
#include "sensascale.hpp"
#include "situation.hpp"
#include "slurm.hpp"
#include "synergy.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace trimtab {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> copied(const Column<T>& column) {
    return {column.data(), column.data() + column.shape(0)};
}

// A NumPy array with a copy of what a vector holds from a place on.
template <typename T>
auto array(const std::vector<T>& values, std::size_t from = 0) {
    const std::size_t count = values.size() - std::min(from, values.size());
    T* const data = new T[count];
    std::copy(values.end() - static_cast<std::ptrdiff_t>(count), values.end(), data);
    return owning<T>(data, count);
}

// A NumPy array of one value of each entry from a place on.
template <typename Entry, typename Value>
auto array_of(const std::vector<Entry>& entries, std::size_t from, Value value) {
    std::vector<decltype(value(entries.front()))> values;
    values.reserve(entries.size() - from);
    for (std::size_t place = from; place < entries.size(); ++place) values.push_back(value(entries[place]));
    return array(values);
}

std::int64_t number(const nb::handle& value) {
    return value.is_none() ? std::int64_t{NONE} : nb::cast<std::int64_t>(value);
}

// An estimator written in Python; every call takes the GIL.
class PythonEstimator final : public Estimator {
public:
    PythonEstimator(nb::object estimator, nb::object facts)
        : estimator_(std::move(estimator)), facts_(std::move(facts)) {}
    PythonEstimator(const PythonEstimator&) = delete;
    PythonEstimator& operator=(const PythonEstimator&) = delete;
    ~PythonEstimator() override {
        nb::gil_scoped_acquire gil;
        estimator_.reset();
        facts_.reset();
    }
    void observe(JobId job, Ms duration_ms, Ms now_ms) override {
        nb::gil_scoped_acquire gil;
        estimator_.attr("observe")(facts_[job], duration_ms, now_ms);
    }
    bool retrain(Ms now_ms, Ms period_ms) override {
        nb::gil_scoped_acquire gil;
        return nb::cast<bool>(estimator_.attr("retrain")(now_ms, period_ms));
    }
    Ms estimate_ms(JobId job, Ms now_ms, double history_weight) override {
        nb::gil_scoped_acquire gil;
        return nb::cast<Ms>(estimator_.attr("estimate_ms")(job, facts_[job], now_ms, history_weight));
    }
    std::shared_ptr<Estimator> fork() override {
        nb::gil_scoped_acquire gil;
        return std::make_shared<PythonEstimator>(estimator_.attr("fork")(), facts_);
    }

private:
    nb::object estimator_;
    nb::object facts_;
};

std::shared_ptr<Pairing> make_pairing(const Column<std::int32_t>& kind, const Column<std::int64_t>& gmem_mib,
                                      const Column<std::int64_t>& newcomers_ppm,
                                      const Column<std::int64_t>& partners_ppm, const Column<std::uint8_t>& fits) {
    return std::make_shared<Pairing>(Pairing{copied(kind), static_cast<std::int32_t>(gmem_mib.shape(0)), copied(gmem_mib),
                                             copied(newcomers_ppm), copied(partners_ppm), copied(fits)});
}

void bind_lucid(nb::module_& module) {
    nb::class_<Pairing>(module, "Pairing");
    module.def("pairing", &make_pairing, "kind"_a, "gmem_mib"_a, "newcomers_ppm"_a, "partners_ppm"_a, "fits"_a);
    nb::class_<Pace>(module, "Pace");
    module.def("pace", [](std::vector<std::pair<Ms, std::int64_t>> steps) {
        return std::make_shared<Pace>(Pace{std::move(steps)});
    }, "steps"_a);
    nb::enum_<LucidRules::Prefers>(module, "Prefers")
        .value("free_first", LucidRules::Prefers::free_first)
        .value("pack_first", LucidRules::Prefers::pack_first)
        .value("forecast", LucidRules::Prefers::forecast);
    nb::class_<LucidRules>(module, "LucidRules")
        .def(nb::init<>())
        .def_rw("prof_nodes", &LucidRules::prof_nodes)
        .def_rw("t_prof_ms", &LucidRules::t_prof_ms)
        .def_rw("prof_factor", &LucidRules::prof_factor)
        .def_rw("autoscales", &LucidRules::autoscales)
        .def_rw("gsc", &LucidRules::gsc)
        .def_rw("scores", &LucidRules::scores)
        .def_prop_rw("ratio_ppm", [](const LucidRules& rules) { return optional(rules.ratio_ppm); },
                     [](LucidRules& rules, nb::object ratio_ppm) { rules.ratio_ppm = number(ratio_ppm); },
                     nb::for_setter(nb::arg("ratio_ppm").none()))
        .def_rw("off_below_ppm", &LucidRules::off_below_ppm)
        .def_rw("prefers", &LucidRules::prefers)
        .def_rw("is_best", &LucidRules::is_best)
        .def_rw("mem_limit_mib", &LucidRules::mem_limit_mib)
        .def_rw("strict", &LucidRules::strict);
}

struct SharedEstimator {
    std::shared_ptr<Estimator> held;
};

// A job as a tuple, in the order of `simulate/fast.py`.
nb::tuple to_tuple(const Job& job, const Grades& grades, const Care& care) {
    nb::list nodes;
    for (const Share share : job.nodes) nodes.append(nb::make_tuple(share.node, share.gpus));
    return nb::make_tuple(job.id, job.home, job.state == State::running, optional(job.estimate_ms), job.level,
                          nb::tuple(nb::cast(grades)), job.place, job.since_ms, job.held_ms, job.graded_ms, job.done,
                          job.speed_ppm, job.overhead_ms, job.paid_ms, optional(job.first_ms), optional(job.started_ms),
                          job.stopped_ms, optional(job.first_start_ms), job.preemptions, job.promotions,
                          nb::tuple(nodes), job.shielded, optional(job.lease_start_ms), optional(job.lease_end_ms),
                          optional(job.renewal_ms), job.submit_job_ms, job.stamp,
                          job.partner < 0 ? nb::object(nb::none()) : nb::cast(job.partner), optional(job.until_ms),
                          care.share.is_told() ? nb::object(nb::make_tuple(care.share.cores, care.share.memory_mib)) : nb::none(),
                          optional(care.resized_ms), care.resizes, nb::tuple(nb::cast(care.note)),
                          optional(care.promise_ms));
}

Care care_from(const nb::tuple& values, std::size_t next) {
    Care care;
    if (!values[next].is_none()) {
        const auto [cores, memory_mib] = nb::cast<std::pair<std::int32_t, std::int64_t>>(values[next]);
        care.share = {cores, memory_mib};
    }
    care.resized_ms = number(values[next + 1]);
    care.resizes = nb::cast<std::int32_t>(values[next + 2]);
    care.note = nb::cast<std::vector<std::int64_t>>(values[next + 3]);
    care.promise_ms = number(values[next + 4]);
    return care;
}

Job from_tuple(const nb::tuple& values, const Workload& workload, SavedState& saved) {
    Job job;
    std::size_t next = 0;
    const auto take = [&] { return number(values[next++]); };
    job.id = static_cast<JobId>(take());
    job.home = static_cast<std::int32_t>(take());
    job.state = nb::cast<bool>(values[next++]) ? State::running : State::pending;
    job.estimate_ms = take();
    job.level = static_cast<std::int32_t>(take());
    job.grades = static_cast<std::int32_t>(saved.grades.size());
    saved.grades.push_back(nb::cast<Grades>(values[next++]));
    if (saved.grades.size() > 1 && saved.grades.back() == saved.grades[saved.grades.size() - 2]) {
        saved.grades.pop_back();
        --job.grades;
    }
    job.place = take();
    job.since_ms = take();
    job.held_ms = take();
    job.graded_ms = take();
    job.done = take();
    job.speed_ppm = take();
    job.overhead_ms = take();
    job.paid_ms = take();
    job.first_ms = take();
    job.started_ms = take();
    job.stopped_ms = take();
    job.first_start_ms = take();
    job.preemptions = static_cast<std::int32_t>(take());
    job.promotions = static_cast<std::int32_t>(take());
    for (const nb::handle share : nb::cast<nb::tuple>(values[next++])) {
        const auto [node, count] = nb::cast<std::pair<std::int32_t, std::int32_t>>(share);
        job.nodes.add({node, count});
    }
    job.shielded = nb::cast<bool>(values[next++]);
    job.lease_start_ms = take();
    job.lease_end_ms = take();
    job.renewal_ms = take();
    job.submit_job_ms = take();
    job.stamp = static_cast<std::uint32_t>(take());
    const std::int64_t partner = take();
    job.partner = partner == NONE ? -1 : static_cast<JobId>(partner);
    job.until_ms = take();
    saved.cares.push_back(care_from(values, next));
    job.gpus = workload.gpus.at(static_cast<std::size_t>(job.id));
    job.member_gpus = workload.member_gpus.at(static_cast<std::size_t>(job.id));
    return job;
}

nb::dict save(Engine& engine) {
    const SavedState saved = engine.save();
    nb::list jobs;
    for (const Job& job : saved.jobs) jobs.append(to_tuple(job, engine.grades_of(job), engine.care(job.id)));
    nb::list dirty;
    for (const bool is_dirty : saved.dirty) dirty.append(is_dirty);
    nb::dict found;
    found["now_ms"] = saved.now_ms;
    found["jobs"] = jobs;
    found["arrived"] = saved.arrived;
    found["places"] = nb::make_tuple(saved.places[0], saved.places[1], saved.places[2]);
    found["tick_anchor_ms"] = saved.tick_anchor_ms;
    found["dirty"] = nb::tuple(dirty);
    found["completed_gpu_ms"] = nb::tuple(nb::cast(saved.completed_gpu_ms));
    found["sampled"] = nb::make_tuple(saved.sampled, saved.sampled_ms);
    nb::list reviews_ms;
    for (const Ms review_ms : saved.reviews_ms) reviews_ms.append(optional(review_ms));
    found["reviews_ms"] = nb::tuple(reviews_ms);
    found["job_ms"] = nb::tuple(nb::cast(saved.job_ms));
    nb::list memories;
    for (const std::vector<std::int64_t>& memory : saved.memories) memories.append(nb::tuple(nb::cast(memory)));
    found["memories"] = nb::tuple(memories);
    found["crossing"] = nb::tuple(nb::cast(saved.crossing));
    return found;
}

void restore(Engine& engine, const nb::dict& state) {
    SavedState saved;
    saved.now_ms = nb::cast<Ms>(state["now_ms"]);
    for (const nb::handle job : nb::cast<nb::list>(state["jobs"])) {
        saved.jobs.push_back(from_tuple(nb::cast<nb::tuple>(job), engine.workload(), saved));
    }
    saved.arrived = nb::cast<std::int32_t>(state["arrived"]);
    const auto places = nb::cast<std::vector<std::int64_t>>(state["places"]);
    saved.places = {places.at(0), places.at(1), places.at(2)};
    saved.tick_anchor_ms = nb::cast<Ms>(state["tick_anchor_ms"]);
    for (const nb::handle dirty : nb::cast<nb::tuple>(state["dirty"])) saved.dirty.push_back(nb::cast<bool>(dirty));
    saved.completed_gpu_ms = nb::cast<std::vector<GpuMs>>(state["completed_gpu_ms"]);
    const auto sampled = nb::cast<std::pair<std::int64_t, Ms>>(state["sampled"]);
    saved.sampled = sampled.first;
    saved.sampled_ms = sampled.second;
    for (const nb::handle review_ms : nb::cast<nb::tuple>(state["reviews_ms"])) saved.reviews_ms.push_back(number(review_ms));
    saved.job_ms = nb::cast<std::vector<std::int64_t>>(state["job_ms"]);
    saved.memories = nb::cast<std::vector<std::vector<std::int64_t>>>(state["memories"]);
    saved.crossing = nb::cast<std::vector<JobId>>(state["crossing"]);
    engine.restore(saved);
}

// The timeline's columns: what was written from an event on, and from a share on.
nb::tuple log_since(const Engine& engine, std::size_t event, std::size_t share, std::size_t given) {
    const Log& log = engine.log();
    const auto entries = [&](auto value) { return array_of(log.entries, event, value); };
    const auto shares = [&](auto value) { return array_of(log.shares, share, value); };
    const auto gifts = [&](auto value) { return array_of(log.given, given, value); };
    return nb::make_tuple(entries([](const LogEntry& entry) { return entry.time_ms; }),
                          entries([](const LogEntry& entry) { return static_cast<std::int32_t>(entry.kind); }),
                          entries([](const LogEntry& entry) { return entry.job; }),
                          entries([](const LogEntry& entry) { return entry.detail; }),
                          entries([](const LogEntry& entry) { return entry.beside; }),
                          shares([](Share one) { return one.node; }), shares([](Share one) { return one.gpus; }),
                          gifts([](Given one) { return one.entry; }), gifts([](Given one) { return one.share.cores; }),
                          gifts([](Given one) { return one.share.memory_mib; }));
}

// A NumPy array by job id: a value of the jobs that have finished or were rejected, `otherwise` for the others.
template <typename T, typename Value>
auto column(const Engine& engine, T otherwise, const Value& value) {
    const auto count = static_cast<std::size_t>(engine.workload().size());
    T* const data = new T[count];
    std::fill_n(data, count, otherwise);
    for (const JobId id : engine.closed()) data[id] = value(engine.job(id));
    return owning<T>(data, count);
}

// The columns of `Outcomes` in `simulate/state.py`; NONE for what did not happen.
nb::tuple outcomes(const Engine& engine) {
    return nb::make_tuple(
        column<Ms>(engine, NONE, [](const Job& job) { return job.first_start_ms; }),
        column<Ms>(engine, NONE, [](const Job& job) { return job.finish_ms(); }),
        column<Ms>(engine, 0, [](const Job& job) { return job.held_ms; }),
        column<Ms>(engine, 0, [](const Job& job) { return job.paid_ms; }),
        column<std::int64_t>(engine, 0, [](const Job& job) { return job.preemptions; }),
        column<bool>(engine, false, [](const Job& job) { return job.state == State::rejected; }),
        column<std::int64_t>(engine, 0, [](const Job& job) { return job.life_job_ms; }),
        column<std::int64_t>(engine, 0, [&](const Job& job) { return engine.care(job.id).resizes; }),
        column<Ms>(engine, NONE, [&](const Job& job) { return engine.care(job.id).promise_ms; }));
}

std::shared_ptr<Workload> make_workload(const Column<Ms>& submit_ms, const Column<Ms>& duration_ms,
                                        const Column<std::int64_t>& spread_ppm,
                                        const Column<std::int64_t>& skew_ppm,
                                        const Column<std::int32_t>& gpus, const Column<std::int32_t>& member_gpus,
                                        const Column<std::int32_t>& home) {
    auto workload = std::make_shared<Workload>();
    workload->submit_ms = copied(submit_ms);
    workload->duration_ms = copied(duration_ms);
    workload->spread_ppm = copied(spread_ppm);
    workload->skew_ppm = copied(skew_ppm);
    workload->gpus = copied(gpus);
    workload->member_gpus = copied(member_gpus);
    workload->home = copied(home);
    workload->number_widths();
    return workload;
}

// Tell a workload what users want, and what CPU and memory do to jobs.
void add_wants(Workload& workload, const Column<std::int32_t>& service, const nb::list& services,
               const Column<std::int32_t>& known_curve, const Column<std::int32_t>& true_curve, const nb::list& curves) {
    workload.service = copied(service);
    for (const nb::handle entry : services) {
        const auto [kind, deadlines_ms, values] =
            nb::cast<std::tuple<std::int32_t, std::vector<Ms>, std::vector<std::int64_t>>>(entry);
        workload.services.push_back({static_cast<Service::Kind>(kind), deadlines_ms, values});
    }
    workload.known_curve = copied(known_curve);
    workload.true_curve = copied(true_curve);
    for (const nb::handle entry : curves) {
        const auto [cores, memory_mib, speeds_ppm, footprint_mib] =
            nb::cast<std::tuple<std::vector<std::int32_t>, std::vector<std::int64_t>, std::vector<std::int64_t>,
                                std::int64_t>>(entry);
        workload.curves.push_back({cores, memory_mib, speeds_ppm, footprint_mib});
    }
}

// Tell a workload who wants its jobs, and what that is worth.
void add_claims(Workload& workload, const nb::list& claims, std::vector<std::vector<std::int64_t>> preempts,
                std::map<std::int64_t, std::int64_t> shares) {
    for (const nb::handle entry : claims) {
        const auto [limit_ms, account, user, tier, partition_ppm, qos_ppm, qos_priority, qos] =
            nb::cast<std::tuple<Ms, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t>>(entry);
        workload.claims.push_back({limit_ms, account, user, tier, partition_ppm, qos_ppm, qos_priority, qos});
    }
    workload.preempts = std::move(preempts);
    workload.shares = std::move(shares);
}

Engine make_engine(std::shared_ptr<Workload> workload,
                   const std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int64_t>>& vcs,
                   const std::string& policy, const Plan& plan, const std::string& placement,
                   std::vector<Ms> restart_ms, Ms cold_start_ms, Ms adjust_ms, bool has_estimates,
                   const SharedEstimator* estimator, std::vector<GpuMs> completed_gpu_ms,
                   std::shared_ptr<Decider> decider, std::shared_ptr<Pairing> pairing, std::shared_ptr<Pace> pace,
                   bool timeline) {
    std::vector<VirtualCluster> clusters;
    for (const auto& [nodes, gpus, first_node, cores, memory_mib] : vcs) {
        clusters.push_back({nodes, gpus, first_node, cores, memory_mib});
    }
    Environment environment;
    environment.counted = placement == "count";
    environment.relaxed = placement == "relaxed";
    environment.restart_ms = std::move(restart_ms);
    environment.cold_start_ms = cold_start_ms;
    environment.adjust_ms = adjust_ms;
    environment.has_estimates = has_estimates;
    if (estimator != nullptr) environment.estimator = estimator->held;
    environment.completed_gpu_ms = std::move(completed_gpu_ms);
    environment.decider = std::move(decider);
    environment.pairing = std::move(pairing);
    environment.pace = std::move(pace);
    return Engine(std::move(workload), clusters, policy, plan, std::move(environment), timeline);
}

// Do something while Python goes on elsewhere, unless a policy in Python is asked meanwhile.
template <typename Deed>
void without_python(bool asks_policy, const Deed& deed) {
    std::optional<nb::gil_scoped_release> free;
    if (!asks_policy) free.emplace();
    deed();
}

nb::list stays(const Situation& situation, const std::vector<Plan>& plans, std::int32_t threads) {
    std::vector<Stays> computed;
    const bool asks = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.planner != nullptr; });
    const bool here = asks || situation.start().asks_policy();
    without_python(here, [&] { computed = situation.stays(plans, here ? 1 : threads); });
    nb::list found;
    for (const Stays& one : computed) {
        found.append(nb::make_tuple(array(one.ids), array(one.age_ms), array(one.left_ms), array(one.idle_ms),
                                    array(one.members), array(one.fair),
                                    nb::make_tuple(one.jobs, one.run_ms, one.queue_ms, one.restart_ms, one.preemptions),
                                    one.thrashes, one.stuck, one.first_stuck));
    }
    return found;
}

void raise_as(const char* name, const char* message) {
    const nb::object type = nb::module_::import_("trimtab.errors").attr(name);
    PyErr_SetString(type.ptr(), message);
}

void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const InvariantError& error) {
        raise_as("InvariantError", error.what());
    } catch (const Thrashing& error) {
        raise_as("Thrashing", error.what());
    } catch (const ConfigError& error) {
        raise_as("ConfigError", error.what());
    }
}

// What SensaScale's knobs amount to; choices are told by their places.
void bind_sensascale(nb::module_& module) {
    nb::class_<SensaRules> rules(module, "SensaRules");
    rules.def(nb::init<>())
        .def_rw("urgent_ms", &SensaRules::urgent_ms)
        .def_rw("depth", &SensaRules::depth)
        .def_rw("reserve_ppm", &SensaRules::reserve_ppm)
        .def_rw("drops", &SensaRules::drops)
        .def_rw("rescues", &SensaRules::rescues)
        .def_rw("displaces", &SensaRules::displaces)
        .def_rw("outlast_ppm", &SensaRules::outlast_ppm)
        .def_rw("max_evictions", &SensaRules::max_evictions)
        .def_rw("tick_ms", &SensaRules::tick_ms)
        .def_rw("is_explicit", &SensaRules::is_explicit)
        .def_rw("admits", &SensaRules::admits)
        .def_rw("theta_ppm", &SensaRules::theta_ppm)
        .def_rw("delta_ppm", &SensaRules::delta_ppm)
        .def_rw("eps_ppm", &SensaRules::eps_ppm)
        .def_rw("margin_ppm", &SensaRules::margin_ppm)
        .def_rw("overrun_ppm", &SensaRules::overrun_ppm)
        .def_rw("credit_ppm", &SensaRules::credit_ppm)
        .def_rw("keeps", &SensaRules::keeps)
        .def_rw("window", &SensaRules::window)
        .def_rw("is_best", &SensaRules::is_best)
        .def_rw("memory_ppm", &SensaRules::memory_ppm)
        .def_rw("time_ppm", &SensaRules::time_ppm)
        .def_rw("latest_ppm", &SensaRules::latest_ppm)
        .def_rw("lends", &SensaRules::lends)
        .def_rw("guard_ms", &SensaRules::guard_ms)
        .def_rw("guard_ppm", &SensaRules::guard_ppm)
        .def_rw("floor_ppm", &SensaRules::floor_ppm)
        .def_rw("donate_ppm", &SensaRules::donate_ppm)
        .def_rw("hysteresis_ppm", &SensaRules::hysteresis_ppm)
        .def_rw("cooldown_ms", &SensaRules::cooldown_ms)
        .def_rw("pools", &SensaRules::pools);
    rules.def_prop_rw(
        "order", [](const SensaRules& told) { return static_cast<int>(told.order); },
        [](SensaRules& told, int place) { told.order = static_cast<SensaRules::Order>(place); });
    rules.def_prop_rw(
        "reference", [](const SensaRules& told) { return static_cast<int>(told.reference); },
        [](SensaRules& told, int place) { told.reference = static_cast<SensaRules::Reference>(place); });
    rules.def_prop_rw(
        "be_order", [](const SensaRules& told) { return static_cast<int>(told.be_order); },
        [](SensaRules& told, int place) { told.be_order = static_cast<SensaRules::BestEffort>(place); });
    rules.def_prop_rw(
        "backfill", [](const SensaRules& told) { return static_cast<int>(told.backfill); },
        [](SensaRules& told, int place) { told.backfill = static_cast<SensaRules::Backfill>(place); });
    rules.def_prop_rw(
        "scope", [](const SensaRules& told) { return static_cast<int>(told.scope); },
        [](SensaRules& told, int place) { told.scope = static_cast<SensaRules::Scope>(place); });
    module.def("sensascale", [](const SensaRules& told) -> std::shared_ptr<Decider> {
        return std::make_shared<SensaScale>(told);
    }, "rules"_a);
}

void bind_slurm(nb::module_& module) {
    nb::class_<SlurmFormula>(module, "SlurmFormula")
        .def(nb::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, Ms,
                      std::int64_t, std::int64_t, Ms>());
    nb::enum_<SlurmRules::Preempts>(module, "SlurmPreempts")
        .value("none", SlurmRules::Preempts::none)
        .value("partition", SlurmRules::Preempts::partition)
        .value("qos", SlurmRules::Preempts::qos);
    nb::class_<SlurmRules>(module, "SlurmRules")
        .def(nb::init<>())
        .def_rw("formula", &SlurmRules::formula)
        .def_rw("depth", &SlurmRules::depth)
        .def_rw("interval_ms", &SlurmRules::interval_ms)
        .def_rw("rest_ms", &SlurmRules::rest_ms)
        .def_rw("fills", &SlurmRules::fills)
        .def_rw("fill_ms", &SlurmRules::fill_ms)
        .def_rw("window_ms", &SlurmRules::window_ms)
        .def_rw("resolution_ms", &SlurmRules::resolution_ms)
        .def_rw("test_max", &SlurmRules::test_max)
        .def_rw("user_max", &SlurmRules::user_max)
        .def_rw("start_max", &SlurmRules::start_max)
        .def_rw("preempts", &SlurmRules::preempts)
        .def_rw("exempt_ms", &SlurmRules::exempt_ms);
    module.def("slurm", [](const SlurmRules& told) -> std::shared_ptr<Decider> {
        return std::make_shared<Slurm>(told);
    }, "rules"_a);
}

}  // namespace
}  // namespace trimtab

NB_MODULE(_core, module) {
    using namespace trimtab;
    // An engine held by the module whose policy it asks ends with the interpreter: nothing to tell people about.
    nb::set_leak_warnings(false);
    Engine::pause = [] {
        nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    };
    nb::register_exception_translator(translate);
    module.attr("built") = TRIMTAB_BUILT;

    nb::class_<Workload>(module, "Workload")
        .def_ro("widths", &Workload::widths)
        .def("add_wants", &add_wants, "service"_a, "services"_a, "known_curve"_a, "true_curve"_a, "curves"_a)
        .def("add_claims", &add_claims, "claims"_a, "preempts"_a, "shares"_a);
    module.def("workload", &make_workload, "submit_ms"_a, "duration_ms"_a, "spread_ppm"_a, "skew_ppm"_a, "gpus"_a,
               "member_gpus"_a, "home"_a);

    nb::enum_<Rank>(module, "Rank")
        .value("place", Rank::place)
        .value("arrival", Rank::arrival)
        .value("estimate", Rank::estimate)
        .value("estimated_service", Rank::estimated_service)
        .value("remaining", Rank::remaining)
        .value("remaining_service", Rank::remaining_service)
        .value("seniority", Rank::seniority)
        .value("gittins", Rank::gittins)
        .value("due", Rank::due)
        .value("hook", Rank::hook);
    nb::enum_<Regrade>(module, "Regrade")
        .value("immediate", Regrade::immediate)
        .value("lazy", Regrade::lazy)
        .value("new_only", Regrade::new_only);
    nb::enum_<Starve>(module, "Starve")
        .value("never", Starve::never)
        .value("ratio", Starve::ratio)
        .value("absolute", Starve::absolute)
        .value("hook", Starve::hook);

    nb::class_<Plan>(module, "Plan")
        .def(nb::init<>())
        .def_rw("knobs", &Plan::knobs)
        .def_rw("text", &Plan::text)
        .def_rw("preemptive", &Plan::preemptive)
        .def_rw("strict", &Plan::strict)
        .def_rw("grades", &Plan::grades)
        .def_rw("regrade", &Plan::regrade)
        .def_rw("rank", &Plan::rank)
        .def_rw("counts_overhead", &Plan::counts_overhead)
        .def_rw("starve", &Plan::starve)
        .def_rw("starve_ppm", &Plan::starve_ppm)
        .def_rw("starve_ms", &Plan::starve_ms)
        .def_rw("may_consolidate", &Plan::may_consolidate)
        .def_rw("pack_limit_ppm", &Plan::pack_limit_ppm)
        .def_rw("min_run_ms", &Plan::min_run_ms)
        .def_rw("quantum_ms", &Plan::quantum_ms)
        .def_rw("needs_estimates", &Plan::needs_estimates)
        .def_rw("needs_nodes", &Plan::needs_nodes)
        .def("set_native", [](Plan& plan, std::shared_ptr<Decider> decider) { plan.native = std::move(decider); },
             "decider"_a)
        .def("set_lucid", [](Plan& plan, std::shared_ptr<LucidRules> rules) { plan.lucid = std::move(rules); }, "rules"_a)
        .def("set_due", [](Plan& plan, const Column<std::int64_t>& due_ms) {
            plan.due_ms = std::make_shared<const std::vector<Ms>>(copied(due_ms));
        }, "due_ms"_a)
        .def_rw("history_weight", &Plan::history_weight)
        .def_rw("retrain_ms", &Plan::retrain_ms)
        .def_rw("rescore", &Plan::rescore)
        .def_rw("refresh_ms", &Plan::refresh_ms)
        .def_rw("hooks_level", &Plan::hooks_level)
        .def_rw("hooks_change", &Plan::hooks_change)
        .def_rw("hooks_consolidate", &Plan::hooks_consolidate)
        .def("set_auction", [](Plan& plan, Ms lease_ms, bool cuts, std::int64_t visible_ppm, bool paper,
                               std::int64_t threshold_ppm, Ms delay_ms, bool payment) {
            plan.auction = AuctionRules{lease_ms, cuts, visible_ppm, paper, threshold_ppm, delay_ms, payment};
        }, "lease_ms"_a, "cuts"_a, "visible_ppm"_a, "paper"_a, "threshold_ppm"_a, "delay_ms"_a, "payment"_a)
        .def("set_planner", [](Plan& plan, std::shared_ptr<Planner> planner) { plan.planner = std::move(planner); },
             "planner"_a);

    bind_python_policies(module);
    bind_sensascale(module);
    bind_lucid(module);
    nb::enum_<SynergyRules::Order>(module, "SynergyOrder")
        .value("fifo", SynergyRules::Order::fifo)
        .value("srtf", SynergyRules::Order::srtf)
        .value("las", SynergyRules::Order::las);
    module.def("synergy", [](SynergyRules::Order order, bool gives, Ms round_ms) -> std::shared_ptr<Decider> {
        return std::make_shared<Synergy>(SynergyRules{order, gives, round_ms});
    }, "order"_a, "gives"_a, "round_ms"_a);
    bind_slurm(module);
    nb::enum_<ChronusRules::Objective>(module, "ChronusObjective")
        .value("adaptive", ChronusRules::Objective::adaptive)
        .value("maximize", ChronusRules::Objective::maximize)
        .value("minimize", ChronusRules::Objective::minimize);
    module.def("chronus", [](Ms lease_ms, ChronusRules::Objective objective, bool rounds_up, std::int64_t safety_ppm,
                             bool shortest_first, Ms fill_ms) -> std::shared_ptr<Decider> {
        return std::make_shared<Chronus>(ChronusRules{lease_ms, objective, rounds_up, safety_ppm, shortest_first, fill_ms});
    }, "lease_ms"_a, "objective"_a, "rounds_up"_a, "safety_ppm"_a, "shortest_first"_a, "fill_ms"_a);

    nb::class_<SharedEstimator>(module, "Estimator");
    module.def("oracle", [](const Column<Ms>& told_ms) {
        return SharedEstimator{std::make_shared<OracleEstimator>(copied(told_ms))};
    });
    module.def("learner", [](nb::object estimator, nb::object facts) {
        return SharedEstimator{std::make_shared<PythonEstimator>(std::move(estimator), std::move(facts))};
    });

    nb::class_<Engine>(module, "Engine")
        .def_prop_ro("now_ms", &Engine::now_ms)
        .def_prop_ro("events", &Engine::events)
        .def_prop_ro("preemptions", &Engine::preemptions)
        .def_prop_ro("preemptions_max", [](const Engine& engine) { return optional(engine.preemptions_max()); })
        .def("limit_preemptions", [](Engine& engine, nb::object most) { engine.limit_preemptions(number(most)); },
             "most"_a.none())
        .def_prop_ro("held_gpu_ms", &Engine::held_gpu_ms)
        .def_prop_ro("held_before_gpu_ms", &Engine::held_before_gpu_ms)
        .def_prop_ro("knobs", &Engine::knobs)
        .def_prop_ro("active_count", &Engine::active_count)
        .def_prop_ro("first_active", &Engine::first_active)
        .def_prop_ro("idles", &Engine::idles)
        .def("run", [](Engine& engine, nb::object until_ms) {
            const Ms limit_ms = number(until_ms);
            without_python(engine.asks_policy(), [&] { engine.run(limit_ms); });
        }, "until_ms"_a.none())
        .def("update", &Engine::update, "time_ms"_a, "plan"_a)
        .def("save", &save)
        .def("restore", &restore, "state"_a)
        .def("active", [](const Engine& engine, JobId id) -> nb::object {
            if (id < 0 || id >= engine.workload().size() || !engine.job(id).active()) return nb::none();
            return to_tuple(engine.job(id), engine.grades_of(engine.job(id)), engine.care(id));
        }, "job_id"_a)
        .def("log_since", &log_since, "event"_a, "share"_a, "given"_a)
        .def("outcomes", &outcomes)
        .def("check_indexes", &Engine::check_indexes);
    module.def("engine", &make_engine, "workload"_a, "vcs"_a, "policy"_a, "plan"_a, "placement"_a, "restart_ms"_a,
               "cold_start_ms"_a, "adjust_ms"_a, "has_estimates"_a, "estimator"_a.none(), "completed_gpu_ms"_a, "decider"_a.none(),
               "pairing"_a.none(), "pace"_a.none(), "timeline"_a);

    nb::class_<Situation>(module, "Situation")
        .def("__init__", [](Situation* made, const Engine& start, nb::object until_ms) {
            new (made) Situation(start.fork(), number(until_ms));
        }, "start"_a, "until_ms"_a.none())
        .def("stays", &stays, "plans"_a, "threads"_a);
}
