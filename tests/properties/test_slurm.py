"""What holds for every schedule of the model of Slurm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import replay
from claims import claimed_cases
from properties.test_engine import examples
from trimtab.cluster import ClusterView
from trimtab.knobs import Knobs
from trimtab.policies.slurm import REQUEUE_MS, Slurm
from trimtab.policies.slurm_knobs import Rules
from trimtab.policies.slurm_usage import Association, Books, association_of
from trimtab.simulate.engine import Engine


@examples(100)
@given(claimed_cases(updates_max=2))
def test_every_job_gets_what_it_came_for_and_asked_again_nothing_changes(case):
    """Each job runs for its run time or up to its limit; right after a pass there is nothing to do."""
    again: list[object] = []

    class Asked(Slurm):
        def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
            again.extend(self.decide(view, knobs))
            return super().next_review_ms(view, knobs)

    replay.check(case, case.done(policy=Asked()))
    assert not again


@examples(60)
@given(claimed_cases(), st.integers(0, 900_000))
def test_a_resumed_run_equals_the_uninterrupted_one(case, after_ms):
    whole, engine = case.done(), case.engine()
    until_ms = engine.now_ms + after_ms
    engine.run(until_ms)
    again = Engine.resume(
        *(engine.snapshot(), case.workload, case.cluster, case.policy, case.environment), timeline=True
    )
    again.run()
    assert whole.timeline is not None
    assert again.timeline is not None
    assert again.timeline.events == [event for event in whole.timeline.events if event.time_ms >= until_ms]


@examples(60)
@given(claimed_cases())
def test_usage_that_is_never_forgotten_is_what_the_jobs_held(case):
    """Counted by association from pass to pass, it is the GPU time of its jobs to the millisecond."""
    case = replace(case, knobs=case.policy.space.project({**case.knobs, "PriorityDecayHalfLife": 0}))
    engine = case.done()
    held, counted = Counter[Association](), Counter[Association]()
    for facts, record in zip(case.workload.facts, engine.records, strict=True):
        held[association_of(facts)] += facts.gpus * record.held_ms
    for part in engine._parts:
        books = Books.open(part.memory, engine.now_ms, Rules.of(case.knobs))
        for association, one in books.usage.items():
            counted[association] += one.gpu_ms + one.accrued_gpu_ms
    assert +counted == +held


@examples(60)
@given(claimed_cases())
def test_nobody_starts_again_before_the_requeue_is_over(case):
    engine = case.done()
    stopped_ms: dict[int | None, int] = {}
    assert engine.timeline is not None
    for event in engine.timeline.events:
        if event.kind == "preempt":
            stopped_ms[event.job] = event.time_ms
        elif event.kind == "start" and event.job in stopped_ms:
            assert event.time_ms >= stopped_ms[event.job] + REQUEUE_MS
