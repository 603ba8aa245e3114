"""Jobs simulated side by side as one: the scheduler sees one member, and all of them are counted."""

from __future__ import annotations

import pytest

from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.objective import Totals, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload

HOUR_MS = 3_600_000


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_a_threshold_is_met_by_each_member_not_by_their_sum(engine: str) -> None:
    """Four jobs of one GPU as a gang of 4, threshold 1 GPU-hour: demoted after an hour, not after 15 min.

    It runs 2 h on all 4 GPUs. A gang of 4 arrives after half an hour and needs 10 min: it waits until the
    members have had an hour each, runs from 60 to 70 min, and they go on for their second hour after a
    restart of 60 s. Waiting: of the members 600 s and the restart each, of the other gang 1800 s.
    """
    four = JobFacts("four", 0, 4, members=4)
    other = JobFacts("other", HOUR_MS // 2, 4)
    workload = Workload([four, other], [2 * HOUR_MS, HOUR_MS // 6])
    environment = Environment(restart_ms=flat_restart(60_000))
    one = Situation.empty(workload, Cluster.pool(1, 4), "tiresias", environment)
    knobs = find_policy("tiresias").space.defaults  # one threshold, 3600 GPU-s
    found = LocalTrials(engine).measure(one, [knobs], find_objective("wait"))[0]
    assert found.cost == (4 * 660 + 1800) / 5
    assert found.queue_s == (4 * 600 + 1800) / 5
    assert (found.restart_s, found.slowdown_s) == (4 * 60 / 5, 0)
    assert found.preemptions == 4 / 5
    assert found.run_s == (4 * 7200 + 600) / 5
    stays = one.stays(knobs)
    assert stays is not None
    assert stays.members.tolist() == [4, 1]
    assert stays.totals == Totals(5, 29_400_000, 4_200_000, 240_000, 4)


def test_percentiles_count_members() -> None:
    facts = [JobFacts("many", 0, 8, members=8), JobFacts("one", 0, 1)]
    workload = Workload(facts, [1000, 100_000])
    one = Situation.empty(workload, Cluster.pool(2, 8), "fifo", Environment())
    found = LocalTrials().measure(one, [find_policy("fifo").space.defaults], find_objective("jct_p99"))[0]
    assert found.cost == pytest.approx(1 + 0.92 * 99)  # linear between the 8th and 9th of 9, at 0.99 x 8
