"""FIFO, SJF, SRTF and QSSF on a few jobs each, worked out by hand (seconds; 1x4 is one node of 4 GPUs)."""

from __future__ import annotations

from scenario import acts, events, expect, jct_s, jobs, preemptions, run
from trimtab.cluster import Cluster

FIVE = jobs("""
    job  submit_s  duration_s  gpus
    J1   0         100         2
    J2   10        50          4
    J3   20        20          1
    J4   30        10          2
    J5   40        30          1
""")

SMALL_ONES_PASS = expect("""
      0 start  J1
     20 start  J3
     40 finish J3
     40 start  J4
     50 finish J4
     50 start  J5
     80 finish J5
    100 finish J1
    100 start  J2
    150 finish J2
""")


def test_fifo_strict_waits_behind_the_first_that_does_not_fit():
    """F1, 1x4. Two GPUs stay idle until J1 ends at 100, for J2 needs all four and nobody passes it. At 150
    J2 ends and 1 + 2 + 1 GPUs start at once, to end 10, 20 and 30 s later. JCT 100, 150 - 10, 170 - 20,
    160 - 30, 180 - 40; what is above the duration (100, 50, 20, 10, 30) was spent in the queue."""
    engine = run(FIVE, "fifo")
    assert events(engine).splitlines() == [
        "     0 submit  J1",
        "     0 start   J1",
        "    10 submit  J2",
        "    20 submit  J3",
        "    30 submit  J4",
        "    40 submit  J5",
        "   100 finish  J1",
        "   100 start   J2",
        "   150 finish  J2",
        "   150 start   J3",
        "   150 start   J4",
        "   150 start   J5",
        "   160 finish  J4",
        "   170 finish  J3",
        "   180 finish  J5",
    ]
    assert jct_s(engine) == [100, 140, 150, 130, 140]
    queue_s = [jct - record.held_ms / 1000 for jct, record in zip(jct_s(engine), engine.records, strict=True)]
    assert queue_s == [0, 90, 130, 120, 110]


def test_fifo_skip_lets_small_jobs_pass():
    """F1, 1x4. Beside J1 there are 2 GPUs: J3 takes one from 20 to 40, then J4 both from 40 to 50 (J5 finds
    none), then J5 one from 50 to 80. J2 gets its four when J1 ends at 100."""
    engine = run(FIVE, "fifo", {"backfill": "skip"})
    assert acts(engine) == SMALL_ONES_PASS
    assert jct_s(engine) == [100, 140, 20, 20, 40]


THREE_WIDE = """
    job  submit_s  duration_s  gpus  spread_speed
    A    0         100         3     1
    B    0         60          3     1
    C    10        30          2     .8
"""


def test_fifo_consolidated_waits_for_two_gpus_on_one_node():
    """F2, 2x4. A on node 0, B on node 1 (node 0 has one GPU left). At 10 two GPUs are free, one on each
    node: C waits until B ends at 60 and runs on node 1 until 90."""
    engine = run(jobs(THREE_WIDE), "fifo", nodes=2)
    assert acts(engine) == expect("""
          0 start  A B
         60 finish B
         60 start  C
         90 finish C
        100 finish A
    """)
    assert engine.timeline is not None
    assert [event.nodes for event in engine.timeline.events if event.kind == "start"] == [
        ((0, 3),),
        ((1, 3),),
        ((1, 2),),
    ]
    assert jct_s(engine) == [100, 60, 80]


def test_fifo_relaxed_spreads_and_runs_slower():
    """F2, 2x4. C takes one GPU of each node at 10 and runs at .8 of full speed: 30 / .8 = 37.5 s, to 47.5."""
    engine = run(jobs(THREE_WIDE), "fifo", nodes=2, placement="relaxed")
    assert acts(engine) == expect("""
           0   start  A B
          10   start  C
          47.5 finish C
          60   finish B
         100   finish A
    """)
    assert jct_s(engine) == [100, 60, 37.5]


def test_virtual_clusters_queue_apart():
    """F3, two virtual clusters of 1x4; F1's jobs with J2 in y. In x J3 takes 1 of J1's 2 spare GPUs from 20
    to 40; J4 needs both and gets them from 40 to 50; J5 is behind it and runs from 50 to 80. In y J2 has
    everything from 10 to 60."""
    apart = jobs("""
        job  submit_s  duration_s  gpus  vc
        J1   0         100         2     x
        J2   10        50          4     y
        J3   20        20          1     x
        J4   30        10          2     x
        J5   40        30          1     x
    """)
    engine = run(apart, "fifo", cluster=Cluster.partitioned([("x", 1, 4), ("y", 1, 4)]))
    assert acts(engine) == expect("""
          0 start  J1
         10 start  J2
         20 start  J3
         40 finish J3
         40 start  J4
         50 finish J4
         50 start  J5
         60 finish J2
         80 finish J5
        100 finish J1
    """)
    assert jct_s(engine) == [100, 50, 20, 20, 40]


THREE = jobs("""
    job  submit_s  duration_s  gpus
    K1   0         60          3
    K2   5         20          4
    K3   6         100         1
""")


def test_sjf_strict_does_not_start_a_longer_job_that_fits():
    """S1, 1x4. K3 would fit beside K1 at 6 but is longer than K2, which blocks: K2 60-80, K3 80-180."""
    engine = run(THREE, "sjf")
    assert acts(engine) == expect("""
          0 start  K1
         60 finish K1
         60 start  K2
         80 finish K2
         80 start  K3
        180 finish K3
    """)
    assert jct_s(engine) == [60, 75, 174]


def test_sjf_skip_starts_what_fits():
    """S1, 1x4. K3 takes the fourth GPU at 6, so K2 waits for it until 106."""
    engine = run(THREE, "sjf", {"backfill": "skip"})
    assert acts(engine) == expect("""
          0 start  K1
          6 start  K3
         60 finish K1
        106 finish K3
        106 start  K2
        126 finish K2
    """)
    assert jct_s(engine) == [60, 121, 100]


def test_sjf_strict_happens_to_equal_fifo_skip():
    """S2, 1x4. At 20 J3 (20 s) is before J2 (50 s) and starts; at 30 J4 (10 s) is first and blocks, for only
    one GPU is free; at 40 it starts; at 50 J5 (30 s) starts and J2 blocks until 100."""
    engine = run(FIVE, "sjf")
    assert acts(engine) == SMALL_ONES_PASS
    assert jct_s(engine) == [100, 140, 20, 20, 40]


LONG_AND_TWO_SHORT = jobs("""
    job  submit_s  duration_s  gpus
    L1   0         100         4
    L2   20        30          2
    L3   30        40          2
""")


def test_srtf_preempts_for_shorter_work():
    """R1, 1x4, no restart cost. At 20 L1 has 80 s left, L2 30: L1 gives way. At 30 L3 (40 s) takes the other
    two GPUs. At 50 two are free, L1 needs four; at 70 it resumes: 70 + 80 = 150."""
    engine = run(LONG_AND_TWO_SHORT, "srtf")
    assert acts(engine) == expect("""
          0 start   L1
         20 preempt L1
         20 start   L2
         30 start   L3
         50 finish  L2
         70 finish  L3
         70 start   L1
        150 finish  L1
    """)
    assert jct_s(engine) == [150, 30, 40]
    assert preemptions(engine) == 1


def test_srtf_pays_to_resume():
    """R1 with a restart cost of 10 s: L1 holds its GPUs without progress from 70 to 80 and ends at 160.
    It has held them for 20 + 90 s."""
    engine = run(LONG_AND_TWO_SHORT, "srtf", restart_s=10)
    assert acts(engine).splitlines()[-2:] == ["70 start L1", "160 finish L1"]
    assert jct_s(engine) == [160, 30, 40]
    assert engine.records[0].held_ms == 110_000


def test_srtf_leaves_a_job_with_less_work_left():
    """R2, 1x2, restart 5 s. At 12 A has 8 s left, B needs 10: nothing moves."""
    engine = run(
        jobs("""
        job  submit_s  duration_s  gpus
        A    0         20          2
        B    12        10          2
        """),
        "srtf",
        gpus_per_node=2,
        restart_s=5,
    )
    assert acts(engine) == expect("""
         0 start  A
        20 finish A
        20 start  B
        30 finish B
    """)
    assert jct_s(engine) == [20, 18]


def test_srtf_can_lose_by_preempting():
    """R2, 1x2, restart 5 s. B needs 7 s, A has 8 left: A stops at 12, resumes at 19, works from 24 and ends
    at 32. Mean 19.5, where 20 and 15 (mean 17.5) were to be had without preempting."""
    engine = run(
        jobs("""
        job  submit_s  duration_s  gpus
        A    0         20          2
        B    12        7           2
        """),
        "srtf",
        gpus_per_node=2,
        restart_s=5,
    )
    assert acts(engine) == expect("""
         0 start   A
        12 preempt A
        12 start   B
        19 finish  B
        19 start   A
        32 finish  A
    """)
    assert jct_s(engine) == [32, 7]


def test_qssf_orders_by_estimated_gpu_time():
    """Q1, 1x4, told 50, 40, 30, 100 s: M2 40 x 4 = 160, M3 30 x 1 = 30, M4 100 x 2 = 200. When M1 ends at 50
    M3 goes first, and M2, which needs four GPUs, blocks until 80; M4 follows at 90."""
    four = jobs("""
        job  submit_s  duration_s  gpus
        M1   0         50          4
        M2   1         10          4
        M3   2         30          1
        M4   3         20          2
    """)
    engine = run(four, "qssf", estimates_s=[50, 40, 30, 100])
    assert acts(engine) == expect("""
          0 start  M1
         50 finish M1
         50 start  M3
         80 finish M3
         80 start  M2
         90 finish M2
         90 start  M4
        110 finish M4
    """)
    assert jct_s(engine) == [50, 89, 78, 107]
    assert sum(jct_s(run(four, "sjf"))) / 4 == 68.5  # told the truth: M2 50-60, M4 60-80, M3 60-90
