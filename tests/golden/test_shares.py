"""CPU and memory by hand: what a share does to a job's speed, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trimtab.cluster import Cluster, ClusterView
from trimtab.curve import Curve, Share
from trimtab.errors import ConfigError
from trimtab.job import JobFacts
from trimtab.knobs import Knobs, Space
from trimtab.policies.policy import Decision, Note, Plan, Preempt, Resize, Start, WholePass
from trimtab.simulate.engine import Engine
from trimtab.simulate.engines import make_engine
from trimtab.simulate.fast import FastEngine, compiled_available
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import Workload

# Twice as fast with six cores a GPU as with three, half as fast with one and a half.
CURVE = Curve((3, 6), (21_333, 64_000), ((100_000, 100_000), (1_000_000, 2_000_000)), footprint_mib=1_000)
BOTH = [
    "reference",
    pytest.param(
        "compiled", marks=pytest.mark.skipif(not compiled_available(), reason="there is no compiled core")
    ),
]


class Scripted(WholePass):
    """Does what a script says at each instant, and starts everything else with what is proportional."""

    name = "scripted"
    space = Space()

    def __init__(self, script: dict[int, Sequence[Decision]], *, gives_shares: bool = True) -> None:
        self._script = script
        self._gives_shares = gives_shares

    def settings(self, knobs: Knobs) -> Plan:
        return Plan(gives_shares=self._gives_shares, needs_nodes=True)

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        decisions = list(self._script.get(view.now_ms, ()))
        told = {one.job_id for one in decisions if isinstance(one, Start)}
        with view.free.trial() as free:
            for one in decisions:
                if isinstance(one, Start) and (
                    nodes := one.nodes or free.place(view.pending.find(one.job_id).gpus)
                ):
                    free.take(nodes)
            for job in view.pending:
                if job.id not in told and (nodes := free.place(job.gpus)) is not None:
                    free.take(nodes)
                    decisions.append(Start(job.id, nodes))
        return decisions

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        return min((time_ms for time_ms in self._script if time_ms > view.now_ms), default=None)


def run(
    kind: str,
    script: dict[int, Sequence[Decision]],
    *,
    jobs: Sequence[tuple[int, int, Curve | None]] = ((2, 120_000, CURVE),),
    adjust_ms: int = 0,
    gives_shares: bool = True,
) -> Engine:
    """Run jobs of (GPUs, run time in ms, curve) that all come at 0 on one node of 4 GPUs and 12 cores."""
    facts = [JobFacts(f"J{place}", 0, gpus, curve=curve) for place, (gpus, _, curve) in enumerate(jobs)]
    engine = make_engine(
        kind,
        Workload(facts, [duration_ms for _, duration_ms, _ in jobs]),
        Cluster.pool(1, 4),
        Scripted(script, gives_shares=gives_shares),
        Knobs({}),
        Environment(restart_ms=flat_restart(0), adjust_ms=adjust_ms),
        timeline=True,
    )
    engine.run()
    return engine


@pytest.mark.parametrize("kind", BOTH)
def test_a_share_above_the_proportional_one_makes_a_job_faster(kind: str) -> None:
    engine = run(kind, {0: [Start(0, share=Share(9, 128_000))]})

    assert engine.timeline.text() == "     0 submit  J0\n     0 start   J0\n    80 finish  J0\n"
    assert engine.timeline.events[1].detail == "9 cores 128000 MiB"
    assert engine.outcomes.finish_ms.tolist() == [80_000]  # 4.5 cores a GPU: 1.5 times as fast


@pytest.mark.parametrize("kind", BOTH)
def test_memory_counts_in_steps(kind: str) -> None:
    engine = run(kind, {0: [Start(0, share=Share(6, 127_999))]})

    assert engine.outcomes.finish_ms.tolist() == [1_200_000]


@pytest.mark.parametrize("kind", BOTH)
def test_a_resize_settles_pays_and_goes_on_at_another_speed(kind: str) -> None:
    script = {60_000: [Resize(0, Share(12, 256_000))], 70_000: [Resize(0, None)]}
    engine = run(kind, script, adjust_ms=4_000)

    # 60 s done by then; 4 s of paying, 6 s twice as fast; paying again, and the 48 s that are left.
    assert engine.outcomes.finish_ms.tolist() == [70_000 + 4_000 + 48_000]
    assert engine.outcomes.resizes.tolist() == [2]
    assert engine.outcomes.paid_ms.tolist() == [8_000]
    assert [(event.kind, event.detail) for event in engine.timeline.events[2:4]] == [
        ("resize", "12 cores 256000 MiB"),
        ("resize", "6 cores 128000 MiB"),
    ]


@pytest.mark.parametrize("kind", BOTH)
def test_a_preempted_job_comes_back_with_its_note_and_without_its_share(kind: str) -> None:
    script = {
        0: [Start(0, share=Share(12, 256_000)), Note(0, (7, -3), promise_ms=90_000)],
        30_000: [Preempt(0)],
        40_000: [],
    }
    engine = run(kind, script)
    engine.run()

    assert engine.outcomes.finish_ms.tolist() == [40_000 + 60_000]
    assert engine.outcomes.promise_ms.tolist() == [90_000]


REFUSED = {
    "node 0 for 13 cores": {0: [Start(0, share=Share(13, 128_000))]},
    "and it has 12 cores 256000 MiB": {0: [Start(0, share=Share(6, 256_001))]},
    "below 1 core and 2000 MiB": {0: [Start(0, share=Share(6, 1_999))]},
    "it does not run, or is resized twice": {9: [Resize(0, None), Resize(0, None)]},
    "whole numbers of 63 bits": {0: [Note(0, (1 << 63,))]},
    "neither pending nor running": {0: [Note(5, ())]},
}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_given_is_refused_in_one_line(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(kind, REFUSED[said])


@pytest.mark.parametrize("kind", BOTH)
def test_shares_need_a_plan_that_says_so(kind: str) -> None:
    with pytest.raises(ConfigError, match="gives_shares"):
        run(kind, {0: [Start(0, share=Share(6, 128_000))]}, gives_shares=False)


@pytest.mark.parametrize("kind", BOTH)
def test_what_another_job_holds_beyond_its_part_is_not_there_for_a_start(kind: str) -> None:
    jobs = [(2, 120_000, CURVE), (2, 60_000, None)]
    with pytest.raises(ConfigError, match="node 0 for 16 cores"):
        run(kind, {0: [Start(0, share=Share(10, 128_000))]}, jobs=jobs)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("on", ["reference", "compiled"])
def test_shares_and_notes_survive_a_snapshot(kind: str, on: str) -> None:
    if on == "compiled" and not compiled_available():
        pytest.skip("there is no compiled core")
    script = {0: [Start(0, share=Share(10, 128_000)), Note(0, (1, 2), 99_000)], 10_000: [Resize(0, None)]}
    facts = [JobFacts("J0", 0, 2, curve=CURVE)]
    world = Workload(facts, [120_000]), Cluster.pool(1, 4), Scripted(script)
    engine = make_engine(kind, *world, Knobs({}), Environment())
    engine.run(8_000)
    snapshot = engine.snapshot()
    engine.run()

    job = snapshot.jobs[0]
    assert (job.share, job.note, job.promise_ms) == (Share(10, 128_000), (1, 2), 99_000)
    resumed = (FastEngine if on == "compiled" else Engine).resume(snapshot, *world, Environment())
    resumed.run()
    assert resumed.records == engine.records
