"""SensaScale's timelines worked out by hand: a pair, a backfill, a loan (minutes)."""

from __future__ import annotations

import pytest

from deadlines import CURVES, jobs, run, spans_min
from scenario import acts, expect
from trimtab.cluster import Cluster
from trimtab.curve import Share
from trimtab.policies.backfill import Backfill, Blocked, Outlook
from trimtab.policies.catalog import find_policy
from trimtab.policies.sensitivity import Thresholds, traits_of
from trimtab.policies.units import assignment
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator

NODE = Cluster.pool(1, 4).vcs[0]

PAIR = """
    J1 0 120 2 resnet18 100
    J2 0 100 2 gnmt     180
"""
ALONE = {"pair_scope": "off", "adjust": False, "free_pool": False}


def test_traits_of_the_profiles():
    """Two GPUs of four with 12 cores: resnet18 is best at all 12 (1.75), gnmt needs 1 core a GPU, deepspeech
    exactly its part. resnet50 is fastest from 4 cores a GPU on."""
    traits = {model: traits_of(NODE, curve, 2, Thresholds()) for model, curve in CURVES.items()}
    assert traits["resnet18"][:3] == (Share(12, 128_000), 1_750_000, Share(6, 128_000))
    assert traits["gnmt"].least == Share(2, 42_666)
    assert traits["resnet50"].best == Share(8, 128_000)
    labels = {model: one.label for model, one in traits.items()}
    assert labels == {
        "resnet18": "sensitive",
        "mobilenet": "sensitive",
        "resnet50": "sensitive",
        "deepspeech": "neutral",
        "gnmt": "insensitive",
        "transformer": "insensitive",
    }


def test_without_a_curve_a_job_has_its_part():
    part = Share(6, 128_000)
    assert traits_of(NODE, None, 2, Thresholds()) == (part, 1_000_000, part, "neutral")


@pytest.mark.parametrize("mode", ["node", "explicit"])
def test_a_pair_saves_a_deadline(mode):
    """G1: J2 does with 2 of its 6 cores; with 10 J1 runs at 1.53 and ends at 120 / 1.53 = 78.4314."""
    engine = run(jobs(PAIR), knobs={"unit_mode": mode})
    assert spans_min(engine) == {"J1": (0, 78.4314), "J2": (0, 100)}
    assert "4705.88 resize J2" in acts(engine)


def test_without_pairs_it_is_missed():
    assert spans_min(run(jobs(PAIR), knobs=ALONE)) == {"J1": (0, 120), "J2": (0, 100)}


def test_what_was_given_before_it_is_switched_off_goes_back():
    """J1 has all 12 cores and runs at 1.75 for ten minutes; 102.5 are left for its six."""
    table = """
    J1 0  120 2 resnet18 200
    J2 20 100 2 resnet18 -
"""
    engine = run(jobs(table), knobs={}, later=(10, ALONE))
    assert spans_min(engine) == {"J1": (0, 112.5), "J2": (20, 120)}


BACKFILL = """
    R0 0  61  6 transformer -
    K1 1 100  8 transformer 201
    B3 1 110  2 transformer -
    B2 1  80  2 transformer -
    B1 1  30  2 transformer -
"""


def test_backfill_eats_slack_but_no_deadline():
    """G2, a minute later so that R0 runs: K1 must start by 101. B3 would push it to 111: refused; B2 to 81,
    B1 (at 61) to 91: started."""
    engine = run(jobs(BACKFILL), knobs={"be_order": "fifo"}, gpus_per_node=8)
    assert spans_min(engine) == {
        "R0": (0, 61),
        "K1": (91, 191),
        "B3": (191, 301),
        "B2": (1, 81),
        "B1": (61, 91),
    }


@pytest.mark.parametrize("mode", ["easy", "conservative"])
def test_easy_backfill_keeps_the_reservation(mode):
    """G2: only B1 ends before R0 does, so K1 starts at 61."""
    engine = run(jobs(BACKFILL), knobs={"be_order": "fifo", "backfill": mode}, gpus_per_node=8)
    assert spans_min(engine) == {
        "R0": (0, 61),
        "K1": (61, 161),
        "B3": (161, 271),
        "B2": (161, 241),
        "B1": (1, 31),
    }


def test_without_backfill_nobody_passes():
    spans = spans_min(run(jobs(BACKFILL), knobs={"be_order": "fifo", "backfill": "none"}, gpus_per_node=8))
    assert spans["B1"] == (161, 191)


LOAN = """
    J1 0 155 2 mobilenet 130
    J2 0 100 2 resnet50  300
"""


@pytest.mark.parametrize(
    ("knobs", "ends"),
    [
        ({}, (119.2308, 129.4649)),
        ({"free_pool": False}, (119.2308, 131.0)),
        ({"adjust": False}, (135.4839, 100.0)),
        ({"floor": 1.0}, (135.4839, 100.0)),
        ({"adjust": False, "free_pool": False}, (155.0, 100.0)),
    ],
)
def test_a_loan_saves_a_deadline(knobs, ends):
    """G3: J1 needs 155 / 125 = 1.24, that is 8 cores (1.3); J2 lends 2 of its 6 and has slack enough. When J1
    ends at 155 / 1.3, J2 has 11.7692 left: at 1.15 with the free pool, at 1 with its part."""
    spans = spans_min(run(jobs(LOAN), knobs={"guard_rel": 0.0, **knobs}))
    assert (spans["J1"][1], spans["J2"][1]) == ends


RESCUE = """
    B1 0 100 4 transformer -
    S1 10 30 2 transformer 45
"""


def test_a_rescue_takes_gpus_from_best_effort():
    """S1 must start by 15, B1 runs until 100: with rescues it gives way at once and goes on at 40."""
    assert spans_min(run(jobs(RESCUE)))["S1"] == (100, 130)
    engine = run(jobs(RESCUE), "sensascale-plus")
    assert acts(engine) == expect("""
        0    start   B1
        600  preempt B1
        600  start   S1
        2400 finish  S1
        2400 start   B1
        7800 finish  B1
    """)


def test_what_is_evicted_often_enough_stays():
    spans = spans_min(run(jobs(RESCUE), "sensascale-plus", {"max_evictions": 0}))
    assert spans["S1"] == (100, 130)


SLACK = """
    L 0  200 4 transformer {due}
    S 10 30  4 transformer 60
"""


def test_much_work_with_slack_gives_way_to_little():
    """At 10 L has 190 left and must start by 410, with its guard of 19 by 391: it can wait until 40."""
    engine = run(jobs(SLACK.format(due=600)), "sensascale-plus")
    assert acts(engine) == expect("""
        0     start   L
        600   preempt L
        600   start   S
        2400  finish  S
        2400  start   L
        13800 finish  L
    """)


@pytest.mark.parametrize(
    ("due", "knobs", "start"),
    [
        (240, {}, 200),  # L must start by 50, with its guard by 31: it cannot wait until 40
        (260, {}, 10),  # with its guard by 51: it can
        (600, {"outlast": 10}, 20),  # 190 are not ten times 30; at 20 S would be late within a tick
        (600, {"max_evictions": 0}, 200),
        (600, {"preempt": "rescue"}, 200),  # L has a deadline that can be met
        ("-", {"preempt": "rescue"}, 20),
    ],
)
def test_who_gives_way_when(due, knobs, start):
    spans = spans_min(run(jobs(SLACK.format(due=due)), "sensascale-plus", knobs))
    assert spans["S"][0] == start


def test_a_gang_takes_the_place_of_jobs_on_several_nodes():
    """G needs a node and a half; of two equally wide jobs the one with more left clears the whole one."""
    table = """
        A 0  100 4 transformer -
        B 0  300 4 transformer -
        G 10 20  6 transformer -
    """
    engine = run(jobs(table), "sensascale-plus", nodes=2)
    assert acts(engine) == expect("""
        0     start   A B
        600   preempt B A
        600   start   G
        1800  finish  G
        1800  start   A B
        7200  finish  A
        19200 finish  B
    """)
    assert spans_min(run(jobs(table), "sensascale-plus", {"preempt": "rescue"}, nodes=2))["G"] == (300, 320)


@pytest.mark.parametrize(("urgent", "starts"), [(15, (30, 10)), (60, (10, 110))])
def test_by_time_left_unless_a_latest_start_is_near(urgent, starts):
    """At 10 X must start by 50: within the hour, but not within 15 minutes."""
    table = """
        R 0 10  4 transformer -
        X 1 100 4 transformer 150
        Y 1 20  4 transformer -
    """
    spans = spans_min(run(jobs(table), knobs={"order": "srtf", "urgent": urgent}))
    assert (spans["X"][0], spans["Y"][0]) == starts


def test_all_adjusting_turned_off_gives_back_what_was_lent():
    """A had all 12 cores; when nothing is shared any more, B gets its part."""
    workload = jobs("A 0 300 2 resnet18 -\nB 20 10 2 transformer -")
    found = find_policy("sensascale")
    environment = Environment(
        placement="consolidated", restart_ms=flat_restart(0), estimator=OracleEstimator(workload.duration_ms)
    )
    engine = Engine(workload, Cluster.pool(1, 4), found, found.space.defaults, environment, timeline=True)
    engine.update(10 * 60_000, found.space.project({**found.space.defaults, **ALONE}))
    engine.run()
    assert spans_min(engine)["B"] == (20, 30)


def test_hopeless_jobs_go_last():
    """A can never meet 50; B and best-effort C go first, though A's deadline is earliest."""
    table = """
        R 0 10 4 transformer -
        A 1 100 4 transformer 50
        B 1 100 4 transformer 300
        C 1 100 4 transformer -
    """
    starts = {label: start for label, (start, _) in spans_min(run(jobs(table))).items()}
    assert starts == {"R": 0, "B": 10, "C": 110, "A": 210}
    kept = spans_min(run(jobs(table), knobs={"hopeless": "keep"}))
    assert kept["A"] == (10, 110)


def test_a_soft_job_slides_to_the_next_option():
    """At 10 the first deadline of A is lost, the second is not: it goes before C, which may start later."""
    table = """
        R 0 10 4 transformer -
        A 1 100 4 transformer 50/150
        C 1 100 4 transformer 400
    """
    spans = spans_min(run(jobs(table)))
    assert (spans["A"][0], spans["C"][0]) == (10, 110)


def test_a_promise_is_kept_against_later_urgent_jobs():
    """A is promised 210 at its arrival. U comes at 20 and must start by 105: it fits nowhere before A has
    run, is refused, and A starts first."""
    table = """
        R 0  100 4 transformer 1000
        A 1  100 4 transformer 210
        U 20 100 4 transformer 205
    """
    engine = run(jobs(table), "sensascale-plus")
    spans = spans_min(engine)
    assert (spans["A"][0], spans["U"][0]) == (100, 200)
    assert run(jobs(table)).records[2].first_start_ms == 100 * 60_000


@pytest.mark.parametrize("order", ["lst", "edf"])
def test_who_was_refused_holds_up_no_promise(order):
    """F finds room at 100 and would end at 150, too late: refused. P, promised 250, takes the two free GPUs
    at 2, though F, with hope until 90, is looked at first and could then start at 122 only."""
    table = """
        R 0 100 2 - 1000
        F 1 50  4 - 140
        P 2 120 2 - 250
    """
    engine = run(jobs(table), "sensascale-plus", {"order": order, "preempt": "off"})
    assert [record.promise_ms is not None for record in engine.records] == [True, False, True]
    assert spans_min(engine) == {"R": (0, 100), "F": (122, 172), "P": (2, 122)}


@pytest.mark.parametrize("backfill", ["lst", "conservative", "none"])
def test_a_later_promise_breaks_no_earlier_one(backfill):
    """W is promised 21, for it runs from 5 to 6; B, promised 34 behind it, must start by 14, W by 20. With B
    first, at 2, W would have to wait until 22."""
    table = """
        A 0 5  1 - -
        W 1 1  4 - 21
        B 2 20 2 - 34
    """
    knobs = {"order": "lst", "preempt": "off", "backfill": backfill}
    engine = run(jobs(table), "sensascale-plus", knobs)
    assert spans_min(engine) == {"A": (0, 5), "W": (5, 6), "B": (6, 26)}


def test_safety_with_several_blocked_units():
    """8 GPUs, 2 free; 6 more come at 60. The first unit takes all 8 from 60 to 160, the second 4 from 160 on:
    it must start by 170. What takes a GPU until 75 moves both by 15 (refused), until 70 by 10 (safe)."""
    outlook = Outlook.of(0, 2, [(60, 6)])
    backfill = Backfill("lst", 0, outlook, [Blocked(8, 100, 75), Blocked(4, 50, 170)])
    assert backfill.is_safe(0, Blocked(1, 70, None))
    assert not backfill.is_safe(0, Blocked(1, 75, None))
    assert not backfill.is_safe(0, Blocked(2, 80, None))
    wary = Backfill("lst", 100_000, outlook, [Blocked(8, 100, 75)])
    assert wary.is_safe(0, Blocked(1, 65, None))
    assert not wary.is_safe(0, Blocked(1, 66, None))


def test_promised_units_respect_each_other_alone():
    """Two of 4 GPUs are free, the others come at 60. With a promise: 4 GPUs from 60 on, to start by 70;
    without: 2 GPUs, now at the latest, once it has taken these two."""
    kept = [Blocked(4, 100, 70, 1, True), Blocked(2, 60, 0, 2)]
    for mode in ("lst", "none"):
        backfill = Backfill(mode, 0, Outlook.of(0, 2, [(60, 2)]), list(kept))
        assert backfill.is_safe(0, Blocked(2, 60, 10, 3, True))
        assert not backfill.is_safe(0, Blocked(2, 60, 10, 3))
        assert backfill.is_safe(0, Blocked(2, 70, 10, 3, True)) == (mode == "lst")
        assert not backfill.is_safe(0, Blocked(2, 71, 10, 3, True))


def test_assignment_takes_the_largest_sum():
    """Greedy by row would take 9 + 1; 8 + 7 is more."""
    assert assignment([[9, 8], [7, 1]]) == [(0, 1), (1, 0)]
    assert assignment([]) == []
