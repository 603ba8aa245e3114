"""One search, for the window that starts at a given time, from the state the cluster would be in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trimtab.cluster import Cluster
from trimtab.control.guardrails import Apply, Tenure, Verdict, judge
from trimtab.errors import InputError
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search, search
from trimtab.simulate.engines import make_engine
from trimtab.simulate.run import World
from trimtab.simulate.trials import Trials
from trimtab.studies.futures import oracle_future
from trimtab.studies.lines import Plan
from trimtab.traces.trace import DAY_MS, Trace
from trimtab.world import Seeds

# How long before the asked time the simulation begins, so that the cluster is in its usual state by then.
WARM_UP_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class Tuned:
    """A search and what it means for the running scheduler."""

    search: Search
    verdict: Verdict
    pending: int
    running: int
    arrivals: int

    def jsonable(self) -> dict[str, Any]:
        """Return the object `tune --format json` prints."""
        applies = isinstance(self.verdict, Apply)
        best = self.search.best
        return {
            "trials": [trial.jsonable() for trial in self.search.trials],
            "stopped": self.search.stopped,
            "situation": {"pending": self.pending, "running": self.running, "arrivals": self.arrivals},
            "verdict": {
                "action": "apply" if applies else "keep",
                "reason": self.verdict.reason,
                "running": self.search.incumbent.jsonable(),
                "best": best.jsonable(),
                "gain": self.search.gain,
                "cost_running": self.search.costs[self.search.incumbent],
                "cost_best": self.search.costs[best],
            },
        }


def tune_at(
    trace: Trace,
    at_ms: int,
    cluster: Cluster,
    policy: str,
    running: Knobs,
    world: World,
    plan: Plan,
    trials: Trials,
) -> Tuned:
    """Search settings for the time from `at_ms` on, with the trace itself as the future.

    The cluster's state is what the week before leaves behind under the running settings.

    Raises:
        InputError: If at that time no job runs, waits or is about to arrive.
    """
    start_ms, end_ms = at_ms - WARM_UP_MS, at_ms + plan.arrivals_ms
    submit = trace.column("submit_ms")
    keep = (submit >= start_ms) & (submit < end_ms)
    if not keep.any():
        raise _nothing_there(trace, at_ms)
    jobs = replace(trace.select(keep), zero_ms=at_ms)
    workload = world.workload(jobs)
    environment = world.environment(workload)
    engine = make_engine(world.engine, workload, cluster, find_policy(policy), running, environment)
    engine.run(0)
    situation = oracle_future(engine, 0, workload, policy, environment, plan.arrivals_ms, plan.run_on_ms)
    if not situation.workload:
        raise _nothing_there(trace, at_ms)
    objective = plan.tuning.objective
    found = search(
        lambda knobs: [one.cost for one in trials.measure(situation, knobs, objective)],
        search_space(find_policy(policy), running, world.placement, cluster, bool(world.speed_table().pairs)),
        running,
        plan.tuning,
        Seeds(world.seed),
    )
    tenure = Tenure(plan.rails.dwell_ms)
    verdict = judge(running, tenure, found.best, found.gain, plan.rails, found.costs[running])
    states = [job.state for job in situation.snapshot.jobs]
    return Tuned(
        found,
        verdict,
        states.count(JobState.PENDING),
        states.count(JobState.RUNNING),
        len(situation.workload) - len(states),
    )


def _nothing_there(trace: Trace, at_ms: int) -> InputError:
    first, last = (trace.show(time_ms) for time_ms in trace.span_ms)
    return InputError(
        f"time {trace.show(at_ms)}: no job runs, waits or arrives then; the trace spans {first} .. {last}."
    )
