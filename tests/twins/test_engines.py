"""Two engines, one answer: the compiled core against the reference engine, compared with `==`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import replay
import strategies as some
from trimtab.cluster import Cluster
from trimtab.errors import TrimtabError
from trimtab.job import JobFacts
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.policies.tiresias import Tiresias
from trimtab.profile import Profile
from trimtab.simulate import fast
from trimtab.simulate.curves import BUILTIN_CURVES
from trimtab.simulate.engine import Engine
from trimtab.simulate.engines import Simulation, engine_name, make_engine
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.metrics import jobs_table
from trimtab.simulate.mix import USUAL_MIX, with_curve_models
from trimtab.simulate.models import assign_models
from trimtab.simulate.run import World, simulate
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.workload import Workload
from trimtab.traces.deadlines import with_deadlines
from trimtab.traces.synthetic import generate
from trimtab.world import Seeds
from twins.pairs import check_equal, compiled, ending, events, examples, moments, state


@examples(400)
@given(some.cases(updates_max=3))
def test_the_twins_give_the_same_events(case):
    """All policies, placements and knobs, hot updates, virtual clusters, learnt and given estimates."""
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(150)
@given(some.cases(["themis", "chronus", "lucid", "sensascale-plus"], updates_max=20))
def test_the_twins_agree_however_often_knobs_change(case):
    """Where ends of leases, of profiles and reviews are due beside many changes of knobs."""
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(150)
@given(some.cases(updates_max=2), st.data())
def test_the_twins_agree_at_every_stop(case, data):
    """Stopped at instants in mid-run, both are in the same state, and the core's indexes are what the
    allocations say."""
    reference, core = case.engine(), compiled(case)
    for until_ms in sorted(data.draw(st.lists(moments(case), min_size=1, max_size=4))):
        assert ending(reference, until_ms) == ending(core, until_ms)
        check_equal(reference, core)
        assert state(reference.snapshot()) == state(core.snapshot())
        core._core.check_indexes()
        for job_id in range(len(case.workload)):
            assert (reference.active(job_id) is None) == (core.active(job_id) is None)


@examples(150)
@given(some.cases(updates_max=2), st.data())
def test_a_snapshot_goes_on_in_either_engine(case, data):
    """A snapshot taken by one engine goes on in the other as in itself, also under other knobs."""
    time_ms = data.draw(moments(case))
    knobs = data.draw(st.one_of(st.none(), some.settings(case.policy.space)))
    found = []
    for first in (case.engine(), compiled(case)):
        if ending(first, time_ms) is not None:
            return
        snapshot = first.snapshot()
        for engine in (Engine, FastEngine):
            second = engine.resume(
                snapshot, case.workload, case.cluster, case.policy, case.environment, timeline=True
            )
            if knobs is not None:
                second.update(snapshot.now_ms, knobs)
            found.append((ending(second), events(second), second.records, second.held_gpu_ms, second.events))
    assert all(one == found[0] for one in found)


@examples(100)
@given(some.cases(updates_max=1), st.data())
def test_the_table_of_a_run_says_what_its_records_say(case, data):
    """Also of one stopped in mid-run: what is still to happen is null, and both engines' tables are one."""
    reference, core = case.engine(), compiled(case)
    until_ms = data.draw(st.one_of(st.none(), moments(case)))
    assert ending(reference, until_ms) == ending(core, until_ms)
    table = jobs_table(case.workload, core.outcomes)
    assert table.equals(jobs_table(case.workload, reference.outcomes))
    assert table.schema == jobs_table(case.workload, reference.outcomes).schema
    for job, row in enumerate(table.iter_rows(named=True)):
        record, submit_ms = reference.records[job], case.workload.facts[job].submit_ms
        jct_ms = None if record.finish_ms is None else record.finish_ms - submit_ms
        assert row["start_s"] == seconds(record.first_start_ms)
        assert row["finish_s"] == seconds(record.finish_ms)
        assert row["jct_s"] == seconds(jct_ms)
        assert row["wait_s"] == seconds(None if jct_ms is None else jct_ms - case.workload.duration_ms[job])
        assert row["queue_s"] == seconds(None if jct_ms is None else jct_ms - record.held_ms)
        assert row["held_s"] == seconds(None if jct_ms is None else record.held_ms)
        assert (row["preemptions"], row["rejected"]) == (record.preemptions, record.rejected)


def seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


@examples(100)
@given(some.cases(updates_max=3))
def test_the_core_keeps_every_promise(case):
    """The core's own timeline, read by the ledger that knows no engine: no GPU owned twice, each given back
    by who held it, each job's work exact to the millisecond."""
    core = compiled(case)
    if ending(core) is None:
        replay.check(case, core)  # type: ignore[arg-type]


def test_a_demotion_one_millisecond_late_is_found(monkeypatch):
    """The test of the tests: with grades one GPU-ms off in the core alone, the comparison finds it."""
    right = fast._built_in_plan

    def late(policy, knobs):
        plan = right(policy, knobs)
        plan.grades = [grade + 1 for grade in plan.grades]  # one ms later for a gang of one GPU
        return plan

    monkeypatch.setattr(fast, "_built_in_plan", late)

    def differs(case: some.Case) -> bool:
        reference, core = case.engine(), compiled(case)
        return ending(reference) != ending(core) or events(reference) != events(core)

    once = settings(examples(2000), phases=[Phase.generate])  # the first that differs will do
    found = find(some.cases(["tiresias"]), differs, settings=once)
    monkeypatch.undo()
    assert not differs(found)


_ORDERED = [
    ("srtf", None),
    ("srsf", None),
    *(("tiresias", one) for one in ("las", "srsf", "gittins", "fifo")),
]


@pytest.mark.parametrize("shift_ms", [-7_777_777, -(10**12), 10**12])
@pytest.mark.parametrize(("policy", "priority"), _ORDERED)
def test_the_clock_may_begin_anywhere(policy, priority, shift_ms):
    """Long before 0, or so late that a gang's GPUs times the clock leave 64 bits."""

    @examples(40)
    @given(some.cases([policy]))
    def check(case):
        facts = [one._replace(submit_ms=one.submit_ms + shift_ms) for one in case.workload.facts]
        values = dict(case.knobs) if priority is None else {**case.knobs, "priority": priority}
        case = replace(
            case,
            workload=Workload(facts, case.workload.duration_ms),
            knobs=case.policy.space.project(values),
            completed_gpu_ms=(*case.completed_gpu_ms, 1000),
        )
        reference, core = case.engine(), compiled(case)
        assert ending(reference) == ending(core)
        check_equal(reference, core)

    check()


def test_many_widths_are_all_scheduled():
    """A hundred different gang widths wait at once: none is lost."""
    facts = [JobFacts(f"j{width}", 0, width) for width in range(1, 101)]
    workload = Workload(facts, [60_000] * len(facts))
    case = replace(some.plain_case(workload, "tiresias", {}), cluster=Cluster.pool(25, 4), placement="count")
    core, reference = compiled(case), case.done()
    core.run()
    check_equal(reference, core)


# ---- which engine runs -------------------------------------------------------------------------------


def _made(kind: str, policy, workload: Workload | None = None) -> Simulation:
    workload = workload or Workload([JobFacts("a", 0, 1)], [1000])
    case = some.plain_case(workload, "tiresias", {})
    return make_engine(kind, workload, case.cluster, policy, case.knobs, case.environment)


def test_auto_takes_the_core_and_reference_does_not():
    assert engine_name(_made("auto", Tiresias())) == "compiled"
    assert engine_name(_made("compiled", Tiresias())) == "compiled"
    assert engine_name(_made("reference", Tiresias())) == "reference"


def test_a_policy_of_ones_own_runs_on_the_core_too(capsys):
    class Mine(Tiresias):
        name = "mine"

    assert engine_name(_made("auto", Mine())) == "compiled"
    assert engine_name(_made("reference", Mine())) == "reference"
    assert capsys.readouterr().err == ""


def test_run_times_beyond_64_bits_run_on_the_reference_engine_and_that_is_said_once(capsys):
    workload = Workload([JobFacts("long", 0, 1)], [1 << 50])
    assert engine_name(_made("auto", Tiresias(), workload)) == "reference"
    assert engine_name(_made("auto", Tiresias(), workload)) == "reference"
    assert capsys.readouterr().err.count("a run time is too long for 64 bits") == 1


def test_too_many_profiles_run_on_the_reference_engine_and_that_is_said(capsys):
    """The core keeps a table of all pairs of profiles; 1,024 are the most, where jobs may share at all."""
    engines = (("lucid", 1024, "compiled"), ("lucid", 1025, "reference"), ("themis", 1025, "compiled"))
    for policy, count, engine in engines:
        facts = [JobFacts(str(one), 0, 1, profile=Profile(gmem_mib=one)) for one in range(count)]
        workload = Workload(facts, [1000] * count)
        case = replace(some.plain_case(workload, policy, {}), speeds=some.Pairs((900_000,)))
        arguments = workload, case.cluster, case.policy, case.knobs, case.environment
        assert engine_name(make_engine("auto", *arguments)) == engine
    assert capsys.readouterr().err == (
        "trimtab: jobs have 1025 different profiles, more than 1024: the reference engine runs, "
        "with the same results but slower\n"
    )


# ---- values at the ends of their ranges ----------------------------------------------------------

ENDLESS = (1e9, 1e13, 1e18, 1.7e308, math.inf)
EXTREMES = [
    (name, knob.name, value)
    for name, policy in POLICIES.items()
    for knob in policy().space.knobs
    if knob.kind in ("int", "fraction")
    for value in (knob.low, *((knob.high,) if math.isfinite(knob.high) else ENDLESS))
]


@pytest.mark.parametrize(("name", "knob", "value"), EXTREMES)
def test_a_knob_at_the_end_of_its_range_is_the_same_to_both(name, knob, value):
    trace = generate("philly?days=1&load=0.4&seed=3")
    trace = with_deadlines(trace.select(np.arange(len(trace)) % 20 == 0), "chronus", "MIX2", Seeds(1))
    if name == "lucid":
        trace = assign_models(trace, BUILTIN, "draw", Seeds(1)).trace
    trace = with_curve_models(trace, BUILTIN_CURVES, "column", USUAL_MIX, Seeds(1)).trace
    knobs = find_policy(name).space.project({knob: value})
    found = []
    for engine in ("reference", "compiled"):
        world = World(engine=engine, curves="builtin")
        try:
            found.append(simulate(trace, Cluster.pool(2, 8), name, knobs, world).timeline.digest())
        except TrimtabError as refusal:
            found.append(str(refusal))
    assert found[0] == found[1]
