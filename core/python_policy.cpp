#include "python_policy.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan.hpp"
#include "policy.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace trimtab {
namespace {

std::string text(const nb::handle& value) { return nb::cast<std::string>(nb::repr(value)); }

// What Python knows of the jobs: their facts by id, and the two states a policy may see.
struct Facts {
    nb::object by_id;
    nb::object pending, running;
    std::string policy;  // its name, for refusals
};

// Lent to a policy while it is asked, and taken back afterwards.
struct Lease {
    std::shared_ptr<const Facts> facts;
    bool is_valid = true;
    const std::vector<Care>* cares = nullptr;
};

// A job as a policy may know it; see `JobView`.
struct JobHandle {
    std::shared_ptr<Lease> lease;
    const Job* held = nullptr;
    const Grades* grades = nullptr;

    const Job& job() const {
        if (!lease->is_valid) throw nb::value_error("a job can only be read while its policy is asked");
        return *held;
    }
    // What its policy did about it; a queue policy does nothing.
    const Care& care() const {
        static const Care NOTHING;
        const std::vector<Care>* const cares = lease->cares;
        return cares == nullptr ? NOTHING : (*cares)[static_cast<std::size_t>(job().id)];
    }
    nb::object facts() const { return lease->facts->by_id[job().id]; }
};

// A whole number, or the nearest one of 64 bits; NONE, which is below all of them, if it is none.
std::int64_t whole_number(const nb::object& value) {
    if (!PyLong_Check(value.ptr())) return NONE;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return number;
    return overflow > 0 ? INT64_MAX : INT64_MIN;
}

// ---- keys ------------------------------------------------------------------------------------------

[[noreturn]] void refuse(const Facts& facts, const Job& job, const std::string& what, const std::string& rule) {
    const auto label = nb::cast<std::string>(facts.by_id[job.id].attr("label"));
    throw ConfigError("policy " + facts.policy + ": " + what + " of job " + label + rule + "; the run ends here.");
}

// The bits of a fraction between -1 and 1, moved so that they are never negative and order as the fractions do.
std::int64_t bits_of(double fraction) {
    constexpr std::int64_t BITS_OF_ONE = 0x3FF0'0000'0000'0000;
    const auto bits = std::bit_cast<std::int64_t>(std::abs(fraction));
    return fraction < 0 ? BITS_OF_ONE - bits : BITS_OF_ONE + bits;
}

// A number as its whole part, towards 0, and the rest: both are exact, and order as numbers do.
std::pair<std::int64_t, std::int64_t> parts_of(const Facts& facts, const Job& job, const nb::handle& number) {
    constexpr std::int64_t MOST = INT64_MAX;
    if (PyIndex_Check(number.ptr())) {
        int overflow = 0;
        const nb::object integer = nb::steal(PyNumber_Index(number.ptr()));
        if (!integer.is_valid()) throw nb::python_error();
        const long long whole = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
        if (overflow != 0 || whole == INT64_MIN) {
            refuse(facts, job, "the key " + text(number), " is beyond 64 bits; use the reference engine");
        }
        return {whole, bits_of(0)};
    }
    if (!PyFloat_Check(number.ptr())) refuse(facts, job, "the key", " is not a number");
    const double value = PyFloat_AS_DOUBLE(number.ptr());
    if (std::isnan(value)) refuse(facts, job, "the key", " is not a number");
    if (std::isinf(value)) return value > 0 ? std::pair{MOST, MOST} : std::pair{std::int64_t{INT64_MIN}, std::int64_t{0}};
    const double whole = std::trunc(value);
    if (std::abs(whole) >= 9.2e18) {
        refuse(facts, job, "the key " + text(number), " is beyond 64 bits; use the reference engine");
    }
    return {static_cast<std::int64_t>(whole), bits_of(value - whole)};
}

// ---- queue policies --------------------------------------------------------------------------------

class PythonHooks final : public Hooks {
public:
    PythonHooks(std::shared_ptr<const Facts> facts, const nb::object& plan)
        : lease_(std::make_shared<Lease>()),
          key_(plan.attr("key")),
          level_(plan.attr("level")),
          change_(plan.attr("next_change_ms")),
          starve_(plan.attr("starve_ms")),
          consolidate_(plan.attr("consolidate")) {
        lease_->facts = std::move(facts);
        lease_->is_valid = false;
    }
    PythonHooks(const PythonHooks&) = delete;
    PythonHooks& operator=(const PythonHooks&) = delete;
    ~PythonHooks() override {
        nb::gil_scoped_acquire gil;
        for (nb::object* held : {&key_, &level_, &change_, &starve_, &consolidate_, &handle_}) held->reset();
        lease_.reset();
    }

    void key(const Job& job, const Grades& grades, Ms now_ms, Order& order) const override {
        const nb::object key = ask(job, grades, [&](const nb::object& view) { return key_(view, now_ms); });
        if (!nb::isinstance<nb::tuple>(key)) {
            std::tie(order.key, order.second) = parts_of(*lease_->facts, job, key);
            return;
        }
        LongKey parts;
        for (const nb::handle number : nb::borrow<nb::tuple>(key)) {
            const auto [whole, fraction] = parts_of(*lease_->facts, job, number);
            parts.parts.push_back(whole);
            parts.parts.push_back(fraction);
        }
        order.key = parts.parts.empty() ? INT64_MIN : parts.parts.front();
        std::deque<LongKey>& kept = job.state == State::pending ? pending_keys_ : running_keys_;
        kept.push_back(std::move(parts));
        order.second = long_key(&kept.back());
    }

    void begin_walk() const override { running_keys_.clear(); }

    std::int32_t level(const Job& job, const Grades& grades) const override {
        const nb::object level = ask(job, grades, level_);
        const std::int64_t number = whole_number(level);
        if (number < 0 || number > static_cast<std::int64_t>(grades.size())) {
            refuse(*lease_->facts, job, "level " + text(level), "; it must be 0 .. " + std::to_string(grades.size()));
        }
        return static_cast<std::int32_t>(number);
    }

    Ms next_change_ms(const Job& job, const Grades& grades) const override {
        const nb::object change_ms = ask(job, grades, change_);
        if (change_ms.is_none()) return NONE;
        const Ms number = whole_number(change_ms);
        if (number <= 0) {
            refuse(*lease_->facts, job, "next_change_ms = " + text(change_ms), "; it must be a whole number above 0");
        }
        return std::min(number, NEVER_MS / 2);
    }

    Ms starve_ms(const Job& job, const Grades& grades) const override {
        const nb::object limit_ms = ask(job, grades, starve_);
        if (limit_ms.is_none()) return NONE;
        const Ms number = whole_number(limit_ms);
        if (number < 0) {
            refuse(*lease_->facts, job, "starve_ms = " + text(limit_ms), "; it must be a whole number of at least 0");
        }
        return std::min(number, NEVER_MS / 2);
    }

    bool consolidates(const Job& job, const Grades& grades) const override {
        const nb::object answer = ask(job, grades, consolidate_);
        const int found = PyObject_IsTrue(answer.ptr());
        if (found < 0) throw nb::python_error();
        return found == 1;
    }

    bool has_level_of(const Hooks* other) const override {
        const auto* hooks = dynamic_cast<const PythonHooks*>(other);
        return hooks != nullptr && hooks->level_.is(level_);
    }

private:
    // Ask one question about a job; what was lent for it is worth nothing afterwards.
    template <typename Question>
    nb::object ask(const Job& job, const Grades& grades, const Question& question) const {
        if (!handle_.is_valid() || Py_REFCNT(handle_.ptr()) > 1) {
            lease_ = std::make_shared<Lease>(Lease{lease_->facts, false});
            handle_ = nb::cast(JobHandle{lease_, nullptr, nullptr});
            view_ = nb::inst_ptr<JobHandle>(handle_);
        }
        view_->held = &job;
        view_->grades = &grades;
        lease_->is_valid = true;
        struct Return {
            Lease& lease;
            ~Return() { lease.is_valid = false; }
        } at_the_end{*lease_};
        return question(handle_);
    }

    mutable std::shared_ptr<Lease> lease_;
    mutable nb::object handle_;
    mutable JobHandle* view_ = nullptr;
    mutable std::deque<LongKey> pending_keys_, running_keys_;  // deques: keys stay where they are
    nb::object key_, level_, change_, starve_, consolidate_;
};

class PythonPlanner final : public Planner {
public:
    explicit PythonPlanner(nb::object make) : make_(std::move(make)) {}
    PythonPlanner(const PythonPlanner&) = delete;
    PythonPlanner& operator=(const PythonPlanner&) = delete;
    ~PythonPlanner() override {
        nb::gil_scoped_acquire gil;
        make_.reset();
    }
    Plan plan(const std::vector<GpuMs>& completed_gpu_ms) const override {
        return nb::cast<Plan>(make_(nb::tuple(nb::cast(completed_gpu_ms))));
    }

private:
    nb::object make_;
};

// ---- whole-pass policies ---------------------------------------------------------------------------

// Jobs by id, as a sequence and as columns; see `JobList`.
struct JobHandles {
    std::shared_ptr<Lease> lease;
    std::vector<const Job*> jobs;
    const std::vector<Ms>* submit_ms;

    const std::vector<const Job*>& held() const {
        if (!lease->is_valid) throw nb::value_error("jobs can only be read while their policy is asked");
        return jobs;
    }
    JobHandle handle(const Job* job) const {
        static const Grades NO_GRADES;
        return {lease, job, &NO_GRADES};
    }
    JobHandle at(std::int64_t place) const {
        const auto count = static_cast<std::int64_t>(held().size());
        if (place < 0) place += count;
        if (place < 0 || place >= count) throw nb::index_error();
        return handle(jobs[static_cast<std::size_t>(place)]);
    }
    nb::object find(nb::object wanted) const {
        if (!PyIndex_Check(wanted.ptr())) return nb::none();
        const nb::object integer = nb::steal(PyNumber_Index(wanted.ptr()));
        if (!integer.is_valid()) throw nb::python_error();
        int overflow = 0;
        const long long id = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
        const auto is_before = [](const Job* job, long long sought) { return job->id < sought; };
        const auto found = std::lower_bound(held().begin(), held().end(), id, is_before);
        return overflow != 0 || found == jobs.end() || (*found)->id != id ? nb::none() : nb::cast(handle(*found));
    }
};

using Column = std::int64_t (*)(const Job&);

const std::pair<const char*, Column> COLUMNS[] = {
    {"id", [](const Job& job) -> std::int64_t { return job.id; }},
    {"gpus", [](const Job& job) -> std::int64_t { return job.gpus; }},
    {"submit_ms", nullptr},
    {"estimate_ms", [](const Job& job) { return job.estimate_ms; }},
    {"held_ms", [](const Job& job) { return job.held_ms; }},
    {"done", [](const Job& job) { return job.done; }},
    {"speed_ppm", [](const Job& job) { return job.speed_ppm; }},
    {"overhead_ms", [](const Job& job) { return job.overhead_ms; }},
    {"started_ms", [](const Job& job) { return job.started_ms; }},
    {"stopped_ms", [](const Job& job) { return job.stopped_ms; }},
    {"first_start_ms", [](const Job& job) { return job.first_start_ms; }},
    {"preemptions", [](const Job& job) -> std::int64_t { return job.preemptions; }},
};

nb::object column(const JobHandles& handles, const std::string& name) {
    for (const auto& [known, value] : COLUMNS) {
        if (name != known) continue;
        const std::size_t count = handles.held().size();
        auto* data = new std::int64_t[count];
        for (std::size_t at = 0; at < count; ++at) {
            const Job& job = *handles.jobs[at];
            const std::int64_t found =
                value == nullptr ? (*handles.submit_ms)[static_cast<std::size_t>(job.id)] : value(job);
            data[at] = found == NONE ? -1 : found;
        }
        return nb::cast(owning<const std::int64_t>(data, count));
    }
    nb::module_::import_("trimtab.job").attr("check_column")(name);
    return nb::none();
}

class PythonDecider final : public Decider {
public:
    PythonDecider(std::shared_ptr<const Facts> facts, nb::object decide, nb::object review)
        : facts_(std::move(facts)), decide_(std::move(decide)), review_(std::move(review)) {}
    PythonDecider(const PythonDecider&) = delete;
    PythonDecider& operator=(const PythonDecider&) = delete;
    ~PythonDecider() override {
        nb::gil_scoped_acquire gil;
        decide_.reset();
        review_.reset();
        facts_.reset();
    }

    Verdict decide(const View& view) const override {
        const auto found = nb::cast<nb::tuple>(ask(decide_, view));
        Verdict verdict;
        verdict.is_empty = nb::cast<bool>(found[0]);
        verdict.lost = nb::cast<std::vector<JobId>>(found[1]);
        for (const nb::handle entry : nb::cast<nb::list>(found[2])) {
            const nb::tuple start = nb::cast<nb::tuple>(entry);
            Nodes nodes;
            for (const nb::handle share : nb::cast<nb::tuple>(start[1])) {
                const nb::tuple pair = nb::cast<nb::tuple>(share);
                nodes.add({nb::cast<std::int32_t>(pair[0]), nb::cast<std::int32_t>(pair[1])});
            }
            verdict.places.emplace_back(nb::cast<JobId>(start[0]), std::move(nodes));
        }
        for (const nb::handle entry : nb::cast<nb::list>(found[3])) {
            const nb::tuple terms = nb::cast<nb::tuple>(entry);
            verdict.terms.push_back({nb::cast<JobId>(terms[0]), terms[1].is_none() ? std::int64_t{NONE} : nb::cast<Ms>(terms[1]),
                                     terms[2].is_none() ? -1 : nb::cast<JobId>(terms[2])});
        }
        for (const auto& [id, start_ms, end_ms, renewal_ms] :
             nb::cast<std::vector<std::tuple<JobId, Ms, Ms, Ms>>>(found[4])) {
            verdict.grants.push_back({id, start_ms, end_ms, renewal_ms});
        }
        verdict.shares = given(found[5]);
        verdict.resizes = given(found[6]);
        for (const nb::handle entry : nb::cast<nb::list>(found[7])) {
            const nb::tuple note = nb::cast<nb::tuple>(entry);
            verdict.notes.push_back({nb::cast<JobId>(note[0]), note[2].is_none() ? std::int64_t{NONE} : nb::cast<Ms>(note[2]),
                                     nb::cast<std::vector<std::int64_t>>(note[1])});
        }
        if (!found[8].is_none()) verdict.memory = nb::cast<std::vector<std::int64_t>>(found[8]);
        return verdict;
    }

    Ms next_review_ms(const View& view) const override {
        const nb::object review_ms = ask(review_, view);
        return review_ms.is_none() ? std::int64_t{NONE} : nb::cast<Ms>(review_ms);
    }

private:
    static std::vector<Verdict::Given> given(const nb::handle& told) {
        std::vector<Verdict::Given> found;
        for (const auto& [id, cores, memory_mib] : nb::cast<std::vector<std::tuple<JobId, std::int32_t, std::int64_t>>>(told)) {
            found.push_back({id, {cores, memory_mib}});
        }
        return found;
    }

    nb::object ask(const nb::object& question, const View& view) const {
        const auto lease = std::make_shared<Lease>(Lease{facts_, true, &view.cares});
        struct Return {
            Lease& lease;
            ~Return() { lease.is_valid = false; }
        } at_the_end{*lease};
        return question(view.now_ms, view.home, view.knobs, JobHandles{lease, view.pending, &view.submit_ms},
                        JobHandles{lease, view.running, &view.submit_ms}, nb::cast(view.free_gpus), view.job_ms,
                        optional(view.review_ms), nb::tuple(nb::cast(view.memory)));
    }

    std::shared_ptr<const Facts> facts_;
    nb::object decide_, review_;
};

nb::tuple nodes_of(const JobHandle& handle) {
    nb::list nodes;
    for (const Share share : handle.job().nodes) nodes.append(nb::make_tuple(share.node, share.gpus));
    return nb::tuple(nodes);
}

std::shared_ptr<const Facts> facts_of(const std::string& policy, nb::object by_id) {
    const nb::object states = nb::module_::import_("trimtab.job").attr("JobState");
    return std::make_shared<Facts>(Facts{std::move(by_id), states.attr("PENDING"), states.attr("RUNNING"), policy});
}

void bind_jobs(nb::module_& module) {
    const auto number = [](auto member) {
        return [member](const JobHandle& handle) { return handle.job().*member; };
    };
    const auto maybe = [](auto member) {
        return [member](const JobHandle& handle) { return optional(handle.job().*member); };
    };
    nb::class_<JobHandle>(module, "JobHandle")
        .def_prop_ro("id", number(&Job::id))
        .def_prop_ro("home", number(&Job::home))
        .def_prop_ro("facts", &JobHandle::facts)
        .def_prop_ro("submit_ms", [](const JobHandle& handle) { return handle.facts().attr("submit_ms"); })
        .def_prop_ro("gpus", number(&Job::gpus))
        .def_prop_ro("member_gpus", number(&Job::member_gpus))
        .def_prop_ro("state", [](const JobHandle& handle) {
            const Facts& facts = *handle.lease->facts;
            return handle.job().state == State::running ? facts.running : facts.pending;
        })
        .def_prop_ro("estimate_ms", maybe(&Job::estimate_ms))
        .def_prop_ro("level", number(&Job::level))
        .def_prop_ro("grades", [](const JobHandle& handle) {
            handle.job();
            return nb::tuple(nb::cast(*handle.grades));
        })
        .def_prop_ro("place", number(&Job::place))
        .def_prop_ro("since_ms", number(&Job::since_ms))
        .def_prop_ro("held_ms", number(&Job::held_ms))
        .def_prop_ro("graded_ms", number(&Job::graded_ms))
        .def_prop_ro("done", number(&Job::done))
        .def_prop_ro("speed_ppm", number(&Job::speed_ppm))
        .def_prop_ro("overhead_ms", number(&Job::overhead_ms))
        .def_prop_ro("paid_ms", number(&Job::paid_ms))
        .def_prop_ro("first_ms", maybe(&Job::first_ms))
        .def_prop_ro("started_ms", maybe(&Job::started_ms))
        .def_prop_ro("stopped_ms", number(&Job::stopped_ms))
        .def_prop_ro("first_start_ms", maybe(&Job::first_start_ms))
        .def_prop_ro("preemptions", number(&Job::preemptions))
        .def_prop_ro("promotions", number(&Job::promotions))
        .def_prop_ro("nodes", &nodes_of)
        .def_prop_ro("shielded", number(&Job::shielded))
        .def_prop_ro("lease_start_ms", maybe(&Job::lease_start_ms))
        .def_prop_ro("lease_end_ms", maybe(&Job::lease_end_ms))
        .def_prop_ro("renewal_ms", maybe(&Job::renewal_ms))
        .def_prop_ro("submit_job_ms", number(&Job::submit_job_ms))
        .def_prop_ro("stamp", number(&Job::stamp))
        .def_prop_ro("until_ms", maybe(&Job::until_ms))
        .def_prop_ro("share", [](const JobHandle& handle) -> nb::object {
            const Allotment share = handle.care().share;
            if (!share.is_told()) return nb::none();
            return nb::module_::import_("trimtab.curve").attr("Share")(share.cores, share.memory_mib);
        })
        .def_prop_ro("resized_ms", [](const JobHandle& handle) { return optional(handle.care().resized_ms); })
        .def_prop_ro("resizes", [](const JobHandle& handle) { return handle.care().resizes; })
        .def_prop_ro("note", [](const JobHandle& handle) { return nb::tuple(nb::cast(handle.care().note)); })
        .def_prop_ro("promise_ms", [](const JobHandle& handle) { return optional(handle.care().promise_ms); })
        .def_prop_ro("partner", [](const JobHandle& handle) -> nb::object {
            const JobId partner = handle.job().partner;
            return partner < 0 ? nb::object(nb::none()) : nb::cast(partner);
        })
        .def("__eq__", [](const JobHandle& one, const nb::object& other) {
            JobHandle two;
            return nb::try_cast(other, two) && one.held == two.held;
        })
        .def("__hash__", [](const JobHandle& handle) { return handle.job().id; })
        .def("attained_gpu_ms", [](const JobHandle& handle) { return handle.job().attained_gpu_ms(); })
        .def("remaining", [](const JobHandle& handle, Ms now_ms) { return handle.job().remaining(now_ms); }, "now_ms"_a)
        .def("done_by", [](const JobHandle& handle, Ms now_ms) { return handle.job().done_by(now_ms); }, "now_ms"_a)
        .def("unpaid_overhead_ms", [](const JobHandle& handle, Ms now_ms) {
            return handle.job().unpaid_overhead_ms(now_ms);
        }, "now_ms"_a);
    nb::class_<JobHandles>(module, "JobHandles")
        .def("__len__", [](const JobHandles& handles) { return handles.held().size(); })
        .def("__getitem__", &JobHandles::at, "place"_a)
        .def("column", &column, "name"_a)
        .def("find", &JobHandles::find, "job_id"_a.none());
}

}  // namespace

void bind_python_policies(nb::module_& module) {
    bind_jobs(module);
    nb::class_<Planner>(module, "Planner");
    nb::class_<Decider>(module, "Decider");
    module.def("planner", [](nb::object make) -> std::shared_ptr<Planner> {
        return std::make_shared<PythonPlanner>(std::move(make));
    }, "make"_a);
    module.def("decider", [](const std::string& policy, nb::object facts, nb::object decide,
                             nb::object review) -> std::shared_ptr<Decider> {
        return std::make_shared<PythonDecider>(facts_of(policy, std::move(facts)), std::move(decide), std::move(review));
    }, "policy"_a, "facts"_a, "decide"_a, "review"_a);
    module.def("add_hooks", [](Plan& plan, const std::string& policy, nb::object facts, const nb::object& told) {
        plan.hooks = std::make_shared<PythonHooks>(facts_of(policy, std::move(facts)), told);
    }, "plan"_a, "policy"_a, "facts"_a, "told"_a);
}

}  // namespace trimtab
