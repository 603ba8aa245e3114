"""Jobs with users, accounts, partitions, qualities of service and time limits, as Hypothesis draws them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import strategies as some
from trimtab.policies.catalog import find_policy
from trimtab.simulate.workload import Workload
from trimtab.site import Qos, Site, SlurmPartition

_SITES = (
    Site(),
    Site(
        {"fast": SlurmPartition(tier=3), "slow": SlurmPartition(0, 7, 90_000)},
        {"high": Qos(100, ("low", "")), "low": Qos(30), "odd": Qos(1, ("high",))},
        {"vision": 3, "speech": 1},
    ),
    Site({"fast": SlurmPartition(factor=2)}, {"high": Qos(2, ("low",))}, {"speech": 1000}),
)
_LIMITS_MS = (None, None, 1, 20_000, 60_000, 61_003, 600_000, 7_200_000)
# Weights that meet, and preemption: knobs that are drawn one by one hardly ever do.
_WEIGHTS = ("Age", "Fairshare", "JobSize", "Partition", "QOS", "TRES")


@st.composite
def claimed_cases(draw: st.DrawFn, **how: Any) -> some.Case:
    """Return a simulation of Slurm, see `strategies.cases`, of jobs that somebody wants."""
    case = draw(some.cases(["slurm"], **how))
    facts = []
    for one in case.workload.facts:
        vc = draw(st.sampled_from(["fast", "slow", None])) if case.cluster.pooled else one.vc
        facts.append(
            one._replace(
                vc=vc,
                user=draw(st.sampled_from(["u0", "u1", "u2", None])),
                account=draw(st.sampled_from(["vision", "speech", None])),
                qos=draw(st.sampled_from(["high", "low", "odd", None])),
                limit_ms=draw(st.sampled_from(_LIMITS_MS)),
            )
        )
    workload = Workload(facts, case.workload.duration_ms)
    space = find_policy("slurm").space
    always = {f"PriorityWeight{name}": st.sampled_from([0, 1, 1000, 10**9]) for name in _WEIGHTS}
    always["PreemptType"] = some.values(space.by_name["PreemptType"])
    sometimes = {knob.name: some.values(knob) for knob in space.knobs if knob.name not in always}
    busy = st.fixed_dictionaries(always, optional=sometimes).map(space.project)
    knobs = st.one_of(st.just(case.knobs), busy)
    return replace(
        case,
        workload=workload,
        knobs=draw(knobs),
        updates=tuple((at_ms, draw(st.one_of(st.just(told), busy))) for at_ms, told in case.updates),
        site=draw(st.sampled_from(_SITES)),
        estimates_ms=tuple(max(1, run_ms) for run_ms in workload.duration_ms),
    )
