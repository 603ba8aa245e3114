"""What holds for every schedule of Themis: leases are kept, laziness changes nothing, fairness is exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from properties.test_engine import events, examples
from trimtab.cluster import ClusterView
from trimtab.errors import ConfigError
from trimtab.job import JobFacts
from trimtab.policies.fairness import Crowding, log2_units
from trimtab.simulate import engine as engines
from trimtab.simulate.engine import Engine
from trimtab.simulate.metrics import jobs_table, rhos
from trimtab.simulate.state import Environment
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload


def _plainly(case: some.Case, **values: object) -> some.Case:
    """Return a case with some knobs set, now and in its updates."""

    def set_in(knobs):
        return case.policy.space.project({**knobs, **values})

    updates = tuple((time_ms, set_in(knobs)) for time_ms, knobs in case.updates)
    return replace(case, knobs=set_in(case.knobs), updates=updates)


@examples(150)
@given(some.cases(["themis"], updates_max=3))
def test_a_lease_that_nobody_waits_for_need_not_be_looked_at(case):
    """Woken at every end of a lease, also while nobody waits, the policy does the same."""

    def every_end_ms(view: ClusterView, from_ms: int) -> int | None:
        ends = (job.lease_end_ms for job in view.running)
        return min((end_ms for end_ms in ends if end_ms is not None and end_ms >= from_ms), default=None)

    lazy = case.done()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "lease_due_ms", every_end_ms)
        eager = case.done()
    assert events(lazy) == events(eager)
    assert lazy.records == eager.records


@examples(100)
@given(some.cases(["themis"]))
def test_who_holds_a_lease_keeps_its_gpus_until_it_ends(case):
    """Without payments and delays, a job is stopped only where a lease of its own ends: at a whole number of
    leases from its start."""
    case = _plainly(case, auction_delay=0, hidden_payment=False)
    lease_ms = 1000 * case.knobs.integer("lease")
    started: dict[int, int] = {}
    for event in events(case.done()):
        assert event.job is not None
        if event.kind == "start":
            started[event.job] = event.time_ms
        elif event.kind == "preempt":
            assert event.time_ms > started[event.job]
            assert (event.time_ms - started[event.job]) % lease_ms == 0


@examples(100)
@given(some.cases(["themis", "fifo", "tiresias"], updates_max=1), st.data())
def test_active_jobs_are_counted_to_the_millisecond(case, data):
    """The integral over each job's life is the overlap of all lives with it, also after a snapshot."""
    engine = case.done()
    lives = [
        (facts.submit_ms, record.finish_ms, facts.members, case.cluster.home(facts.vc))
        for facts, record in zip(case.workload.facts, engine.records, strict=True)
        if record.finish_ms is not None
    ]
    found = [record.life_job_ms for record in engine.records if record.finish_ms is not None]
    overlaps = [
        sum(
            members * max(0, min(end, until) - max(begin, from_ms))
            for begin, end, members, where in lives
            if where == home
        )
        for from_ms, until, _, home in lives
    ]
    assert found == overlaps
    until_ms = data.draw(st.sampled_from([0, *(life[1] for life in lives)]))
    first = case.engine()
    first.run(until_ms)
    resumed = Engine.resume(first.snapshot(), case.workload, case.cluster, case.policy, case.environment)
    for time_ms, knobs in case.updates:
        if time_ms >= resumed.now_ms:
            resumed.update(time_ms, knobs)
    resumed.run()
    for one, other in zip(first.records, resumed.records, strict=True):
        whole = one if one.finish_ms is not None else other
        assert whole.life_job_ms in (one.life_job_ms, other.life_job_ms)
    assert [
        max(a.life_job_ms, b.life_job_ms) for a, b in zip(first.records, resumed.records, strict=True)
    ] == [record.life_job_ms for record in engine.records]


@examples(100)
@given(some.cases(["themis", "srtf"]))
def test_the_objective_and_the_metric_call_the_same_jobs_fair(case):
    """Counted in whole numbers while simulating, and in seconds from the table of a run."""
    one = replace(case, workload=_single(case.workload))
    situation = Situation.empty(one.workload, one.cluster, one.policy_name, one.environment)
    stays = situation.stays(one.knobs)
    plain = one.done()
    assert stays is not None
    rho = rhos(jobs_table(one.workload, plain.outcomes), one.cluster).to_list()
    ran = [value for value, record in zip(rho, plain.records, strict=True) if record.finish_ms is not None]
    assert len(ran) == len(stays.fair)
    for value, fair in zip(ran, stays.fair.tolist(), strict=True):
        if value is not None and abs(value - 1) > 1e-9:
            assert fair == (value <= 1)


def _single(workload: Workload) -> Workload:
    return Workload([one._replace(members=1) for one in workload.facts], workload.duration_ms)


@given(
    st.integers(1, 1 << 41),
    st.integers(1, 1 << 41),
    st.integers(1, 1 << 41),
    st.integers(1, 1 << 60),
    st.integers(1, 1 << 10),
    st.integers(1, 1 << 12),
)
def test_rho_is_the_fraction_rounded_down(time_ms, run_ms, age_ms, job_ms, gpus, vc_gpus):
    crowding = Crowding.of(age_ms, job_ms, gpus, vc_gpus)
    ideal_ms = run_ms * max(Fraction(1), Fraction(gpus * job_ms, vc_gpus * age_ms))
    assert crowding.rho_ppm(time_ms, run_ms) == 1_000_000 * time_ms // ideal_ms
    assert crowding.is_fair(time_ms, run_ms) == (time_ms <= ideal_ms)


@given(st.lists(st.tuples(st.integers(1, 1 << 42), st.integers(0, 1 << 42)), min_size=2, max_size=6))
def test_logarithms_are_never_out_of_order(pairs):
    quotients = sorted((Fraction(low + more, low), low + more, low) for low, more in pairs)
    found = [log2_units(numerator, denominator) for _, numerator, denominator in quotients]
    assert all(one <= two for one, two in pairwise(found))


def test_without_estimates_it_is_refused():
    case = some.plain_case(Workload([JobFacts("a", 0, 1)], [1000]), "themis", {})
    with pytest.raises(ConfigError, match="policy themis orders by estimates, and there are none"):
        Engine(case.workload, case.cluster, case.policy, case.knobs, Environment())
