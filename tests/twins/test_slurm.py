"""The model of Slurm in the core against the one in Python, compared with `==`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from claims import claimed_cases
from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Remember
from trimtab.policies.slurm import Slurm
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.native import is_native
from trimtab.simulate.workload import Workload
from trimtab.site import Qos, Site, SlurmPartition
from twins.pairs import check_either_goes_on, check_equal, compiled, ending, examples, moments, state


@examples(300)
@given(claimed_cases(updates_max=3))
def test_the_twins_give_the_same_events(case):
    """Users, accounts, partitions, qualities of service, limits, preemption, all weights, hot updates."""
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(100)
@given(claimed_cases(updates_max=2), st.data())
def test_what_is_remembered_is_the_same_at_every_stop_and_goes_on_in_either_engine(case, data):
    until_ms = data.draw(moments(case))
    reference, core = case.engine(), compiled(case)
    assert ending(reference, until_ms) == ending(core, until_ms)
    check_either_goes_on(case, reference, core)


def crowded(jobs: int) -> Workload:
    """Return jobs of many users that come faster than they end, with limits of up to four times their run."""
    facts, durations = [], []
    for number in range(jobs):
        duration_ms = 60_000 * (5 + 37 * number % 240)
        limit_ms = None if number % 11 == 0 else duration_ms * (1 + number % 4) - (number % 7 == 0)
        facts.append(
            JobFacts(
                *(f"j{number}", 40_000 * number, (1, 1, 1, 2, 4, 8, 16)[number % 7]),
                *(("fast", "slow", None)[number % 3], f"u{number * number % 17}"),
                limit_ms=limit_ms,
                account=("vision", "speech", "chess")[number % 5 % 3],
                qos=("high", "low", None)[number % 7 % 3],
            )
        )
        durations.append(duration_ms)
    return Workload(facts, durations)


WEIGHTS = {
    f"PriorityWeight{name}": 1000 for name in ("Age", "Fairshare", "JobSize", "Partition", "QOS", "TRES")
}


@pytest.mark.parametrize("placement", ["consolidated", "relaxed", "count"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {**WEIGHTS, "PriorityDecayHalfLife": 60, "bf_max_job_test": 20},
        {**WEIGHTS, "PreemptType": "preempt/qos", "bf_max_job_user": 3, "bf_resolution": 600},
        {"PriorityWeightFairshare": 1, "PreemptType": "preempt/partition_prio", "PreemptExemptTime": 900},
    ],
)
def test_the_twins_agree_in_a_crowd(values, placement):
    """Many jobs on six nodes: long queues, many places kept, many users."""
    case = replace(
        some.plain_case(crowded(150), "slurm", values),
        cluster=Cluster.pool(6, 8),
        placement=placement,
        restart=some.RestartCost(30_000, 0),
        site=Site(
            {"fast": SlurmPartition(tier=2), "slow": SlurmPartition(factor=3)},
            {"high": Qos(9, ("low",)), "low": Qos(4)},
            {"vision": 2},
        ),
    )
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)
    assert state(reference.snapshot()) == state(core.snapshot())


def test_python_is_never_asked():
    assert is_native(find_policy("slurm"))


class Asked(Slurm):
    """The same as a policy of one's own: the core asks Python, and remembers for it."""

    name = "asked"


@examples(60)
@given(claimed_cases(updates_max=1))
def test_what_a_policy_of_ones_own_remembers_is_kept_by_both_engines(case):
    reference = case.engine(policy=Asked())
    core = FastEngine(*(case.workload, case.cluster, Asked(), case.knobs, case.environment), timeline=True)
    for time_ms, knobs in case.updates:
        core.update(time_ms, knobs)
    assert ending(reference) == ending(core)
    check_equal(reference, core)
    assert state(reference.snapshot()) == state(core.snapshot())


@pytest.mark.parametrize("odd", [1.5, True, 1 << 63, None])
def test_what_cannot_be_remembered_is_refused_by_both_engines(odd):
    class Odd(Slurm):
        name = "odd"

        def decide(self, view, knobs):
            return [Remember((1, odd))]

        def next_review_ms(self, view, knobs):
            return None

    case = some.plain_case(Workload([JobFacts("a", 0, 1)], [1000]), "slurm", {})
    for engine in (Engine, FastEngine):
        made = engine(case.workload, case.cluster, Odd(), case.knobs, case.environment)
        assert "asks to remember" in (ending(made) or "")
