"""Synergy on a few jobs, worked out by hand (seconds; one node of 4 GPUs, 12 cores, 256,000 MiB)."""

from __future__ import annotations

from scenario import acts, expect, jct_s, jobs, preemptions, run
from trimtab.curve import Curve
from trimtab.simulate.engine import Engine
from trimtab.simulate.workload import Workload

# By cores for each GPU. Three is what is proportional here.
HUNGRY = Curve((3, 5, 6), (32_000,), ((1_000_000, 1_800_000, 1_900_000),))
EASY = Curve((1,), (16_000,), ((1_000_000,),))


def with_curves(table: str, curves: dict[str, Curve]) -> Workload:
    """Return the jobs of a table; those whose labels begin so have a curve, the others none."""
    plain = jobs(table)
    facts = [one._replace(curve=curves.get(one.label[0])) for one in plain.facts]
    return Workload(facts, plain.duration_ms)


def given(engine: Engine) -> list[str]:
    """Return who was given how much CPU and memory when: second, job, what; a dash for its part."""
    assert engine.timeline is not None
    return [
        f"{event.time_ms / 1000:g} {engine.timeline.labels[event.job]} {event.detail or '-'}"
        for event in engine.timeline.events
        if event.kind in ("start", "resize") and event.job is not None
    ]


FOUR = with_curves(
    """
    job  submit_s  duration_s  gpus
    H1   0         120         1
    E1   0         100         2
    H2   0         120         1
    E2   70        30          1
    """,
    {"H": HUNGRY, "E": EASY},
)


def test_proportional_runs_every_job_at_the_speed_of_its_part():
    """S1, rounds of 60 s. E1 ends at 100, H1 and H2 at 120; only with that round E2 gets a GPU."""
    engine = run(FOUR, "synergy", {"round_s": 60, "allocation": "proportional"})
    assert acts(engine) == expect("""
          0 start  H1 E1 H2
        100 finish E1
        120 finish H1 H2
        120 start  E2
        150 finish E2
    """)
    assert given(engine) == ["0 H1 -", "0 E1 -", "0 H2 -", "120 E2 -"]


def test_tune_gives_the_first_its_best_and_what_is_left_to_the_next():
    """S1. H1 takes its best, 6 cores: 120 / 1.9 = 63.158. E1 needs 2 for as many GPUs. 4 are left; H2 cannot
    have 6, has its least, 3, and the last one: 1.4, to 120 / 1.4 = 85.715. E2 comes at 70, when a GPU is
    free, and starts with the next round at 120."""
    engine = run(FOUR, "synergy", {"round_s": 60})
    assert acts(engine) == expect("""
          0     start  H1 E1 H2
         63.158 finish H1
         85.715 finish H2
        100     finish E1
        120     start  E2
        150     finish E2
    """)
    assert given(engine) == [
        "0 H1 6 cores 32000 MiB",
        "0 E1 2 cores 32000 MiB",
        "0 H2 4 cores 32000 MiB",
        "120 E2 1 cores 16000 MiB",
    ]


def test_opt_gives_most_speed_in_all():
    """S1. 5 + 5 cores are worth 1.8 + 1.8, 6 + 4 only 1.9 + 1.4: both end at 120 / 1.8 = 66.667."""
    engine = run(FOUR, "synergy", {"round_s": 60, "allocation": "opt"})
    assert given(engine)[:3] == [
        "0 H1 5 cores 32000 MiB",
        "0 E1 2 cores 32000 MiB",
        "0 H2 5 cores 32000 MiB",
    ]
    assert jct_s(engine) == [66.667, 100, 66.667, 80]


def test_without_rounds_what_gets_free_is_given_at_once():
    """S1, decisions at every event. At 63.158 H1 ends, and H2, which has done 88.4212 of its 120, goes on
    with 6 cores: 31.5788 / 1.9 = 16.621, to 79.779. E2 has H1's GPU from 70 to 100."""
    engine = run(FOUR, "synergy", {"round_s": 0})
    assert acts(engine) == expect("""
          0     start  H1 E1 H2
         63.158 finish H1
         63.158 resize H2
         70     start  E2
         79.779 finish H2
        100     finish E1 E2
    """)


def test_jobs_give_back_what_is_above_their_least():
    """S2, at every event. Alone, H1 has 6 cores. N, of which nothing is known, needs 9 for its three GPUs:
    H1 falls to 3 and has done 19 of its 120 by 10; N's end at 40 brings the 6 back."""
    engine = run(
        with_curves(
            """
            job  submit_s  duration_s  gpus
            H1   0         120         1
            N    10        30          3
            """,
            {"H": HUNGRY},
        ),
        "synergy",
        {"round_s": 0},
    )
    assert given(engine) == [
        "0 H1 6 cores 32000 MiB",
        "10 H1 3 cores 32000 MiB",
        "10 N -",
        "40 H1 6 cores 32000 MiB",
    ]
    assert jct_s(engine) == [77.369, 30]  # 40 + (120 - 19 - 30) / 1.9


def test_memory_is_given_as_cpu_is():
    """S3. M is three times as fast with 128,000 MiB. Beside P and N, of which nothing is known and which have
    64,000 each, and E1 with 16,000, 112,000 are left. With a second E in place of P it has its best."""
    cached = Curve((3,), (32_000, 128_000), ((1_000_000,), (3_000_000,)))
    table = """
        job  submit_s  duration_s  gpus
        M    0         90          1
        E1   0         90          1
        {}   0         90          1
        N    0         90          1
    """
    curves = {"M": cached, "E": EASY}
    one, two = (run(with_curves(table.format(name), curves), "synergy") for name in ("P", "E2"))
    assert jct_s(one)[0] == 90
    assert given(one)[0] == "0 M 3 cores 32000 MiB"
    assert jct_s(two)[0] == 30
    assert given(two)[0] == "0 M 3 cores 128000 MiB"


def test_over_several_nodes_jobs_have_their_part():
    """S4, 2x4. W has both nodes but two GPUs; H1 beside it has 12 - 6 cores, and no more than 6 helps it."""
    engine = run(
        with_curves(
            """
            job  submit_s  duration_s  gpus
            W    0         50          6
            H1   0         190         1
            """,
            {"H": HUNGRY, "W": HUNGRY},
        ),
        "synergy",
        nodes=2,
    )
    assert given(engine) == ["0 W -", "0 H1 6 cores 32000 MiB"]
    assert jct_s(engine) == [50, 100]


def test_a_job_goes_where_its_best_is_left():
    """S5, 2x4. N1 fills node 0 but one GPU. By GPUs alone H1 would go beside it, where 3 cores are left; it
    goes to node 1, for 6 of them. E1, content with one, goes to node 0."""
    engine = run(
        with_curves(
            """
            job  submit_s  duration_s  gpus
            N1   0         90          3
            H1   0         190         1
            E1   0         90          1
            """,
            {"H": HUNGRY, "E": EASY},
        ),
        "synergy",
        nodes=2,
    )
    assert engine.timeline is not None
    starts = {event.job: event.nodes for event in engine.timeline.events if event.kind == "start"}
    assert starts == {0: ((0, 3),), 1: ((1, 1),), 2: ((0, 1),)}


TWO = """
    job  submit_s  duration_s  gpus
    A    0         600         4
    B    10        100         4
"""


def test_srtf_interrupts_at_a_round():
    """S6, rounds of 60 s. At 60 A has 540 left, B 100."""
    engine = run(jobs(TWO), "synergy", {"round_s": 60, "order": "srtf"}, restart_s=5)
    assert acts(engine) == expect("""
          0 start   A
         60 preempt A
         60 start   B
        160 finish  B
        180 start   A
        725 finish  A
    """)


def test_las_takes_turns():
    """S7, rounds of 60 s. At 60 B has had nothing; at 120 both have had 60, and A is first by id; at 180 A
    has had 120. B ends 40 s later, A has the GPUs again from the next round on, with 480 s left."""
    engine = run(jobs(TWO), "synergy", {"round_s": 60, "order": "las"})
    assert acts(engine) == expect("""
          0 start   A
         60 preempt A
         60 start   B
        120 preempt B
        120 start   A
        180 preempt A
        180 start   B
        220 finish  B
        240 start   A
        720 finish  A
    """)
    assert preemptions(engine) == 3


def test_fifo_never_interrupts():
    engine = run(jobs(TWO), "synergy", {"round_s": 60})
    assert preemptions(engine) == 0
    assert acts(engine).splitlines()[1:3] == ["600 finish A", "600 start B"]


def test_changes_of_knobs_hold_from_the_next_round_on():
    """S8. At 30 the allocation becomes proportional; at 60, the next round, all go back to their part."""
    engine = run(FOUR, "synergy", {"round_s": 60}, updates=[(30, {"allocation": "proportional"})])
    assert given(engine)[3:6] == [
        "60 H1 3 cores 64000 MiB",
        "60 E1 6 cores 128000 MiB",
        "60 H2 3 cores 64000 MiB",
    ]
