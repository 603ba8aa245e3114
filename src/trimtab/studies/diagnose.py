"""Why was an hour bad? The oracle stands in for one part of a forecasting line at a time.

At an hour's state, settings are tried on the line's own futures, on the same with the true arrivals, with the
true remaining times, with both, and on the true future as far as the oracle looks. The settings are the same
everywhere, so that what one setting truly costs more than another is due to what it was chosen on. What was
lost in an hour, the true cost of the setting that ran less that of the best one known, falls into parts:

    lost = application + search + forecast + horizon

`application`: guardrails kept another setting running than the line found best. `search`: the line did not
find what a far larger search of its own futures finds. `forecast`: that is not what the truth would have
chosen over the same span; `arrivals` and `remaining` say how much one of the two alone would have mended, and
need not add up. `horizon`: what lies beyond the span of the line's futures.

The simulator is checked beside it: what it says of the setting that ran, over the hour up to the next round,
against what the cluster then did.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.control.advisor import BACKGROUND, Futures
from trimtab.control.guardrails import Tenure
from trimtab.control.journal import Recorded
from trimtab.control.rounds import Round
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.forecast.backtest import FULL
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.search.futures import Future, situation_of
from trimtab.search.generation import Generation
from trimtab.search.scene import Scene
from trimtab.search.tuner import search
from trimtab.simulate.engines import Simulation
from trimtab.simulate.state import NONE_MS, Snapshot
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.studies.evaluate import new_cluster, stage_of, start_knobs, tune_week, walk
from trimtab.studies.futures import true_future
from trimtab.studies.lines import FROM_WEEK, Forecasted, Progress, Stage, choosing
from trimtab.studies.replay import Ended, Follower
from trimtab.studies.request import Request
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

PARTS = ("application", "search", "forecast", "horizon")
FORECASTING = ("trimtab-plus", "trimtab")

_WIDER = 4  # times a round's budget are spent on searching the line's own futures

_Ranked = tuple[float, int, "_Case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour, taken apart; times in seconds a job, of the objective.

    Attributes:
        lost_s: True cost of the setting that ran less that of the best one known.
        gain: The ratio of the two, as gains are.
        parts: Of `PARTS`, what each lost; they add up to `lost_s`, and one below 0 made good for another.
        arrivals_s, remaining_s: What true arrivals, or true remaining times, alone would have gained.
        simulated_s, realised_s: Mean waiting up to the next round, as simulated and as it came; None at the
            last round.
        settings: How many settings were compared.
    """

    time_s: float
    lost_s: float
    gain: float
    parts: Mapping[str, float]
    arrivals_s: float
    remaining_s: float
    simulated_s: float | None
    realised_s: float | None
    settings: int

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: getattr(self, name) for name in Hour.__slots__}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The worst hours of a line, in the order of time; `rounds` is how many were looked at."""

    line: str
    objective: str
    rounds: int
    hours: tuple[Hour, ...]

    def sums(self) -> dict[str, float]:
        """Return what was lost in all of these hours, and what of it each part lost."""
        found = {name: sum(hour.parts[name] for hour in self.hours) for name in PARTS}
        return {"lost_s": sum(hour.lost_s for hour in self.hours), **found}

    def jsonable(self) -> dict[str, Any]:
        """Return the object that `diagnose --format json` prints."""
        return {
            "line": self.line,
            "objective": self.objective,
            "rounds": self.rounds,
            "hours": [hour.jsonable() for hour in self.hours],
            "sums": self.sums(),
        }


def diagnose(
    request: Request,
    recorded: Recorded,
    trace: Trace,
    trials: Trials,
    hours: int,
    line: str | None = None,
    progress: Progress = lambda text, share: None,
) -> Diagnosis:
    """Run a forecasting line again as far as the journal reaches, and take its worst hours apart.

    Args:
        hours: How many, at most.
        line: Which line; None for `trimtab-plus` where the journal has it, else `trimtab`.

    Raises:
        ConfigError: If the journal has no such line, or `hours` is below 1.
        InputError: If the trace is another one, or the line does not come out as it was written down.
    """
    if hours < 1:
        raise ConfigError(f"hours = {hours}: it must be at least 1; nothing was run.")
    line = _line(recorded, line)
    request.check(trace)
    follower = Follower(recorded.of(line))
    asked = request.window, request.cluster, request.policy, request.base, request.world, request.plan
    stage = stage_of(trace, *asked, trials, progress, follower)
    week = tune_week(stage) if line in FROM_WEEK else None
    chooser = choosing(stage, line, week)
    assert isinstance(chooser, Forecasted)
    watched = _Watched(stage, chooser, hours)
    start = start_knobs(stage, line, week)
    try:
        stage.note(
            {"kind": "start", "line": line, "knobs": start.jsonable(), "notes": [week.note] if week else []}
        )
        walk(stage, line, watched, new_cluster(stage, start))
    except Ended:
        if follower.difference:
            raise InputError(
                f"not as in the journal: {follower.difference.text()}; nothing is told."
            ) from None
    cases = sorted((case for _, _, case in watched.worst), key=lambda case: case.round.time_s)
    found = []
    for place, case in enumerate(cases):
        progress("diagnosing", place / len(cases))
        found.append(_taken_apart(stage, case))
    return Diagnosis(line, request.plan.tuning.objective.name, watched.rounds, tuple(found))


def _line(recorded: Recorded, line: str | None) -> str:
    rounds = {record["line"] for record in recorded.records if record["kind"] == "round"}
    known = [one for one in FORECASTING if one in rounds]
    if not known:
        raise ConfigError("the journal has no round of a forecasting line, there is nothing to diagnose.")
    if line is not None and line not in known:
        raise UnknownName("forecasting line of this journal", line, known)
    return line or known[0]


# ---- the hours -----------------------------------------------------------------------------------


@dataclass(eq=False)
class _Case:
    """An hour to be taken apart: the round, its futures and what the truth has in store.

    Attributes:
        near: The truth, over the span of the line's futures.
        truth: The situation that settings are truly judged on.
        tried: The settings that a search of it tried, best first.
        generation: Makes situations of futures.
        simulated_s, realised_s: As in `Hour`.
    """

    round: Round
    scene: Scene
    own: Sequence[Future]
    near: Future
    truth: Situation
    tried: Sequence[Knobs]
    generation: Generation
    simulated_s: float | None = None
    realised_s: float | None = None


@dataclass
class _Watched:
    """Lets a line choose, finds what the truth would have chosen, and keeps the hours that lost the most."""

    stage: Stage
    chooser: Forecasted
    most: int
    worst: list[_Ranked] = field(default_factory=list)
    rounds: int = 0
    latest: _Case | None = None

    @property
    def instants(self) -> Sequence[int]:
        """When the line wants to be asked."""
        return self.chooser.instants

    def choose(self, engine: Simulation, now_ms: int, tenure: Tenure) -> Round:
        """Return the line's own round; those between the hours are not taken apart."""
        if self.latest is not None:
            before = self.latest.scene.snapshot
            self.latest.realised_s = _realised_s(engine, before, self.stage, now_ms)
            self.latest = None
        one = self.chooser.choose(engine, now_ms, tenure)
        if one.search != BACKGROUND:
            self.latest = self._looked_at(one, self.chooser.scene(engine, now_ms))
            self.rounds += 1
        return one

    def _looked_at(self, one: Round, scene: Scene) -> _Case | None:
        """Return the hour if it is among the worst so far."""
        stage, plan, after = self.stage, self.stage.plan, one.knobs_after
        truth = self._situation(scene, plan.arrivals_ms, plan.run_on_ms)
        found = stage.search(truth, after, ["diagnose", self.rounds], [one.best])
        lost_s = found.costs[after] - found.costs[found.best]
        if not lost_s > 0 or (len(self.worst) == self.most and lost_s <= self.worst[0][0]):
            return None
        generation = self.chooser.generation
        most = len(next(iter(one.record["measured"].values())))
        case = _Case(
            round=one,
            scene=scene,
            own=generation.futures(scene, most),
            near=true_future(scene.snapshot, stage.workload, generation.how.arrivals_ms),
            truth=truth,
            tried=found.leaders(found.simulated),
            generation=generation,
            simulated_s=self._simulated_s(scene, after),
        )
        heapq.heappush(self.worst, (lost_s, -self.rounds, case))
        if len(self.worst) > self.most:
            heapq.heappop(self.worst)
        return case

    def _simulated_s(self, scene: Scene, knobs: Knobs) -> float:
        """Return the mean waiting up to the next round, as a trial on the truth has it."""
        place = bisect.bisect(self.instants, scene.now_ms)
        next_ms = self.instants[place] if place < len(self.instants) else self.stage.end_ms
        situation = self._situation(scene, next_ms - scene.now_ms, next_ms - scene.now_ms)
        return self.stage.trials.measure(situation, [knobs], find_objective("wait"))[0].cost

    def _situation(self, scene: Scene, arrivals_ms: int, run_on_ms: int) -> Situation:
        future = true_future(scene.snapshot, self.stage.workload, arrivals_ms)
        return situation_of(scene.snapshot, future, scene.cluster, scene.policy, scene.environment, run_on_ms)


def _realised_s(engine: Simulation, before: Snapshot, stage: Stage, now_ms: int) -> float:
    """Return the mean waiting of the jobs there since an earlier state: time spent less work done."""
    truth, outcomes, start_ms = stage.workload, engine.outcomes, before.now_ms
    done_before = {job.id: job.done for job in before.jobs}
    done_now = {job.id: job.done for job in engine.snapshot().jobs}
    total_ms = jobs = 0
    new = range(before.arrived, len(truth))
    arrived = itertools.takewhile(lambda job: truth.facts[job].submit_ms < now_ms, new)
    for job in itertools.chain(done_before, arrived):
        if outcomes.rejected[job]:
            continue
        finish_ms = int(outcomes.finish_ms[job])
        over = finish_ms != NONE_MS
        end_ms = finish_ms if over else now_ms
        done = truth.duration_ms[job] * FULL_SPEED_PPM if over else done_now[job]
        run_ms = (done - done_before.get(job, 0)) // FULL_SPEED_PPM
        total_ms += end_ms - max(start_ms, truth.facts[job].submit_ms) - run_ms
        jobs += 1
    return total_ms / 1000 / max(jobs, 1)


# ---- one hour ------------------------------------------------------------------------------------


def _taken_apart(stage: Stage, case: _Case) -> Hour:
    one, near, objective = case.round, case.near, stage.plan.tuning.objective
    own = _futures(stage, case, case.own)
    wide = search(
        own.costs,
        stage.space,
        one.knobs_after,
        replace(stage.plan.tuning, budget=_WIDER * stage.plan.tuning.budget),
        Seeds(stage.world.seed),
        [one.best, *case.tried],
    )
    pool = list(dict.fromkeys([one.knobs_after, one.best, *case.tried, *wide.costs]))
    true_costs = dict(zip(pool, _futures_of(stage, [case.truth]).costs(pool), strict=True))

    def truly(futures: Futures) -> float:
        """Return the true cost of the setting that looks best on some futures."""
        costs = dict(zip(pool, futures.costs(pool), strict=True))
        return true_costs[min(pool, key=costs.__getitem__)]

    arriving = [replace(future, coming=near.coming, coming_ms=near.coming_ms) for future in case.own]
    lasting = [replace(future, active_ms=near.active_ms) for future in case.own]
    ran, wanted, least = true_costs[one.knobs_after], true_costs[one.best], min(true_costs.values())
    found, foreseen = truly(own), truly(_futures(stage, case, [near]))
    losses = (ran - wanted, wanted - found, found - foreseen, foreseen - least)
    return Hour(
        time_s=one.time_s,
        lost_s=ran - least,
        gain=objective.gain(ran, least),
        parts=dict(zip(PARTS, losses, strict=True)),
        arrivals_s=found - truly(_futures(stage, case, arriving)),
        remaining_s=found - truly(_futures(stage, case, lasting)),
        simulated_s=case.simulated_s,
        realised_s=case.realised_s,
        settings=len(pool),
    )


def _futures(stage: Stage, case: _Case, futures: Sequence[Future]) -> Futures:
    return _futures_of(stage, [case.generation.situation(case.scene, one) for one in futures])


def _futures_of(stage: Stage, situations: Sequence[Situation]) -> Futures:
    return Futures(situations, stage.trials, stage.plan.tuning.objective, FULL, 0.0, 0.0)
