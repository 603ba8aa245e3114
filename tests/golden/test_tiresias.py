"""Tiresias on a few jobs each, worked out by hand (seconds and GPU-seconds; 1x4 is one node of 4 GPUs)."""

from __future__ import annotations

import pytest

from scenario import acts, expect, jct_s, jobs, preemptions, run
from trimtab.policies.tiresias import GittinsIndex
from trimtab.simulate.engine import Engine

either_order = pytest.mark.parametrize("order", ["sim_tail", "start"])

FOUR = jobs("""
    job  submit_s  duration_s  gpus
    P1   0         100         4
    P2   10        20          4
    P3   40        30          2
    P4   45        10          2
""")

DEMOTED_AT_25 = expect("""
      0 start   P1
     25 demote  P1
     25 preempt P1
     25 start   P2
     45 finish  P2
     45 start   P3 P4
     55 finish  P4
     75 finish  P3
     75 start   P1
    150 finish  P1
""")


@either_order
def test_a_long_job_sinks_and_short_ones_pass(order):
    """T1, 1x4, threshold 100. P1 has attained 4 x 25 = 100 at 25, sinks to queue 1 and gives way to P2
    (4 x 20 = 80, never sinks). At 45 P3 and P4 share the node; P1 needs all of it, so it waits until 75;
    with 75 s left it ends at 150."""
    engine = run(FOUR, "tiresias", {"queue_thresholds": (100,), "in_queue_order": order})
    assert acts(engine) == DEMOTED_AT_25
    assert jct_s(engine) == [150, 35, 35, 10]
    assert preemptions(engine) == 1


@either_order
def test_resuming_costs_what_a_restart_costs(order):
    """T1 with a restart cost of 62 s: P1 ends at 75 + 62 + 75 = 212."""
    engine = run(FOUR, "tiresias", {"queue_thresholds": (100,), "in_queue_order": order}, restart_s=62)
    assert acts(engine).splitlines()[-2:] == ["75 start P1", "212 finish P1"]
    assert jct_s(engine) == [212, 35, 35, 10]


ONE_LONG_FOUR_SHORT = jobs("""
    job  submit_s  duration_s  gpus
    U1   0         38          1
    U2   15        18          1
    U3   30        18          1
    U4   50        18          1
    U5   60        18          1
""")


@either_order
def test_a_starving_job_is_promoted(order):
    """T2, 1x1, threshold 20, promote knob 2. U1 sinks at 20, having run 20 s, and starves after 2 x 20 s of
    waiting: at 60. That is a timer, so it stands before U5, which arrives at 60; U4 runs on. From 74 U1 has
    18 s to run, less than a threshold. Maximum JCT 92."""
    knobs = {"queue_thresholds": (20,), "promote_knob": 2.0, "in_queue_order": order}
    engine = run(ONE_LONG_FOUR_SHORT, "tiresias", knobs, gpus_per_node=1)
    assert acts(engine) == expect("""
          0 start   U1
         20 demote  U1
         20 preempt U1
         20 start   U2
         38 finish  U2
         38 start   U3
         56 finish  U3
         56 start   U4
         60 promote U1
         74 finish  U4
         74 start   U1
         92 finish  U1
         92 start   U5
        110 finish  U5
    """)
    assert jct_s(engine) == [92, 23, 26, 24, 50]


@either_order
def test_without_promotion_it_waits_for_every_short_job(order):
    """T2 with promotion off: U5 passes U1 at 74, U1 runs its last 18 s from 92. The mean is the same, 43."""
    engine = run(
        ONE_LONG_FOUR_SHORT,
        "tiresias",
        {"queue_thresholds": (20,), "in_queue_order": order},
        gpus_per_node=1,
    )
    assert acts(engine).splitlines()[-4:] == ["74 start U5", "92 finish U5", "92 start U1", "110 finish U1"]
    assert jct_s(engine) == [110, 23, 26, 24, 32]


LONG_AND_SHORT = jobs("""
    job  submit_s  duration_s  gpus
    V1   0         100         1
    V2   50        10          1
    V3   95        100         1
    V4   100       10          1
""")


@pytest.mark.parametrize(
    ("attained", "index"),
    [
        (0, 1 / 20),
        (5, 1 / 10),
        (10, 1 / 90),
        (50, 1 / 50),
        (75, 1 / 25),
        (80, 1 / 20),
        (90, 1 / 10),
        (100, 0),
    ],
)
def test_gittins_index_of_two_sizes(attained, index):
    """T3, sizes 10 and 100. At 0, s = 10: one completes for 10 + 10 spent, 1/20 (s = 100: 2 for 110, less).
    At 5, s = 10: 1 for 5 + 5. From 10 on only the size 100 is left: 1 / (100 - a). Beyond 100, nothing."""
    assert GittinsIndex((10, 100)).at(attained) == pytest.approx(index, rel=1e-12)


def test_gittins_gives_way_where_completion_is_unlikely():
    """T3, 1x1, one queue, sizes seen 10 and 100. At 50 V2 (1/20) takes the GPU from V1 (1/50), until 60. At
    95 V1 has run 85 and keeps it (1/15 against V3's 1/20); it ends at 110. V3 and V4 tie, V3 was first; at
    120 V3 has attained 10, its index falls to 1/90 and V4 passes it, until 130."""
    knobs = {"priority": "gittins", "queue_thresholds": (), "num_queues": 1}
    engine = run(LONG_AND_SHORT, "tiresias", knobs, gpus_per_node=1, completed_gpu_s=[10, 100])
    assert acts(engine) == expect("""
          0 start   V1
         50 preempt V1
         50 start   V2
         60 finish  V2
         60 start   V1
        110 finish  V1
        110 start   V3
        120 preempt V3
        120 start   V4
        130 finish  V4
        130 start   V3
        220 finish  V3
    """)
    assert jct_s(engine) == [110, 10, 125, 30]
    assert preemptions(engine) == 2


def test_las_on_the_jobs_of_the_gittins_example():
    """T3, 1x1, threshold 10, order start. V1 sinks at 10, with nobody there to pass it; V2 at 50 and V3 at 95
    take its GPU. At 105 V3 has attained 10, sinks and gives way to V4. V2 and V4 are complete with 10, not
    sunk. At 115 V1 (first started at 0) is before V3 (95): 15 s, then V3's last 90."""
    knobs = {"queue_thresholds": (10,), "in_queue_order": "start"}
    engine = run(LONG_AND_SHORT, "tiresias", knobs, gpus_per_node=1)
    assert acts(engine) == expect("""
          0 start   V1
         10 demote  V1
         50 preempt V1
         50 start   V2
         60 finish  V2
         60 start   V1
         95 preempt V1
         95 start   V3
        105 demote  V3
        105 preempt V3
        105 start   V4
        115 finish  V4
        115 start   V1
        130 finish  V1
        130 start   V3
        220 finish  V3
    """)
    assert jct_s(engine) == [130, 10, 125, 15]
    assert preemptions(engine) == 3


@either_order
def test_new_thresholds_regrade_at_once(order):
    """T4, T1's jobs with the threshold set to 400 at 30. P1, waiting with 100 attained, moves up and is a
    newcomer there, so P2 runs on to 45; then P1 is before P3 and P4. Its last 75 s end at 120 with 400
    attained: it completes, it does not sink."""
    knobs = {"queue_thresholds": (100,), "in_queue_order": order}
    engine = run(FOUR, "tiresias", knobs, updates=[(30, {"queue_thresholds": (400,)})])
    told = [line for line in acts(engine).splitlines() if " knobs " not in line]
    assert "\n".join(told) == expect("""
          0 start   P1
         25 demote  P1
         25 preempt P1
         25 start   P2
         45 finish  P2
         45 start   P1
        120 finish  P1
        120 start   P3 P4
        130 finish  P4
        150 finish  P3
    """)
    assert jct_s(engine) == [120, 35, 110, 85]
    assert preemptions(engine) == 1


@either_order
def test_lazy_thresholds_leave_jobs_where_they_are(order):
    """T4, lazy: P1 stays in queue 1, and the schedule is T1's."""
    knobs = {"queue_thresholds": (100,), "in_queue_order": order, "regrade": "lazy"}
    engine = run(FOUR, "tiresias", knobs, updates=[(30, {"queue_thresholds": (400,)})])
    told = [line for line in acts(engine).splitlines() if " knobs " not in line]
    assert "\n".join(told) == DEMOTED_AT_25
    assert jct_s(engine) == [150, 35, 35, 10]


def three(skew: str) -> str:
    return f"""
        job  submit_s  duration_s  gpus  skew   spread_speed
        A    0         100         3     1      1
        B    0         60          3     1      1
        C    10        30          2     {skew} .8
    """


VGG19, RESNET50 = three(".717"), three(".112")
ONE_QUEUE = {"queue_thresholds": (1_000_000_000,), "pack_limit": 0.3}


@either_order
def test_a_skewed_model_waits_for_one_node(order):
    """T5, 2x4, pack limit .3. C's largest tensor is 72 % of the model: it must be consolidated and waits for
    B's node, 60-90."""
    knobs = ONE_QUEUE | {"in_queue_order": order}
    engine = run(jobs(VGG19), "tiresias", knobs, nodes=2, placement="relaxed")
    assert acts(engine) == expect("""
          0 start  A B
         60 finish B
         60 start  C
         90 finish C
        100 finish A
    """)
    assert jct_s(engine) == [100, 60, 80]


@either_order
@pytest.mark.parametrize("updates", [[], [(20, {"pack_limit": 0.05})]])
def test_an_even_model_is_spread(order, updates):
    """T5, pack limit .3. At 11 % C may be spread: at .8 of full speed 30 s take 37.5, 10-47.5. A limit of .05
    from 20 on would have made it wait, and does nothing to a job that runs already."""
    knobs = ONE_QUEUE | {"in_queue_order": order}
    engine = run(jobs(RESNET50), "tiresias", knobs, nodes=2, placement="relaxed", updates=updates)
    told = [line for line in acts(engine).splitlines() if " knobs " not in line]
    assert "\n".join(told) == expect("""
           0   start  A B
          10   start  C
          47.5 finish C
          60   finish B
         100   finish A
    """)
    assert jct_s(engine) == [100, 60, 37.5]


def test_a_new_pack_limit_counts_for_placements_after_it():
    """T5 with the limit set to .05 at 5, before C arrives: C waits like the skewed one."""
    updates = [(5, {"pack_limit": 0.05})]
    engine = run(jobs(RESNET50), "tiresias", ONE_QUEUE, nodes=2, placement="relaxed", updates=updates)
    assert jct_s(engine) == [100, 60, 80]


SENIOR_AND_JUNIOR = jobs("""
    job  submit_s  duration_s  gpus
    A    0         50          4
    B    5         40          2
    C    20        15          2
""")


def test_sim_tail_lets_the_running_one_go_on():
    """T6, 1x4, threshold 40. A sinks at 10 and gives way to B; two GPUs idle, for A needs four, until C comes
    at 20. B sinks at 30 and stays: A does not fit beside C. When C ends at 35 (30 attained), B runs, so it
    stands before A in queue 1: it ends at 50, A runs 50-90."""
    engine = run(SENIOR_AND_JUNIOR, "tiresias", {"queue_thresholds": (40,), "in_queue_order": "sim_tail"})
    assert acts(engine) == expect("""
         0 start   A
        10 demote  A
        10 preempt A
        10 start   B
        20 start   C
        30 demote  B
        35 finish  C
        50 finish  B
        50 start   A
        90 finish  A
    """)
    assert jct_s(engine) == [90, 45, 15]
    assert preemptions(engine) == 1


@pytest.mark.parametrize("order", ["start", "submit"])
def test_seniority_takes_the_gpus_back(order):
    """T6. By first start as by submission A is before B: at 35 it takes all four GPUs, 35-75, and B does its
    last 15 s from 75 to 90."""
    engine = run(SENIOR_AND_JUNIOR, "tiresias", {"queue_thresholds": (40,), "in_queue_order": order})
    assert acts(engine) == expect("""
         0 start   A
        10 demote  A
        10 preempt A
        10 start   B
        20 start   C
        30 demote  B
        35 finish  C
        35 preempt B
        35 start   A
        75 finish  A
        75 start   B
        90 finish  B
    """)
    assert jct_s(engine) == [75, 85, 15]
    assert preemptions(engine) == 2


def test_a_fork_between_ticks_keeps_who_stands_at_the_end_of_the_queue():
    """One GPU, threshold 60 GPU-s, passes every 100 s. A runs, sinks at 60 and loses its GPU to B at 100; B
    sinks at 160, so at 200 A stands before it and takes the GPU back, and at 300 nothing changes: A runs on
    to its end at 300 (100 + 100 s), B has its last 100 s from 300. A fork at 180 must remember B's place."""
    workload = jobs("""
        job  submit_s  gpus  duration_s
        A    0         1     200
        B    10        1     200
    """)
    engine = run(workload, "tiresias", {"queue_thresholds": (60,), "quantum": 100}, gpus_per_node=1)
    assert [(e.time_ms // 1000, e.kind, e.job) for e in engine.timeline.events if e.kind != "submit"] == [
        (0, "start", 0),
        (60, "demote", 0),
        (100, "preempt", 0),
        (100, "start", 1),
        (160, "demote", 1),
        (200, "preempt", 1),
        (200, "start", 0),
        (300, "finish", 0),
        (300, "start", 1),
        (400, "finish", 1),
    ]
    knobs, environment = engine.knobs, engine.environment
    fork = Engine(workload, engine.cluster, engine.policy, knobs, environment)
    fork.run(180_000)
    again = Engine.resume(
        fork.snapshot(), workload, engine.cluster, engine.policy, environment, timeline=True
    )
    again.run()
    assert again.timeline.events == [e for e in engine.timeline.events if e.time_ms >= 180_000]
