"""The model of Slurm on a few jobs each, worked out by hand; docs/concepts/slurm.md has some of them, too."""

from __future__ import annotations

import pytest

from scenario import acts, expect, jobs, run
from trimtab.job import JobFacts
from trimtab.policies.slurm_knobs import DECAY_BITS, MINUTE_MS, SPACE, Formula, Rules, decay, minute_decay
from trimtab.policies.slurm_usage import PPM, Books, Usage, number_of
from trimtab.simulate.engine import Engine
from trimtab.simulate.workload import Workload
from trimtab.site import Qos, Site, SlurmPartition

NO_FILL = {"SchedulerType": "sched/builtin"}


def order(engine: Engine) -> list[str]:
    """Return the jobs in the order in which they started."""
    return [name for line in acts(engine).splitlines() if " start " in line for name in line.split()[2:]]


# ---- priorities and the main pass --------------------------------------------------------------------


def test_without_weights_all_are_equal_and_the_first_comes_first():
    """B finds no place at 10, so C must not start though it would fit: all partitions have the same nodes."""
    engine = run(
        jobs(
            """
            job submit_s duration_s gpus
            A   0        100        3
            B   10       50         4
            C   20       30         1
            """
        ),
        "slurm",
        NO_FILL,
    )
    assert acts(engine) == expect(
        """
        0   start  A
        100 finish A
        100 start  B
        150 finish B
        150 start  C
        180 finish C
        """
    )


def test_a_weight_times_a_factor_orders_those_who_wait():
    """TRES 1000: B asks for 1 of 4 GPUs, 250; C for 4, 1000. The size factor with 1 node of 1: B
    (1/1 + 1/4) / 2 = 0.625, C 1, and what small ones are given is 0.375 and 0. With TRES 500 beside that
    B has 125 + 375 and C 500 + 0: level, so the first comes first; with 502 B has 500.5, C 502."""
    table = """
        job submit_s duration_s gpus
        A   0        100        4
        B   10       50         1
        C   20       30         4
        """
    c_first = expect("0 start A\n100 finish A\n100 start C\n130 finish C\n130 start B\n180 finish B")
    b_first = expect("0 start A\n100 finish A\n100 start B\n150 finish B\n150 start C\n180 finish C")
    assert acts(run(jobs(table), "slurm", {**NO_FILL, "PriorityWeightTRES": 1000})) == c_first
    assert acts(run(jobs(table), "slurm", {**NO_FILL, "PriorityWeightJobSize": 1000})) == c_first
    small = {**NO_FILL, "PriorityWeightJobSize": 1000, "PriorityFavorSmall": True}
    assert acts(run(jobs(table), "slurm", small)) == b_first
    assert acts(run(jobs(table), "slurm", {**small, "PriorityWeightTRES": 500})) == b_first
    assert acts(run(jobs(table), "slurm", {**small, "PriorityWeightTRES": 502})) == c_first


def test_age_overtakes_a_weight_at_a_calculation():
    """Of quality H has 500. Age 1000 over 10 minutes is 100 a minute, by calculations every 5: at 600 L is
    full with 1000, and H, which came at 200, has 666 + 500, so it goes first. With a tenth of the weight
    it has 666 + 50: less than L, and than N, which came at 100 and has 833."""
    site = Site(qualities={"high": Qos(1)})
    table = """
        job submit_s duration_s gpus qos
        A   0        700        4    low
        L   0        100        4    low
        N   100      100        4    low
        H   200      100        4    high
        """
    values = {"PriorityWeightAge": 1000, "PriorityMaxAge": 10, "PriorityWeightQOS": 500}
    engine = run(jobs(table), "slurm", {**NO_FILL, **values}, site=site)
    assert acts(engine) == expect(
        """
        0   start  A
        700 finish A
        700 start  H
        800 finish H
        800 start  L
        900 finish L
        900 start  N
        1000 finish N
        """
    )
    engine = run(jobs(table), "slurm", {**NO_FILL, **values, "PriorityWeightQOS": 50}, site=site)
    assert order(engine) == ["A", "L", "N", "H"]


def test_a_calculation_that_has_not_come_does_not_count():
    """S asks for 1 GPU of 4, TRES 400 x 1/4; T, which comes later, for all, 400. When A ends at 290 nobody
    has aged yet, and T goes first; when it ends at 310, S has 1000 x 290 s / 600 s = 483 more, and T 83."""
    table = """
        job submit_s duration_s gpus
        A   0        {until}    4
        S   10       50         1
        T   250      50         4
        """
    values = {**NO_FILL, "PriorityWeightAge": 1000, "PriorityMaxAge": 10, "PriorityWeightTRES": 400}
    assert order(run(jobs(table.format(until=290)), "slurm", values)) == ["A", "T", "S"]
    assert order(run(jobs(table.format(until=310)), "slurm", values)) == ["A", "S", "T"]


def test_partitions_order_by_tier_then_by_factor():
    """U is in a higher tier: before V, whatever V's priority. V's factor is 4 of 4, W's 1 of 4."""
    site = Site({"urgent": SlurmPartition(tier=2), "large": SlurmPartition(factor=4)})
    table = """
        job submit_s duration_s gpus vc
        A   0        100        4    small
        W   10       50         4    small
        V   20       50         4    large
        U   30       50         4    urgent
        """
    engine = run(jobs(table), "slurm", {**NO_FILL, "PriorityWeightPartition": 1000}, site=site)
    assert order(engine) == list("AUVW")


def test_a_pass_after_an_event_looks_no_deeper_than_told_and_a_full_one_at_all():
    """Of five jobs that come at 7, the first two start at once; the others at the next full pass, at 60."""
    table = "job submit_s duration_s gpus\n" + "\n".join(f"{name} 7 100 1" for name in "ABCD")
    engine = run(jobs(table), "slurm", {**NO_FILL, "default_queue_depth": 2})
    assert acts(engine) == expect("7 start A B\n60 start C D\n107 finish A B\n160 finish C D")


def test_main_passes_rest():
    """Three seconds between passes after events, or two: B, which comes 1 s after A, starts then."""
    table = "job submit_s duration_s gpus\nA 0 100 1\nB 1 100 1\nC 5 100 1"
    for rest in ({"batch_sched_delay": 2}, {"batch_sched_delay": 0, "sched_min_interval": 2_000_000}):
        engine = run(jobs(table), "slurm", {**NO_FILL, **rest})
        assert acts(engine) == expect(
            "0 start A\n2 start B\n5 start C\n100 finish A\n102 finish B\n105 finish C"
        )
    engine = run(jobs(table), "slurm", NO_FILL)
    assert acts(engine) == expect("0 start A\n3 start B\n6 start C\n100 finish A\n103 finish B\n106 finish C")


def test_a_full_pass_does_not_rest():
    """B and C come 1 s after the pass that starts A, and D a second later: the full pass at 60 starts all."""
    table = "job submit_s duration_s gpus\nA 58 100 1\nB 59 100 1\nC 59 100 1\nD 60 100 1"
    engine = run(jobs(table), "slurm", {**NO_FILL, "default_queue_depth": 1})
    assert acts(engine) == expect("58 start A\n60 start B C D\n158 finish A\n160 finish B C D")


# ---- limits and backfill -----------------------------------------------------------------------------


def test_a_job_ends_at_its_limit():
    engine = run(jobs("job submit_s duration_s gpus limit_s\nA 0 100 1 60\nB 0 100 1 -"), "slurm")
    assert acts(engine) == expect("0 start A B\n60 finish A\n100 finish B")


BEFORE_A_RESERVATION = """
    job submit_s duration_s gpus limit_s
    A   0        500        3    600
    B   10       100        4    600
    C   20       300        1    540
    D   20       300        1    600
    """


def test_backfill_before_a_reservation():
    """B is kept the node from 600, the limit of A. At 30, C, until 570 by its limit, delays nobody; D, until
    630, would, and has to wait for B, though it runs for 300 s only. A really ends at 500, and C at 330."""
    engine = run(jobs(BEFORE_A_RESERVATION), "slurm")
    assert acts(engine) == expect(
        """
        0   start  A
        30  start  C
        330 finish C
        500 finish A
        500 start  B
        600 finish B
        600 start  D
        900 finish D
        """
    )


def test_what_starts_beyond_the_window_is_kept_no_place():
    """Without C, and in a window of 9 minutes, B would start too late to be kept a place: at 30 D starts
    beside A, and B waits for both."""
    table = "\n".join(line for line in BEFORE_A_RESERVATION.splitlines() if " C " not in line)
    assert order(run(jobs(table), "slurm")) == ["A", "B", "D"]
    engine = run(jobs(table), "slurm", {"bf_window": 9})
    assert acts(engine) == expect(
        "0 start A\n30 start D\n330 finish D\n500 finish A\n500 start B\n600 finish B"
    )


def test_a_coarse_resolution_rounds_ends_up():
    """In steps of half an hour A ends at 1800 and B begins there, so that D delays nobody when it starts at
    330, after C."""
    engine = run(jobs(BEFORE_A_RESERVATION), "slurm", {"bf_resolution": 1800})
    assert "330 start D" in acts(engine)
    assert "330 start D" not in acts(run(jobs(BEFORE_A_RESERVATION), "slurm"))


def test_a_place_is_kept_on_whole_nodes():
    """Two nodes of 4. A has 4 until 600 and B 3 until 1200; C waits for 2 GPUs, from 600 on A's node: D, with
    one GPU until 1230, may have the one beside B, but E, with 2 until 1230, may not have two beside C."""
    table = """
        job submit_s duration_s gpus limit_s
        A   0        600        4    600
        B   0        1200       3    1200
        C   10       900        2    900
        D   20       1200       1    1200
        E   20       600        2    600
        """
    engine = run(jobs(table), "slurm", nodes=2)
    assert acts(engine) == expect(
        """
        0    start  A B
        30   start  D
        600  finish A
        600  start  C E
        1200 finish B E
        1230 finish D
        1500 finish C
        """
    )


FIVE_SMALL = "job submit_s duration_s gpus limit_s user\nA 0 6000 3 6000 a\nB 10 100 4 600 a\n" + "\n".join(
    f"{name} 20 60 1 {limit} {user}"
    for name, limit, user in (("C", 9000, "c"), ("D", 9000, "c"), ("E", 60, "e"))
)


@pytest.mark.parametrize(
    ("values", "at_s"),
    [({}, 30), ({"bf_max_job_test": 3}, 6100), ({"bf_max_job_user": 1}, 30), ({"bf_interval": 50}, 50)],
)
def test_limits_of_a_backfill_pass(values, at_s):
    """B, C and D have to wait, and E may fill the gap if it is among those that are tested: it is the fourth,
    and the only one of its user. If not, it starts when B has ended."""
    engine = run(jobs(FIVE_SMALL), "slurm", values)
    started = next(line for line in acts(engine).splitlines() if "start" in line and "E" in line)
    assert started.split()[0] == str(at_s)


def test_backfill_starts_no_more_than_told_at_once():
    """One a pass: C at 30, D at 60, E when C has ended."""
    table = FIVE_SMALL.replace("9000", "60").replace("A 0 6000 3", "A 0 6000 2")
    engine = run(jobs(table), "slurm", {"bf_max_job_start": 1})
    assert [line for line in acts(engine).splitlines() if "start" in line][:3] == [
        "0 start A",
        "30 start C",
        "60 start D",
    ]


# ---- preemption --------------------------------------------------------------------------------------


def test_a_higher_tier_takes_the_gpus_and_the_loser_waits_for_two_minutes():
    """U takes the GPUs of Y, as narrow as X and newer. Y may start again at 130 + 121 = 251: at the next
    backfill pass, 270; the next full pass would be at 300."""
    site = Site({"urgent": SlurmPartition(tier=2)})
    table = """
        job submit_s duration_s gpus vc
        X   0        900        2    usual
        Y   10       900        2    usual
        U   130      30         2    urgent
        """
    engine = run(jobs(table), "slurm", {"PreemptType": "preempt/partition_prio"}, site=site, restart_s=5)
    assert acts(engine) == expect(
        """
        0    start   X
        10   start   Y
        130  preempt Y
        130  start   U
        160  finish  U
        270  start   Y
        900  finish  X
        1055 finish  Y
        """
    )


def test_only_what_is_needed_is_taken_and_only_after_the_exempt_time():
    """Of X (1 GPU, 0), Y (1, 10) and Z (2, 20), U needs 3: Y and X first, which are narrower, then Z; with Z
    and Y it has enough, so X, lifted after Y, is put back. Safe for 300 s, Z can be taken from 320 on: the
    next pass by the clock is the backfill of 330, which takes nothing, then the full pass of 360."""
    site = Site(qualities={"high": Qos(2, ("low",)), "low": Qos(1)})
    table = """
        job submit_s duration_s gpus qos
        X   0        900        1    low
        Y   10       900        1    low
        Z   20       900        2    low
        U   30       600        3    high
        """
    values = {"PreemptType": "preempt/qos", "PriorityWeightQOS": 1}
    engine = run(jobs(table), "slurm", values, site=site)
    assert acts(engine).splitlines()[3:5] == ["30 preempt Z Y", "30 start U"]
    engine = run(jobs(table), "slurm", {**values, "PreemptExemptTime": 300}, site=site)
    assert acts(engine).splitlines()[3:5] == ["360 preempt Z Y", "360 start U"]
    engine = run(jobs(table), "slurm", {**values, "PreemptType": "preempt/none"}, site=site)
    assert acts(engine).splitlines()[3] == "900 finish X"
    of_none = Site(qualities={"high": Qos(2, ("",))})
    engine = run(jobs(table.replace("low", "-")), "slurm", values, site=of_none)
    assert acts(engine).splitlines()[3:5] == ["30 preempt Z Y", "30 start U"]


# ---- fair-share --------------------------------------------------------------------------------------


def test_half_is_left_after_the_half_life():
    assert minute_decay(1) == 1 << DECAY_BITS - 1
    assert minute_decay(0) == 1 << DECAY_BITS
    for half_life_min in (2, 60, 10_080, 525_600):
        left = decay(minute_decay(half_life_min), half_life_min)
        assert abs(left - (1 << DECAY_BITS - 1)) <= half_life_min
    assert decay(minute_decay(2), 4) == pytest.approx(1 << DECAY_BITS - 2, abs=4)


def books(used: dict[tuple[str, str], int]) -> Books:
    """Return books in which users of accounts have used GPU-ms."""
    rules = Rules.of(SPACE.defaults)
    found = Books.open((), 0, rules)
    for (account, user), gpu_ms in used.items():
        found.usage[number_of(account), number_of(user)] = Usage(gpu_ms)
    return found


def factors(found: Books, shares: dict[str, int]) -> dict[str, int]:
    named = {number_of(name): name for name in ("ann", "bob", "cem", "dee", "eva")}
    told = found.fair_shares_ppm({number_of(account): share for account, share in shares.items()})
    return {named[user]: ppm for (_, user), ppm in told.items()}


def test_the_fair_tree_goes_by_accounts_first():
    """Vision has used 60 + 20, speech 90 with two shares, 45 a share: speech goes first, though cem has used
    most of all. Nobody else is in speech but dee, who has used nothing."""
    found = books({("vision", "ann"): 60, ("vision", "bob"): 20, ("speech", "cem"): 90, ("speech", "dee"): 0})
    assert factors(found, {"speech": 2}) == {"dee": PPM, "cem": 750_000, "bob": 500_000, "ann": 250_000}
    assert factors(found, {}) == {"bob": PPM, "ann": 750_000, "dee": 500_000, "cem": 250_000}


def test_who_is_level_has_the_same_factor():
    """Accounts that are level are one list of users, by their parts: ann has used all of vision, which has
    one user, as much as 1 of 1; bob and cem half of speech each, as much as 2 x 1/2: all three are level."""
    found = books({("vision", "ann"): 80, ("speech", "bob"): 40, ("speech", "cem"): 40, ("chess", "eva"): 81})
    assert factors(found, {}) == {"ann": PPM, "bob": PPM, "cem": PPM, "eva": 250_000}


def test_usage_is_counted_between_passes_and_decays_at_calculations():
    """Two GPUs from 0 to 90 s, one from then: at 120 s, with a half-life of a minute and one calculation a
    minute, 120 GPU-s after the first, 60 + 60 + 30 after the second."""
    formula = Formula(0, 0, 0, 0, 0, 0, MINUTE_MS, 0, minute_decay(1), MINUTE_MS)
    found = books({("vision", "ann"): 0})
    found.formula = formula
    (ann,) = found.usage.values()
    ann.gpus = 2
    assert found.advance(90_000, formula)
    assert (ann.gpu_ms, ann.accrued_gpu_ms) == (120_000, 60_000)
    ann.gpus = 1
    assert found.advance(120_000, formula)
    assert (ann.gpu_ms, ann.accrued_gpu_ms, found.calculated_ms) == (150_000, 0, 120_000)
    assert Books.open(found.memory(), 0, Rules.of(SPACE.defaults)) == found


def test_who_has_used_less_goes_first():
    """Ann's A and bob's B hold 3 and 1 GPUs until 300, when 900 and 300 GPU-s are calculated; of C, ann's,
    and D, bob's, which both need the node, D goes first."""
    table = """
        job submit_s duration_s gpus user
        A   0        310        3    ann
        B   0        310        1    bob
        C   10       50         4    ann
        D   20       50         4    bob
        """
    started = [
        order(run(jobs(table), "slurm", values))
        for values in ({**NO_FILL, "PriorityWeightFairshare": 1000}, NO_FILL)
    ]
    assert started == [["A", "B", "D", "C"], ["A", "B", "C", "D"]]


def test_run_times_are_cut_by_limits_under_every_policy():
    facts = [JobFacts("a", 0, 1, limit_ms=500), JobFacts("b", 0, 1), JobFacts("c", 0, 1, limit_ms=5000)]
    assert list(Workload(facts, [1000, 1000, 1000]).duration_ms) == [500, 1000, 1000]
