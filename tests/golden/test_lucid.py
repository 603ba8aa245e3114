"""Lucid's timelines worked out by hand: profiler, pairs, the partner's speed, the order of the main queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from scenario import acts, expect, jct_s, jobs, preemptions, run
from trimtab.errors import ConfigError
from trimtab.policies.catalog import find_policy
from trimtab.profile import CUTS, Cuts, Profile
from trimtab.simulate.metrics import jobs_table, load_series, metrics_of
from trimtab.simulate.pairs import shared_gpu_s, shared_stretches
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.workload import Workload


@dataclass(frozen=True)
class Pairs:
    """Every job of a pair runs at one speed; a job's model is its score, mean speeds .8, .9 and 1."""

    speed_ppm: int

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        return self.speed_ppm, self.speed_ppm

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        mean = {"2": 0.8, "1": 0.9, "0": 1.0}[profile.model or "2"]
        return 2 if mean < cuts[0] else 1 if mean < cuts[1] else 0

    def fits(self, one: Profile, other: Profile) -> bool:
        return True


@dataclass(frozen=True)
class Steps:
    """A forecast that is told: from each instant on, so many jobs per ten minutes."""

    steps: tuple[tuple[int, int], ...]

    def at(self, now_ms: int) -> int:
        return 1_000_000 * [jobs for at_s, jobs in self.steps if 1000 * at_s <= now_ms][-1]

    def next_ms(self, now_ms: int) -> int | None:
        return next((1000 * at_s for at_s, _ in self.steps if 1000 * at_s > now_ms), None)

    def supposing(self, now_ms: int, coming_ms: Sequence[int]) -> Steps:
        return self


PROFILED = """
    job  submit_s  duration_s  gpus
    A    0         15          1
    B    0         100         2
    C    0         50          4
    D    5         30          2
"""


def test_the_profiler_ends_short_jobs_and_starts_the_others_over():
    """L1, 2x4, one node profiles jobs of up to 2 GPUs for 20 s. C is too wide and runs on the main node at
    once. A and B use 3 of the profiler's 4 GPUs, so D waits until A ends at 15. B is stopped at 20 and D at
    35; the main node is full until C ends at 50. Then D (30 x 2 GPU-s) and B (200) start, from nothing: to 80
    and 150. JCT 15, 150, 50, 75."""
    engine = run(
        jobs(PROFILED), "lucid", {"prof_nodes": 1, "t_prof": 20, "prof_factor": 2, "gsc": 0}, nodes=2
    )
    assert acts(engine) == expect("""
          0 start   A B C
         15 finish  A
         15 start   D
         20 preempt B
         35 preempt D
         50 finish  C
         50 start   D B
         80 finish  D
        150 finish  B
    """)
    assert jct_s(engine) == [15, 150, 50, 75]
    assert preemptions(engine) == 2
    assert [record.held_ms for record in engine.records] == [15_000, 120_000, 50_000, 50_000]


PACKED = """
    job  submit_s  duration_s  gpus  model
    A    0         100         2     1
    B    10        45          2     1
    C    20        30          2     2
"""
PACKING = {"prof_nodes": 0, "pack_preference": "pack_first"}


def _packed(knobs=(), **world):
    return run(
        jobs(PACKED), "lucid", {**PACKING, **dict(knobs)}, gpus_per_node=2, speeds=Pairs(900_000), **world
    )


def test_two_jobs_share_gpus_and_the_third_waits():
    """L2, 1x2, every pair at .9; scores 1, 1, 2. At 10 B goes beside A (1 + 1 <= 2; 90 <= 2 x 200). At 20 A
    is no longer alone. B ends at 10 + 45 / .9 = 60; A has done 10 + 45 = 55 and runs on alone. C beside A
    would be 1 + 2 > 2, so it waits until A ends at 105. JCT 105, 50, 115."""
    engine = _packed()
    assert acts(engine) == expect("""
          0 start  A
         10 start  B
         60 finish B
        105 finish A
        105 start  C
        135 finish C
    """)
    assert jct_s(engine) == [105, 50, 115]


def test_gpus_under_two_jobs_are_used_once():
    """L2: from 10 to 60 two GPUs are under A and B. All 2 GPUs are used until 135, not more."""
    engine = _packed()
    assert engine.timeline is not None
    assert list(shared_stretches(engine.timeline)) == [(10_000, 60_000, 2, ((0, 2),))]
    table = jobs_table(engine.workload, engine.outcomes)
    cluster = engine.cluster
    assert metrics_of(table, cluster, shared_gpu_s(engine.timeline))["gpu_utilisation"] == 1.0
    assert load_series(engine.timeline, 45_000)["gpus_held"].to_list() == [2.0, 2.0, 2.0]


def test_without_sharing_the_shortest_service_goes_first():
    """L2 with gsc 0: A until 100; then C (60 GPU-s) until 130 and B (90) until 175. JCT 100, 165, 110."""
    assert jct_s(_packed({"gsc": 0})) == [100, 165, 110]


def test_a_pair_is_not_undone_by_new_knobs():
    """L2, gsc 0 from 30 s on: A and B share already, and C would have waited anyway."""
    engine = _packed(updates=[(30, {"gsc": 0})])
    assert jct_s(engine) == [105, 50, 115]


def test_a_quiet_forecast_stops_sharing():
    """L2; 1 job per 10 min is forecast, so nobody shares (1 <= 2); from 40 s on 5: then B goes beside A. A
    has 60 left, both run at .9, B ends at 40 + 50 = 90, A has done 40 + 45 = 85 then and ends at 105; C
    until 135."""
    pace = Steps(((0, 1), (40, 5)))
    assert jct_s(_packed(pace=pace)) == [105, 80, 115]
    assert jct_s(_packed({"share_off_below": 0.0}, pace=pace)) == [105, 50, 115]


def test_free_gpus_come_before_a_partner_unless_asked_otherwise():
    """On 1x4 both A and B find free GPUs at first; with pack_first B goes beside A while two GPUs are idle.
    Under `forecast` B does so only if more jobs are forecast for 50 minutes (5 x 5) than the 2 GPUs that
    are free."""
    shared = run(jobs(PACKED), "lucid", PACKING, speeds=Pairs(900_000))
    assert jct_s(shared) == [105, 50, 30]
    apart = run(jobs(PACKED), "lucid", {"prof_nodes": 0}, speeds=Pairs(900_000))
    assert jct_s(apart) == [100, 45, 65]
    by_forecast = {**PACKING, "pack_preference": "forecast", "share_off_below": 0.0}
    for coming, found in ((5, [105, 50, 30]), (0, [100, 45, 65])):
        engine = run(jobs(PACKED), "lucid", by_forecast, speeds=Pairs(900_000), pace=Steps(((0, coming),)))
        assert jct_s(engine) == found


def test_the_best_partner_is_the_one_that_keeps_most_speed():
    """1x4. X runs since 0 and Y since 1; at 2 Z finds no GPU. Beside X both would run at .6, beside Y at
    .8."""

    class Uneven(Pairs):
        def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
            slow = "1" in (one.model, other.model)
            return (600_000, 600_000) if slow else (800_000, 800_000)

    three = jobs("""
        job  submit_s  duration_s  gpus  model
        X    0         100         2     1
        Y    1         100         2     0
        Z    2         40          2     0
    """)
    best = run(three, "lucid", {"prof_nodes": 0}, speeds=Uneven(0))
    assert jct_s(best) == [100, 110, 50]
    first = run(three, "lucid", {"prof_nodes": 0, "partner": "first"}, speeds=Uneven(0))
    assert [round(one, 3) for one in jct_s(first)] == [126.667, 100, 66.667]


def test_a_partner_runs_alone_again_when_the_other_ends():
    """L3, 1x2, pairs at .75. A has 30 s left when B comes at 10, and ends at 10 + 30 / .75 = 50. B has done
    30 and runs its last 70 s alone, to 120. JCT 50, 110. B is taken to need 80 s, for 2 x 100 > 2 x 2 x
    40."""
    two = jobs("""
        job  submit_s  duration_s  gpus  model
        A    0         40          2     1
        B    10        100         2     1
    """)
    engine = run(two, "lucid", PACKING, gpus_per_node=2, speeds=Pairs(750_000), estimates_s=[40, 80])
    assert jct_s(engine) == [50, 110]


TWO = """
    job  submit_s  duration_s  gpus  model
    A    0         100         2     1
    B    10        45          2     1
"""


def _with_profiles(workload: Workload, *profiles: Profile) -> Workload:
    facts = [one._replace(profile=profile) for one, profile in zip(workload.facts, profiles, strict=True)]
    return Workload(facts, workload.duration_ms)


TINY_JOB = Profile(gpu_util=20, gmem_util=5)


@pytest.mark.parametrize(
    ("host", "guest", "expected"),
    [
        (TINY_JOB, TINY_JOB, [100, 45]),
        (TINY_JOB, Profile(), [100, 135]),
        (Profile("of no table"), TINY_JOB, [100, 135]),
        (Profile(), Profile(), [100, 135]),
    ],
)
def test_a_job_of_which_nothing_is_known_never_shares(host, guest, expected):
    """1x2, gsc 4: two tiny jobs share at full speed. What an unknown one costs nobody can say, so it has its
    GPUs for itself, whether it was there first or comes: B waits until A ends at 100."""
    engine = run(
        _with_profiles(jobs(TWO), host, guest),
        "lucid",
        {**PACKING, "gsc": 4},
        gpus_per_node=2,
        speeds=BUILTIN,
    )
    assert jct_s(engine) == expected


@pytest.mark.parametrize(
    ("mib", "limit", "expected"),
    [
        ((12_288, 12_288), 24_576, [100, 135]),
        ((12_288, 12_287), 24_576, [105, 50]),
        ((12_288, 12_288), 24_577, [105, 50]),
        ((24_576, None), 24_576, [100, 135]),
        ((24_575, None), 24_576, [105, 50]),
    ],
)
def test_the_memory_of_a_pair_stays_below_that_of_the_gpu(mib, limit, expected):
    """1x2, pairs at .9: together L2's first two, else one after the other. Memory that is not known counts
    as none."""
    two = _with_profiles(jobs(TWO), *(Profile("1", gmem_mib=one) for one in mib))
    engine = run(two, "lucid", {**PACKING, "mem_limit": limit}, gpus_per_node=2, speeds=Pairs(900_000))
    assert jct_s(engine) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"), [(2.0, [40, 130]), (2.499, [40, 130]), (2.5, [50, 110]), (math.inf, [50, 110])]
)
def test_a_long_newcomer_does_not_hold_up_a_short_job(ratio, expected):
    """1x2, pairs at .75. B (200 GPU-s) is 2.5 times A (80). Beside each other it is L3's timeline; else B
    starts at 40."""
    two = jobs("""
        job  submit_s  duration_s  gpus  model
        A    0         40          2     1
        B    10        100         2     1
    """)
    engine = run(two, "lucid", {**PACKING, "prio_ratio": ratio}, gpus_per_node=2, speeds=Pairs(750_000))
    assert jct_s(engine) == expected


def test_new_cuts_rescore_the_jobs_that_wait_and_run_alone():
    """1x2, gsc 1: A and B are medium (.9 < .95), 1 + 1 > 1, so B waits. From 30 s on .9 is not below the
    cut: both are tiny and B goes beside A. At .9 B ends at 30 + 50; A has done 30 + 45 then and ends at
    105."""
    engine = run(
        jobs(TWO),
        "lucid",
        {**PACKING, "gsc": 1},
        gpus_per_node=2,
        speeds=Pairs(900_000),
        updates=[(30, {"medium_below": 0.9})],
    )
    assert jct_s(engine) == [105, 70]


def test_new_cuts_do_not_undo_a_pair():
    """L2; from 30 s on A and B are jumbo (.9 < .95), and 2 + 2 > 2, but they share already."""
    assert jct_s(_packed(updates=[(30, {"jumbo_below": 0.95})])) == [105, 50, 115]


def test_gangs_wider_than_a_node_do_not_share():
    """2x2, gsc 4. A has both nodes; B wants as many GPUs, but not on one node, and starts when A ends."""
    two = jobs("""
        job  submit_s  duration_s  gpus  model
        A    0         100         4     0
        B    10        45          4     0
    """)
    engine = run(two, "lucid", {**PACKING, "gsc": 4}, nodes=2, gpus_per_node=2, speeds=Pairs(900_000))
    assert jct_s(engine) == [100, 135]


def test_a_gang_wider_than_a_node_is_profiled_on_whole_nodes():
    """4x2; two nodes profile gangs of up to 4 GPUs. A takes node 2 and one GPU of node 3; B has to wait for
    the other one's end at 10, although nodes 0 and 1 are idle."""
    two = jobs("""
        job  submit_s  duration_s  gpus
        A    0         10          3
        B    0         10          4
    """)
    knobs = {"prof_nodes": 2, "t_prof": 20, "prof_factor": 4, "gsc": 0}
    engine = run(two, "lucid", knobs, nodes=4, gpus_per_node=2)
    assert engine.timeline is not None
    starts = [event.nodes for event in engine.timeline.events if event.kind == "start"]
    assert starts == [((2, 2), (3, 1)), ((2, 2), (3, 2))]
    assert jct_s(engine) == [10, 20]


def test_jobs_above_a_lower_limit_leave_the_profilers_queue_at_once():
    """2x4; node 1 profiles gangs of up to 2 GPUs for 20 s. A and B fill it, so C waits, although node 0 is
    idle. From 10 s on the limit is 1: C starts on node 0 and ends at 40. The profiles of A and B go on until
    20; then A starts over beside C, to 120, and B when C has ended, to 140."""
    three = jobs("""
        job  submit_s  duration_s  gpus
        A    0         100         2
        B    0         100         2
        C    5         30          2
    """)
    knobs = {"prof_nodes": 1, "t_prof": 20, "prof_factor": 2, "gsc": 0}
    engine = run(three, "lucid", knobs, nodes=2, updates=[(10, {"prof_factor": 1})])
    assert jct_s(engine) == [120, 140, 35]


@pytest.mark.parametrize(("backfill", "expected"), [("strict", [60, 75, 174]), ("skip", [60, 121, 100])])
def test_the_head_of_the_queue_blocks_only_a_strict_pass(backfill, expected):
    """L4, 1x4. B (80 GPU-s) stands before C (100) and needs 4 GPUs while A holds 3 until 60. Strict: B
    60-80, C 80-180. Skip: C 6-106, B 106-126."""
    three = jobs("""
        job  submit_s  duration_s  gpus
        A    0         60          3
        B    5         20          4
        C    6         100         1
    """)
    assert jct_s(run(three, "lucid", {"prof_nodes": 0, "gsc": 0, "backfill": backfill})) == expected


def test_the_profiler_shrinks_as_its_profiles_end_and_grows_into_idle_nodes():
    """4x2; gangs of up to 2 GPUs are profiled for 20 s on nodes 2 and 3: A and B on node 2, C on node 3; D
    has nodes 0 and 1. From 10 s on one node profiles: the last one; node 2 drains. At 20 A and B start
    there for good. C has to wait until D ends at 60. From 90 s on two nodes profile again: 2 and 3, which
    are idle."""
    five = jobs("""
        job  submit_s  duration_s  gpus
        A    0         60          1
        B    0         60          1
        C    0         60          2
        D    0         60          4
        E    95        10          1
    """)
    knobs = {"prof_nodes": 2, "t_prof": 20, "prof_factor": 1, "gsc": 0}
    updates = [(10, {"prof_nodes": 1}), (90, {"prof_nodes": 2})]
    engine = run(five, "lucid", knobs, nodes=4, gpus_per_node=2, updates=updates)
    assert engine.timeline is not None
    starts = [event for event in engine.timeline.events if event.kind == "start"]
    assert [(one.time_ms // 1000, engine.timeline.labels[one.job or 0], one.nodes) for one in starts] == [
        (0, "A", ((2, 1),)),
        (0, "B", ((2, 1),)),
        (0, "C", ((3, 2),)),
        (0, "D", ((0, 2), (1, 2))),
        (20, "A", ((2, 1),)),
        (20, "B", ((2, 1),)),
        (60, "C", ((0, 2),)),
        (95, "E", ((2, 1),)),
    ]


def test_one_more_node_profiles_while_many_wait():
    """12x1; one node profiles for 20 s. At 0 twelve jobs wait, more than ten, so a second node joins and
    both take one. At 20 both are free; ten wait, not more, so only one node goes on, and takes one every 20
    s."""
    rows = "".join(f"j{one} 0 30 1\n" for one in range(12))
    twelve = jobs(f"job submit_s duration_s gpus\n{rows}")
    knobs = {"prof_nodes": 1, "t_prof": 20, "prof_factor": 1, "gsc": 0, "prof_autoscale": True}
    engine = run(twelve, "lucid", knobs, nodes=12, gpus_per_node=1)
    assert engine.timeline is not None
    first = {
        event.job: event.time_ms // 1000
        for event in reversed(engine.timeline.events)
        if event.kind == "start"
    }
    assert [first[one] for one in range(12)] == [0, 0, *range(20, 220, 20)]


def test_the_additional_node_stays_while_it_is_in_use_and_five_wait():
    """4x8; node 3 profiles single GPUs for 20 s. 19 come at 0: more than ten wait, so node 2 joins and both
    take eight; three wait, from 5 s on five. A ends on node 2 at 10: five wait, so node 2 is open still and
    takes k0. B ends there at 12: four wait, so its GPU stays free until all profiles end at 20."""
    rows = "A 0 10 1\nB 0 12 1\n" + "".join(f"j{one} 0 30 1\n" for one in range(14))
    rows += "".join(f"k{one} 0 30 1\n" for one in range(3)) + "k3 5 30 1\nk4 5 30 1\n"
    crowd = jobs(f"job submit_s duration_s gpus\n{rows}")
    knobs = {"prof_nodes": 1, "t_prof": 20, "prof_factor": 8, "gsc": 0, "prof_autoscale": True}
    engine = run(crowd, "lucid", knobs, nodes=4, gpus_per_node=8)
    assert engine.timeline is not None
    labels = engine.timeline.labels
    starts = [event for event in engine.timeline.events if event.kind == "start"]
    assert [(one.time_ms, labels[one.job or 0], one.nodes) for one in starts if 0 < one.time_ms < 20_000] == [
        (10_000, "k0", ((2, 1),))
    ]


def test_a_gang_wider_than_the_main_nodes_makes_the_profiler_give_way():
    """2x4 with one profiler node. W needs both nodes: A, profiled until 20, drains the profiler, and W (80
    GPU-s) runs from 20 to 30; A (200) starts over afterwards."""
    two = jobs("""
        job  submit_s  duration_s  gpus
        A    0         200         1
        W    5         10          8
    """)
    engine = run(two, "lucid", {"prof_nodes": 1, "t_prof": 20, "gsc": 0}, nodes=2)
    assert acts(engine) == expect("""
          0 start   A
         20 preempt A
         20 start   W
         30 finish  W
         30 start   A
        230 finish  A
    """)


def test_counted_gpus_are_refused():
    with pytest.raises(ConfigError, match="policy lucid needs nodes, not placement count"):
        run(jobs(PROFILED), "lucid", placement="count")


def test_without_sharing_its_knobs_are_as_ever_but_memory_stays_what_it_is():
    space = find_policy("lucid").space
    settled = space.project({"gsc": 0, "prio_ratio": 9.0, "partner": "first", "mem_limit": 81_920})
    assert (settled["prio_ratio"], settled["partner"], settled["mem_limit"]) == (2.0, "best", 81_920)
    assert space.project({"gsc": 1, "prio_ratio": 9.0})["prio_ratio"] == 9.0
