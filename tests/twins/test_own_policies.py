"""Policies of one's own give the same events on both engines, and the same refusals."""

from __future__ import annotations

import gc
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from trimtab.cluster import Cluster
from trimtab.errors import ConfigError
from trimtab.job import JobFacts
from trimtab.policies.policy import Plan, QueuePolicy, Start
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine, core_built
from trimtab.simulate.workload import Workload
from twins import own_policies as own
from twins.pairs import check_either_goes_on, check_equal, compiled, ending, events, examples, moments

# A policy, and the built-in one whose knobs its cases are drawn with (None: the policy's own).
QUEUES = {
    own.OwnTiresias(): "tiresias",
    own.OwnSrtf(): "srtf",
    own.OwnSrsf(): "srsf",
    own.OwnQssf(): "qssf",
    own.OwnSjf(): "sjf",
    own.Levels(): None,
    own.ByWidth(): None,
    own.Patient(): None,
    own.Fractions(): None,
    own.Endless(): None,
}


@st.composite
def cases(draw, policies, updates_max=2):
    """Draw a policy of one's own and a case with legal knobs of it."""
    policy, like = draw(st.sampled_from(sorted(policies.items(), key=lambda item: item[0].name)))
    case = draw(some.cases([like or "fifo"], updates_max=updates_max))
    if like is None:
        updates = tuple((time_ms, draw(some.settings(policy.space))) for time_ms, _ in case.updates)
        case = replace(case, knobs=draw(some.settings(policy.space)), updates=updates)
    return policy, case


def _twins(policy, case):
    fast = FastEngine(case.workload, case.cluster, policy, case.knobs, case.environment, timeline=True)
    for time_ms, knobs in case.updates:
        fast.update(time_ms, knobs)
    return case.engine(policy=policy), fast


@examples(300)
@given(cases(QUEUES))
def test_queue_policies_give_the_same_events(drawn):
    reference, core = _twins(*drawn)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(200)
@given(cases({own.Picky(): None, own.OwnThemis(): "themis", own.Crowd(): None, own.OwnLucid(): "lucid"}))
def test_whole_pass_policies_give_the_same_events(drawn):
    reference, core = _twins(*drawn)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(150)
@given(
    cases(
        {**QUEUES, own.Picky(): None, own.OwnThemis(): "themis", own.Crowd(): None, own.OwnLucid(): "lucid"}
    ),
    st.data(),
)
def test_they_agree_at_every_stop_and_go_on_in_either_engine(drawn, data):
    policy, case = drawn
    reference, core = _twins(policy, case)
    until_ms = data.draw(moments(case))
    assert ending(reference, until_ms) == ending(core, until_ms)
    check_equal(reference, core)
    core._core.check_indexes()
    check_either_goes_on(case, reference, core)


@examples(40)
@given(cases({own.OwnTiresias(): "tiresias"}))
def test_a_policy_written_as_hooks_is_the_built_in_one(drawn):
    """A subclass that changes nothing runs through the hooks, and does what the core's own Tiresias does."""
    policy, case = drawn
    hooks, built_in = _twins(policy, case)[1], compiled(case)
    assert (ending(hooks) is None) == (ending(built_in) is None)
    assert events(hooks) == events(built_in)


_JOBS = Workload([JobFacts(f"j{i}", 1000 * (i // 2), 1 + i % 3) for i in range(6)], [20_000] * 6)


@pytest.mark.parametrize("way", own.WRONG_WAYS)
def test_wrong_decisions_are_refused_alike(way):
    case = replace(some.plain_case(_JOBS, "fifo", {}), cluster=Cluster.pool(2, 4))
    reference, core = _twins(own.Wrong(way), case)
    refusal = ending(reference)
    assert refusal is not None
    assert refusal.startswith(("ConfigError", "UnknownName"))
    assert refusal == ending(core)
    check_equal(reference, core)


@pytest.mark.parametrize("way", own.WRONG_HOOKS)
def test_wrong_hooks_are_refused_alike(way):
    case = replace(some.plain_case(_JOBS, "fifo", {}), cluster=Cluster.pool(2, 4))
    reference, core = _twins(own.WrongHook(way), case)
    refusal = ending(reference)
    assert refusal is not None
    assert refusal.startswith("ConfigError")
    assert refusal == ending(core)


@pytest.mark.parametrize("policy", own.WRONG_PLANS)
def test_wrong_plans_are_refused_alike(policy):
    case = replace(some.plain_case(_JOBS, "fifo", {}), cluster=Cluster.pool(2, 2), placement="relaxed")
    reference, core = _twins(policy, case)
    refusal = ending(reference)
    assert refusal is not None
    assert refusal.startswith("ConfigError")
    assert refusal == ending(core)


@pytest.mark.parametrize(
    "settings",
    [
        {"refresh_ms": -5},
        {"quantum_ms": -7},
        {"min_run_ms": 1 << 62},
        {"grades": (0.5,)},
        {"regrade": "soon"},
    ],
)
def test_a_plan_out_of_bounds_is_refused_by_both(settings):
    class Out(QueuePolicy):
        name = "out"

        def plan(self, knobs, completed_gpu_ms=()):
            return Plan(**settings)

    case = some.plain_case(_JOBS, "fifo", {})
    for engine in (Engine, FastEngine):
        with pytest.raises(ConfigError, match="a plan's"):
            engine(case.workload, case.cluster, Out(), case.knobs, case.environment)


def test_jobs_compare_hash_and_start_by_columns_alike():
    """As people write: sets of jobs, `in`, ids from a column, nodes as lists, decisions from a generator."""

    class Loose:
        name = "loose"
        space = own.Picky.space

        def decide(self, view, knobs):
            waiting = [
                job for job in view.pending if job in view.pending and job == view.pending.find(job.id)
            ]
            assert len({*waiting, *view.pending}) == len(view.pending)
            for at, job in enumerate(waiting):
                nodes = view.free.place(job.gpus)
                if nodes is not None:
                    view.free.take(nodes)
                    yield Start(view.pending.column("id")[at], [list(share) for share in nodes])

        def next_review_ms(self, view, knobs):
            return None

    reference, core = _twins(Loose(), some.plain_case(_JOBS, "fifo", {}))
    assert ending(reference) is None
    assert ending(core) is None
    check_equal(reference, core)


def test_keys_of_several_numbers_do_not_pile_up():
    """Asked of each running job in each walk, they would fill the memory."""
    facts = [JobFacts(f"j{i}", 1000 * i, 1) for i in range(600)]
    case = replace(
        some.plain_case(Workload(facts, [40_000 + i for i in range(600)]), "fifo", {}),
        cluster=Cluster.pool(4, 4),
    )
    core = _twins(own.Fractions(), case)[1]
    core.run(100_000)
    before = _rss_bytes()
    core.run()
    kept_by_sanitizers = 500_000_000 if "sanitize" in str(core_built()) else 0  # they keep what is freed
    assert _rss_bytes() - before < 8_000_000 + kept_by_sanitizers


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_key_beyond_64_bits_is_refused_by_the_core_and_names_the_other_engine():
    class Huge(QueuePolicy):
        name = "huge"

        def key(self, job, now_ms, knobs):
            return 1 << 80

    reference, core = _twins(Huge(), some.plain_case(_JOBS, "fifo", {}))
    assert ending(reference) is None
    with pytest.raises(ConfigError, match="beyond 64 bits; use the reference engine"):
        core.run()


def test_a_job_kept_for_later_tells_nothing_and_harms_nobody():
    kept = []

    class Keeper(QueuePolicy):
        name = "keeper"

        def key(self, job, now_ms, knobs):
            kept.append(job)
            return job.gpus

    core = _twins(Keeper(), some.plain_case(_JOBS, "fifo", {}))[1]
    core.run()
    del core
    gc.collect()
    assert len(kept) >= len(_JOBS)
    for job in kept:
        with pytest.raises(ValueError, match="only be read while its policy is asked"):
            _ = job.gpus


def test_views_kept_for_later_tell_nothing_either():
    kept = []

    class Keeper:
        name = "keeper"
        space = own.Picky.space

        def decide(self, view, knobs):
            kept.append((view, view.pending[0] if len(view.pending) else None))
            return [Start(job.id) for job in view.pending if view.free.place(job.gpus)][:1]

        def next_review_ms(self, view, knobs):
            return None

    core = _twins(Keeper(), some.plain_case(_JOBS, "fifo", {}))[1]
    core.run()
    for view, job in kept:
        with pytest.raises(ValueError, match="only be read while their policy is asked"):
            len(view.pending)
        if job is not None:
            with pytest.raises(ValueError, match="only be read while its policy is asked"):
                _ = job.id


def test_a_job_is_read_only():
    class Writer(QueuePolicy):
        name = "writer"

        def key(self, job, now_ms, knobs):
            job.gpus = 1
            return 0

    core = _twins(Writer(), some.plain_case(_JOBS, "fifo", {}))[1]
    with pytest.raises(ConfigError, match=r"policy writer fails at 0\.000 s"):
        core.run()
