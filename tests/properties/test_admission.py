"""The deadline that admission names is the earliest one promised, and promises are kept."""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deadlines import MINUTE_MS, wanted_jobs
from trimtab.cluster import Cluster
from trimtab.job import BEST_EFFORT, JobFacts, Service
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import make_engine
from trimtab.simulate.run import World
from trimtab.simulate.state import Record
from trimtab.simulate.workload import Workload
from trimtab.studies.admission import Asked, Wish, ask

EXAMPLES = settings(
    max_examples=100 * int(os.environ.get("TRIMTAB_EXAMPLES", "1")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
PLUS = find_policy("sensascale-plus").space
NODE = Cluster.pool(1, 4)
WISHES = st.builds(
    Wish, gpus=st.integers(1, 4), run_ms=st.sampled_from([1, MINUTE_MS, 20 * MINUTE_MS, 45 * MINUTE_MS + 17])
)
GAPS_MS = st.sampled_from([0, 0, MINUTE_MS, 7 * MINUTE_MS])


def with_wish(jobs: Workload, wish: Wish, gap_ms: int) -> Workload:
    """Return the jobs with the one wished for, some time after the last of them."""
    submit_ms = jobs.facts[-1].submit_ms + gap_ms
    service = BEST_EFFORT
    if wish.deadline_ms is not None:
        service = Service("strict", (submit_ms + wish.deadline_ms,))
    facts = JobFacts("wish", submit_ms, wish.gpus, service=service)
    return Workload([*jobs.facts, facts], [*jobs.duration_ms, wish.run_ms])


def asked_of(workload: Workload, cluster: Cluster, knobs: Knobs, wish: Wish) -> Asked:
    return ask(workload, cluster, "sensascale-plus", knobs, WORLD, wish)


def records_of(workload: Workload, cluster: Cluster, knobs: Knobs) -> list[Record]:
    policy, environment = find_policy("sensascale-plus"), WORLD.environment(workload)
    engine = make_engine("auto", workload, cluster, policy, knobs, environment)
    engine.run()
    return engine.outcomes.records()


WORLD = World(restart_cost_s=0.0)


@EXAMPLES
@given(wanted_jobs(), WISHES, GAPS_MS, st.sampled_from(["lst", "edf", "srtf"]), st.integers(1, 2))
def test_the_earliest_deadline_is_promised_and_no_earlier_one(jobs, wish, gap_ms, order, nodes):
    """Submitted with it, the job is promised just that; a millisecond earlier, it is promised nothing."""
    cluster, knobs = Cluster.pool(nodes, 4), PLUS.project({"order": order})
    asked = asked_of(with_wish(jobs, wish, gap_ms), cluster, knobs, wish)
    after_ms = asked.answer.deadline_ms - asked.at_ms
    for early_ms, promise_ms in ((0, asked.answer.deadline_ms), (1, None)):
        wanted = replace(wish, deadline_ms=after_ms - early_ms)
        workload = with_wish(jobs, wanted, gap_ms)
        answer = asked_of(workload, cluster, knobs, wanted).answer
        assert answer.promise_ms == promise_ms
        assert answer.deadline_ms == asked.answer.deadline_ms
        assert records_of(workload, cluster, knobs)[-1].promise_ms == promise_ms


@EXAMPLES
@given(wanted_jobs(), WISHES, GAPS_MS)
def test_a_promise_is_kept_if_nothing_else_arrives(jobs, wish, gap_ms):
    """On one node, with latest start first, nobody giving way and speeds that stay."""
    jobs = Workload([one._replace(curve=None) for one in jobs.facts], jobs.duration_ms)
    knobs = PLUS.project({"order": "lst", "preempt": "off"})
    asked = asked_of(with_wish(jobs, wish, gap_ms), NODE, knobs, wish)
    wanted = replace(wish, deadline_ms=asked.answer.deadline_ms - asked.at_ms)
    last = records_of(with_wish(jobs, wanted, gap_ms), NODE, knobs)[-1]
    assert last.promise_ms == asked.answer.deadline_ms
    assert last.finish_ms is not None
    assert last.finish_ms <= last.promise_ms


STEADY = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["lst", "edf"]),
        "preempt": st.just("off"),
        "backfill": st.sampled_from(["lst", "lst", "conservative", "none"]),
        "reserve": st.sampled_from([0, 0, 0.3]),
        "depth": st.sampled_from([1, 8]),
        "guard_abs": st.sampled_from([0, 300]),
        "hopeless": st.sampled_from(["demote", "drop", "keep"]),
    }
)


@settings(EXAMPLES, max_examples=5 * EXAMPLES.max_examples)
@given(wanted_jobs(jobs_max=24), STEADY, st.sampled_from([4, 8]), st.data())
def test_all_promises_are_kept_whoever_arrives_and_whoever_is_refused(jobs, values, gpus, data):
    """On one node, with speeds that stay and nobody giving way; some deadlines are near, others hours off."""
    hours = st.sampled_from([None, None, 1, 2, 8])
    drawn = [(one, data.draw(hours)) for one in jobs.facts]
    facts = [
        one._replace(curve=None, service=one.service if far is None else _wanted_by(one.submit_ms, far))
        for one, far in drawn
    ]
    workload = Workload(facts, jobs.duration_ms)
    for record in records_of(workload, Cluster.pool(1, gpus), PLUS.project(values)):
        if record.promise_ms is not None:
            assert record.finish_ms is not None
            assert record.finish_ms <= record.promise_ms


def _wanted_by(submit_ms: int, hours: int) -> Service:
    return Service("strict", (submit_ms + 60 * MINUTE_MS * hours,))


@EXAMPLES
@given(wanted_jobs(), WISHES, GAPS_MS, st.integers(1, 99))
def test_what_would_help_does(jobs, wish, gap_ms, percent):
    """On the GPUs named, and longer in proportion, the deadline is promised; on more it is not."""
    knobs = PLUS.defaults
    first = asked_of(with_wish(jobs, wish, gap_ms), NODE, knobs, wish)
    wanted = replace(wish, deadline_ms=(first.answer.deadline_ms - first.at_ms) * percent // 100)
    answer = asked_of(with_wish(jobs, wanted, gap_ms), NODE, knobs, wanted).answer
    fewer = answer.gpus or 0
    assert fewer < wish.gpus
    for gpus in range(max(1, fewer), wish.gpus + 1) if answer.promise_ms is None else ():
        run_ms = -(-wish.run_ms * wish.gpus // gpus)
        other = replace(wanted, gpus=gpus, run_ms=run_ms)
        found = asked_of(with_wish(jobs, other, gap_ms), NODE, knobs, other).answer
        assert (found.promise_ms is not None) == (gpus == fewer)
