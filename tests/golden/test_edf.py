"""Earliest deadline first on a few jobs, worked out by hand (seconds; one node of 4 GPUs)."""

from __future__ import annotations

from scenario import acts, expect, jobs, preemptions, run
from trimtab.job import Service
from trimtab.policies.edf import NEVER_MS, due_ms
from trimtab.simulate.workload import Workload


def wanted(workload: Workload, services: dict[str, Service]) -> Workload:
    """Return the workload with what users want of some of its jobs; the others are best effort."""
    facts = [one._replace(service=services.get(one.label, one.service)) for one in workload.facts]
    return Workload(facts, workload.duration_ms)


def by(*deadlines_s: int) -> Service:
    return Service(
        "strict" if len(deadlines_s) == 1 else "soft",
        tuple(1000 * one for one in deadlines_s),
        (10, 8, 5, 2)[: len(deadlines_s)],
    )


FIVE = wanted(
    jobs("""
        job  submit_s  duration_s  gpus
        R    0         100         4
        B    10        20          4
        L    20        30          4
        E    30        40          4
        S    40        10          4
    """),
    {"L": by(400), "E": by(150), "S": by(35, 160, 300)},
)


def test_the_earliest_deadline_comes_first_and_best_effort_last():
    """D1, 1x4. R runs until 100. E is due at 150; S by its first option that was still to come, 160 (35 had
    passed when it came); L at 400; B has no deadline and came before all of them."""
    engine = run(FIVE, "edf")
    assert acts(engine) == expect("""
          0 start  R
        100 finish R
        100 start  E
        140 finish E
        140 start  S
        150 finish S
        150 start  L
        180 finish L
        180 start  B
        200 finish B
    """)
    assert preemptions(engine) == 0


def test_with_preemption_urgent_jobs_run_at_once():
    """D1 with preemption. L takes the GPUs of R (best effort) at 20, E those of L at 30. S is less urgent
    than E and runs from 70 to 80; L goes on with its 20 s, then R, which came first, with its 80."""
    engine = run(FIVE, "edf", {"preemption": True})
    assert acts(engine) == expect("""
          0 start   R
         20 preempt R
         20 start   L
         30 preempt L
         30 start   E
         70 finish  E
         70 start   S
         80 finish  S
         80 start   L
        100 finish  L
        100 start   R
        180 finish  R
        180 start   B
        200 finish  B
    """)


def test_a_job_that_has_just_started_is_safe_for_a_while():
    """D1 with preemption and 25 s of safety: L has to wait for R until 25; E finds L safe until 50."""
    engine = run(FIVE, "edf", {"preemption": True, "min_run": 25})
    assert acts(engine).splitlines()[:6] == [
        "0 start R",
        "25 preempt R",
        "25 start L",
        "50 preempt L",
        "50 start E",
        "90 finish E",
    ]


def test_skipping_fills_gpus_that_the_first_cannot_use():
    """D2, 1x4. U is due first and needs all four; with `strict` V waits behind it, with `skip` it runs."""
    three = wanted(
        jobs("""
            job  submit_s  duration_s  gpus
            R    0         50          2
            U    1         10          4
            V    2         20          2
        """),
        {"U": by(100), "V": by(200)},
    )
    assert acts(run(three, "edf")).splitlines()[2:] == [
        "50 start U",
        "60 finish U",
        "60 start V",
        "80 finish V",
    ]
    assert acts(run(three, "edf", {"backfill": "skip"})).splitlines()[1:3] == ["2 start V", "22 finish V"]


def test_a_job_is_queued_by_the_first_deadline_that_is_to_come():
    """One that falls on the submission has passed; where all have, the last one counts."""
    facts = jobs("job submit_s duration_s gpus\nA 100 1 1").facts[0]
    assert due_ms(facts) == NEVER_MS
    assert due_ms(facts._replace(service=by(100, 200))) == 200_000
    assert due_ms(facts._replace(service=by(50, 100))) == 100_000
    assert due_ms(facts._replace(service=by(90))) == 90_000
