"""Themis on a few jobs each, worked out by hand (seconds; one node of 4 GPUs)."""

from __future__ import annotations

import math

import pytest

from scenario import acts, expect, jct_s, jobs, preemptions, run
from trimtab.cluster import Cluster
from trimtab.policies.fairness import Crowding, log2_units
from trimtab.simulate.engine import Engine
from trimtab.simulate.metrics import jobs_table, metrics_of, rhos

THREE_WIDE = jobs("""
    job  submit_s  duration_s  gpus
    A    0         120         4
    B    0         60          4
    C    30        60          4
""")


def rho(engine: Engine, gpus: int = 4) -> list[float]:
    """Return each job's final rho, as the table of a run has it."""
    cluster = Cluster.pool(1, gpus)
    return rhos(jobs_table(engine.workload, engine.outcomes), cluster).to_list()


def test_leases_go_to_whom_is_treated_worst():
    """H1, leases of 60 s, f = 1. At 0 both would have rho .5 (120 / 240, 60 / 120): A by id. At 60 there were
    2.5 jobs in B's life, three in C's: B 120 / 150 = .8, C 90 / 180 = .5, A 120 / 300 = .4. At 120 B
    ends, before its lease does; C 150 / 180 = .83, A 180 / 330 = .55. All end within their share."""
    engine = run(THREE_WIDE, "themis", {"lease": 60, "fairness_f": 1.0})
    assert acts(engine) == expect("""
          0 start   A
         60 preempt A
         60 start   B
        120 finish  B
        120 start   C
        180 finish  C
        180 start   A
        240 finish  A
    """)
    assert jct_s(engine) == [240, 120, 150]
    assert rho(engine) == pytest.approx([240 / 255, 120 / 165, 150 / 156])


def test_a_restart_alone_breaks_the_guarantee():
    """H1 with a restart cost of 10 s: A pays from 180 on, its lease is renewed at 240, it ends at 250, with
    250 / (120 x (2 x 30 + 3 x 90 + 2 x 60 + 70) / 250) > 1."""
    engine = run(THREE_WIDE, "themis", {"lease": 60, "fairness_f": 1.0}, restart_s=10)
    assert acts(engine).splitlines()[-2:] == ["180 start A", "250 finish A"]
    assert rho(engine)[0] == pytest.approx(1.0016, abs=1e-4)


FOUR = jobs("""
    job  submit_s  duration_s  gpus
    A    0         100         2
    B    0         50          2
    C    10        30          4
    D    20        20          2
""")


@pytest.mark.parametrize("f", [0.0, 1.0])
def test_what_does_not_fit_is_passed_over(f):
    """H2, leases of 50 s. At 50 B ends and A's lease does: D 50 / 40, C 70 / 112.5, A 100 / 170. D is first
    by rho and by gain (ln(1 + 50/50) / 2 = .35, A .20, C .13); C does not fit beside it, A keeps
    its GPUs. At 70 two GPUs are free, and C needs four."""
    engine = run(FOUR, "themis", {"lease": 50, "fairness_f": f})
    first = "A B" if f else "B A"  # by id, or the shorter one first
    assert acts(engine) == expect(f"""
          0 start   {first}
         50 finish  B
         50 start   D
         70 finish  D
        100 finish  A
        100 start   C
        130 finish  C
    """)
    assert jct_s(engine) == [100, 50, 120, 50]
    assert rho(engine) == pytest.approx([0.6897, 0.5882, 1.6, 1.3889], abs=1e-4)


LONG_LONG_SHORT = jobs("""
    job  submit_s  duration_s  gpus
    A    0         100         4
    B    5         100         4
    C    40        10          4
""")


def test_seen_by_all_the_shortest_goes_first():
    """H3, leases of 50 s, f = 0. At 50: C ln 3.5, A ln 1.5, B ln(1 + 50 / 145). At 60: A ln(1 + 50 / 110), B
    ln(1 + 50 / 155). B renews at 160 since nobody else is there."""
    engine = run(LONG_LONG_SHORT, "themis", {"lease": 50, "fairness_f": 0.0})
    assert acts(engine) == expect("""
          0 start   A
         50 preempt A
         50 start   C
         60 finish  C
         60 start   A
        110 finish  A
        110 start   B
        210 finish  B
    """)
    assert jct_s(engine) == [110, 205, 20]
    assert rho(engine) == pytest.approx([0.5149, 1.2735, 0.6667], abs=1e-4)


def test_seen_by_the_worst_off_alone_it_is_fairer_and_slower():
    """H3, f = 1. At 50: C .67, B 145 / 222.2 = .65, A .48. At 60: B .656, A .489. At 110: A .749, B .708."""
    engine = run(LONG_LONG_SHORT, "themis", {"lease": 50, "fairness_f": 1.0})
    assert acts(engine) == expect("""
          0 start   A
         50 preempt A
         50 start   C
         60 finish  C
         60 start   B
        110 preempt B
        110 start   A
        160 finish  A
        160 start   B
        210 finish  B
    """)
    assert jct_s(engine) == [160, 205, 20]
    assert preemptions(engine) == 2
    assert rho(engine) == pytest.approx([0.7642, 1.1059, 0.6667], abs=1e-4)


LONG_SHORT = jobs("""
    job  submit_s  duration_s  gpus
    A    0         200         4
    B    10        50          4
""")


@pytest.mark.parametrize(
    ("update", "ends", "rhos"),
    [("at_end", [250, 140], [0.8013, 1.4]), ("now", [250, 70], [0.9766, 0.7])],
)
def test_a_shorter_lease_from_now_on(update, ends, rhos):
    """H4, leases of 100 s, 20 s from 30 on, f = 1. Leases that run keep their end: B starts at 100, renewed
    at 120 and 140. Cut at once, A's lease ends at max(30, 0 + 20), and B has 70 / 100 = .7 against A's .6."""
    knobs = {"lease": 100, "fairness_f": 1.0, "lease_update": update}
    engine = run(LONG_SHORT, "themis", knobs, updates=[(30, {"lease": 20})])
    assert jct_s(engine) == ends
    assert rho(engine) == pytest.approx(rhos, abs=1e-4)
    assert preemptions(engine) == 1


def test_the_private_share_of_auctions_may_change_and_that_of_reports_does_not():
    """Leases of 50 s, f = 1. At 50 C, alone on one of four GPUs, would have 130 / 100 by share, B 140 / 275,
    A 100 / 240. By the paper, told at 30, C has 130 / 300: B goes first. At 100 C 180 / 300 = .6, A
    150 / 270, B 140 / 289; at 150 A 200 / 280 = .71, C .6; at 200 B 240 / 295 = .81, C 230 / 300. In the
    end C took 280 s for 100, 2.8 by share; by the paper it would have been 280 / 246."""
    workload = jobs("""
        job  submit_s  duration_s  gpus
        A    0         100         4
        B    10        100         4
        C    20        100         1
    """)
    knobs = {"lease": 50, "fairness_f": 1.0}
    assert (
        acts(run(workload, "themis", knobs)).splitlines()[:3]
        == expect("""
          0 start   A
         50 preempt A
         50 start   C
    """).splitlines()
    )
    engine = run(workload, "themis", knobs, updates=[(30, {"ideal_model": "paper"})])
    first, update, *rest = acts(engine).splitlines()
    assert update.startswith("30 knobs lease=50,")
    assert "\n".join([first, *rest]) == expect("""
          0 start   A
         50 preempt A
         50 start   B
        100 preempt B
        100 start   C
        150 preempt C
        150 start   A
        200 finish  A
        200 start   B
        250 finish  B
        250 start   C
        300 finish  C
    """)
    assert rho(engine) == pytest.approx([200 / 285, 240 / 275, 280 / 100])


@pytest.mark.parametrize(("f", "beside"), [(1.0, "B"), (0.5, "B"), (0.0, "D")])
def test_leftovers_go_by_rho_and_not_by_gain(f, beside):
    """At 50 A ends; C has rho 60 / 55, B 440 / 650 = .68, D 120 / 200 = .6. Asked alone, C leaves two GPUs
    to B, the worse off. If B is asked, too, C goes first all the same. If all are, D goes before B:
    ln(1 + 50 / 120) against ln(1 + 50 / 440)."""
    workload = jobs("""
        job  submit_s  duration_s  gpus
        A    0         50          4
        B    10        400         2
        C    20        30          2
        D    30        100         2
    """)
    engine = run(workload, "themis", {"lease": 50, "fairness_f": f})
    assert acts(engine).splitlines()[2] == f"50 start C {beside}"


def test_what_is_reported_of_rho():
    """H2's four have 20 / 29, 10 / 17, 8 / 5 and 25 / 18. Half of them are at most 1, none is between 1 and
    1.1. The 95th percentile is at .95 x 3 = 2.85 of places 0 to 3: 25 / 18 + .85 x (8 / 5 - 25 / 18)."""
    engine = run(FOUR, "themis", {"lease": 50})
    found = metrics_of(jobs_table(engine.workload, engine.outcomes), Cluster.pool(1, 4))
    assert (found["rho_le_1_share"], found["rho_le_1_1_share"]) == (0.5, 0.5)
    assert found["rho_p95"] == pytest.approx(1.5683, abs=1e-4)
    assert found["rho_max"] == pytest.approx(8 / 5)


def test_pooled_auctions_let_ended_leases_run_on():
    """H3, f = 1, auctions 20 s after they are asked for. A and B meet at 20: A 120 / 175 = .69, B 115 / 200 =
    .58. A's lease ends at 70 and is auctioned at 90, A having run 70 s by then: C 60 / 30 = 2. C ends at 100;
    at 120 B 215 / 252 = .85, A 150 / 246 = .61. At 190 A 220 / 229 = .96, B 215 / 232 = .93."""
    engine = run(LONG_LONG_SHORT, "themis", {"lease": 50, "fairness_f": 1.0, "auction_delay": 20})
    assert acts(engine) == expect("""
         20 start   A
         90 preempt A
         90 start   C
        100 finish  C
        120 start   B
        190 preempt B
        190 start   A
        220 finish  A
        240 start   B
        270 finish  B
    """)


@pytest.mark.parametrize(("payment", "second"), [(False, 60), (True, 45.368)])
def test_a_winner_pays_with_a_shorter_lease(payment, second):
    """Leases of 60 s, f = 0. A (ln 1.6 / 4) goes before B and C (ln 1.15 / 2), which would both run else:
    it keeps (400 / 460)^2 of its lease, 45.368 s. D, which came meanwhile, need not wait for 60."""
    workload = jobs("""
        job  submit_s  duration_s  gpus
        A    0         100         4
        B    0         400         2
        C    0         400         2
        D    10        5           4
    """)
    engine = run(workload, "themis", {"lease": 60, "fairness_f": 0.0, "hidden_payment": payment})
    assert acts(engine).splitlines()[:3] == ["0 start A", f"{second:g} preempt A", f"{second:g} start D"]


def test_a_gang_that_would_be_too_slow_waits_for_few_nodes():
    """F2's jobs: at 10 two GPUs are free on two nodes. C would run at .8 there: .8 allows it, .9 does not."""
    workload = jobs("""
        job  submit_s  duration_s  gpus  spread_speed
        A    0         100         3     1
        B    0         60          3     1
        C    10        30          2     .8
    """)
    ends = {}
    for threshold in (0.8, 0.9):
        knobs = {"placement_threshold": threshold}
        engine = run(workload, "themis", knobs, nodes=2, placement="relaxed")
        ends[threshold] = jct_s(engine)
    assert ends == {0.8: [100, 60, 37.5], 0.9: [100, 60, 80]}


def test_logarithms_are_those_of_whole_numbers():
    """In units of 2**-40, rounded down, and in order also where quotients are next to each other."""
    for numerator, denominator in ((1, 1), (3, 2), (7, 1), (10**12 + 1, 10**12), ((1 << 43) + 5, 3)):
        found = log2_units(numerator, denominator)
        assert found == pytest.approx(math.log2(numerator / denominator) * 2**40, rel=1e-9, abs=4)
    quotients = [(10**6 + step, 10**6) for step in range(2000)]
    found = [log2_units(*one) for one in quotients]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_the_two_readings_of_a_private_share():
    """One GPU of 8 while 4 jobs are there: its share is 2 GPUs, so alone it would take its run time; the
    paper gives it four times that."""
    assert Crowding.of(100, 400, 1, 8) == Crowding(1, 1)
    assert Crowding.of(100, 400, 1, 8, paper=True).rho_ppm(100, 100) == 250_000
    assert Crowding.of(100, 400, 4, 8).rho_ppm(150, 100) == 750_000
    assert Crowding.of(3, 6, 8, 8).rho_ppm(100, 150) == 333_333
