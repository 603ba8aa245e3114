"""What a job could be promised, worked out by hand (minutes; a promise needs five of slack)."""

from __future__ import annotations

from deadlines import CURVES, MINUTE_MS, jobs
from trimtab.cluster import Cluster
from trimtab.curve import Curve, Share
from trimtab.job import BEST_EFFORT, JobFacts, Service
from trimtab.policies.admission import Answer
from trimtab.policies.catalog import find_policy
from trimtab.simulate.run import World
from trimtab.simulate.workload import Workload
from trimtab.studies.admission import Wish, ask

NODE = Cluster.pool(1, 4)


def answer(
    table: str, at: int, gpus: int, run: int, deadline: int | None = None, curve: Curve | None = None
) -> Answer:
    """Return what a job of so many GPUs and minutes could be promised beside the jobs of a table."""
    before = jobs(table)
    service = BEST_EFFORT if deadline is None else Service("strict", (deadline * MINUTE_MS,))
    facts = JobFacts("wish", at * MINUTE_MS, gpus, service=service, curve=curve)
    workload = Workload([*before.facts, facts], [*before.duration_ms, run * MINUTE_MS])
    knobs = find_policy("sensascale-plus").space.defaults
    wish = Wish(gpus, run * MINUTE_MS)
    return ask(workload, NODE, "sensascale-plus", knobs, World(restart_cost_s=0.0), wish).answer


def minutes(time: int) -> int:
    return time * MINUTE_MS


BUSY = """
    A 0 100 4 - 120
    B 1  60 4 - 220
"""


def test_who_is_promised_comes_first():
    """A runs until 100; B is promised 220 and planned for 100 .. 160; then it is the newcomer's turn, until
    220, and with the slack 225 can be promised. B's GPUs are all there are, so fewer do not help."""
    assert answer(BUSY, 10, 4, 60) == Answer(None, minutes(160), minutes(225))
    assert answer(BUSY, 10, 4, 60, 225).promise_ms == minutes(225)
    refused = answer(BUSY, 10, 4, 60, 224)
    assert refused == Answer(None, minutes(160), minutes(225), start_by_ms=minutes(159))


def test_who_is_not_promised_does_not_count():
    """B is refused 163 (it would need 165), so the newcomer is planned for 100 .. 160 in its place."""
    assert answer(BUSY.replace("220", "163"), 10, 4, 60).deadline_ms == minutes(165)


def test_who_comes_first_is_answered_first():
    """B comes at the same instant as the newcomer and is still to be promised its deadline."""
    assert answer(BUSY.replace("B 1 ", "B 10 "), 10, 4, 60).start_ms == minutes(160)


def test_a_gap_before_a_promise_is_found():
    """Two GPUs are free until A ends at 100, when B takes all four: 90 minutes fit before it, 91 do not."""
    table = BUSY.replace("A 0 100 4", "A 0 100 2")
    assert answer(table, 10, 2, 90) == Answer(None, minutes(10), minutes(105))
    assert answer(table, 10, 2, 91).start_ms == minutes(160)


def test_fewer_gpus_start_sooner():
    """A holds two GPUs until 100. Four for 30 end at 130; two would be free now, and end at 10 + 60 = 70;
    three would wait for A as four do."""
    table = "A 0 100 2 - 120"
    assert answer(table, 10, 4, 30).deadline_ms == minutes(135)
    assert answer(table, 10, 4, 30, 75).gpus == 2
    assert answer(table, 10, 4, 30, 74).gpus is None


def test_more_cores_end_sooner():
    """120 minutes at the six cores that come with two GPUs; by 100 they must be done at 1.2 or faster:
    resnet18 runs at 1.15 with seven cores, at 1.30 with eight."""
    found = answer("", 0, 2, 120, 105, CURVES["resnet18"])
    assert found.share == Share(8, 128_000)
    assert found.start_by_ms == minutes(-20)
    assert answer("", 0, 2, 120, 125, CURVES["resnet18"]).share is None
    assert answer("", 0, 2, 120, 60, CURVES["resnet18"]).share is None  # 1.75 with all twelve is not enough


def test_more_memory_ends_sooner():
    """A model that cores do not help: with its part of memory it runs at 1, with twice that at 1.5."""
    hungry = Curve((3,), (21_333, 128_000), ((1_000_000,), (1_500_000,)))
    assert answer("", 0, 2, 120, 105, hungry).share == Share(6, 256_000)


def test_a_gang_over_several_nodes_is_offered_no_share():
    """Of CPU and memory, jobs over several nodes have their part."""
    wide = JobFacts("wish", 0, 8, service=Service("strict", (minutes(60),)), curve=CURVES["resnet18"])
    knobs = find_policy("sensascale-plus").space.defaults
    workload, wish = Workload([wide], [minutes(60)]), Wish(8, minutes(60))
    found = ask(workload, Cluster.pool(2, 4), "sensascale-plus", knobs, World(restart_cost_s=0.0), wish)
    assert found.answer == Answer(None, 0, minutes(65), start_by_ms=minutes(-5))
