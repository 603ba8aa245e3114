"""What choosing settings hour by hour is worth: a fortnight under several lines, as rows of one table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from forecast import CASES as WINDOWS
from trimtab.cli.options import shuffled_ties, with_models
from trimtab.cli.tuning import repeats
from trimtab.cluster import Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import Trials
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import Plan
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from verdicts import Target, Verdict

HOUR_MS = 3_600_000
FIVE = ("fixed", "fixed-week", "selftune", "trimtab-plus", "oracle")
HORIZONS_H = (1, 24, 48)  # of true arrivals; candidates run on for twice as long


@dataclass(frozen=True)
class Case:
    """A trace, the window that is walked through, the nodes of 8 GPUs, and the scheduler that is tuned.

    Attributes:
        objective: What it is tuned for.
        speeds, models, estimates: As `simulate.run.World` has them.
    """

    name: str
    source: str
    window: str
    nodes: int
    policy: str = "tiresias"
    objective: str = "wait"
    speeds: str = "builtin"
    models: str = "column"
    estimates: str = "oracle"


CASES = (
    Case("philly-b", WINDOWS["philly-b"].source, WINDOWS["philly-b"].window, 64),
    Case("venus", WINDOWS["venus"].source, WINDOWS["venus"].window, 70),
    Case("pai", WINDOWS["pai"].source, WINDOWS["pai"].window, 70),
    Case("synthetic", "synthetic:philly?days=28&load=1.0", "14d..28d", 64),
)
EARLY = (Case("philly-c", WINDOWS["philly-b"].source, "2017-10-01..2017-10-06", 64),)
QUICK = (Case("one-day", "synthetic:philly?days=12&seed=3", "7d..8d", 40),)


@dataclass(frozen=True)
class Way:
    """A line, and how it is run.

    Attributes:
        arrivals_h: How far into the true future the oracle looks.
        guarded: Whether guardrails hold changes back.
        alone: Whether trimtab searches hourly only, and all jobs one by one.
        blind: Whether trimtab goes without its causal model.
        seconds: What its search may take an hour, however many settings that is; None for the budget.
    """

    line: str
    arrivals_h: int = 24
    guarded: bool = True
    alone: bool = False
    blind: bool = False
    seconds: float | None = None

    @property
    def name(self) -> str:
        horizon = f" of {self.arrivals_h} h" if self.line == "oracle" else ""
        model = " without the causal model" if self.blind else ""
        long = ", as many seconds" if self.seconds else ""
        return f"{self.line}{horizon}{model}{long}{'' if self.guarded else ' without guardrails'}"

    def plan(self, budget: int, objective: str) -> Plan:
        """Return the plan of an evaluation; without guardrails any gain is taken at once."""
        free = Guardrails(gain_min=1.0, dwell_ms=0)
        plan = Plan(
            tuning=Tuning(objective=find_objective(objective), budget=budget),
            rails=Guardrails(gain_min=1.0) if self.guarded else free,
            arrivals_ms=self.arrivals_h * HOUR_MS,
            run_on_ms=2 * self.arrivals_h * HOUR_MS,
            realised=self.line == "trimtab-plus",
        )
        if self.alone:
            plan = replace(plan, paper_background_ms=None, aggregate=False)
        if self.blind:
            plan = replace(plan, rules=replace(plan.rules, learning=False, budget_s=self.seconds))
        return plan if self.guarded else replace(plan, sure=0.0, return_ms=0)


FREE = Way("trimtab-plus", guarded=False)


@dataclass(frozen=True)
class Outcome:
    """What is kept of a line: decisions in seconds by stage, and what its changes promised at least."""

    wait_s: float
    jct_s: float
    fair_share: float  # of jobs with rho <= 1
    wall_s: float
    week_s: float
    switching: dict[str, float | None]
    decisions_s: dict[str, list[float]]
    lower_gains: list[float]
    simulations: float  # means of a main round in which there was something to gain
    search_s: float

    def __str__(self) -> str:
        return (
            f"wait {self.wait_s:,.0f} s, JCT {self.jct_s:,.0f} s, rho <= 1 {self.fair_share:.2%}; "
            f"{self.wall_s / 60:.1f} min"
        )

    @classmethod
    def of(cls, line: Line) -> Outcome:
        rounds = [one for one in line.rounds if one.search == "main"]
        staged = [one.record["seconds"] for one in rounds if "seconds" in one.record]
        busy = [one for one in rounds if one.trials > 1 and "seconds" in one.record]
        changes = [one.record for one in line.rounds if one.switched]
        return cls(
            wait_s=line.metrics["wait_s_mean"] or 0.0,
            jct_s=line.metrics["jct_s_mean"] or 0.0,
            fair_share=line.metrics["rho_le_1_share"] or 0.0,
            wall_s=line.seconds["wall"],
            week_s=line.seconds.get("fixed_week_search", 0.0),
            switching=line.switching,
            decisions_s={
                "whole": [one.search_s for one in rounds],
                **{stage: [one[stage] for one in staged] for stage in (staged[0] if staged else ())},
            },
            lower_gains=[record["gain_lower"] for record in changes if "gain_lower" in record],
            simulations=float(np.mean([one.trials for one in busy])) if busy else 0.0,
            search_s=float(np.mean([one.record["seconds"]["search"] for one in busy])) if busy else 0.0,
        )


@lru_cache(maxsize=1)
def _opened(source: str) -> Trace:
    return load(source)


@dataclass
class Runs:
    """Runs lines, each once: first in the source's order, then with the orders of `evaluate --seeds`."""

    trials: Trials
    budget: int
    seeds: int
    known: dict[tuple[Case, Way, int], Outcome] = field(default_factory=dict)

    def all(self, case: Case, way: Way) -> list[Outcome]:
        """Return a line's outcomes, one a run."""
        return [self.one(case, way, number) for number in range(self.seeds)]

    def one(self, case: Case, way: Way, number: int = 0) -> Outcome:
        """Return the outcome of one run."""
        if (case, way, number) not in self.known:
            print(f"{case.name}, {way.name}, run {number + 1}", file=sys.stderr, flush=True)
            self.known[case, way, number] = found = self._run(case, way, number)
            print(f"  {found}", file=sys.stderr, flush=True)
        return self.known[case, way, number]

    def _run(self, case: Case, way: Way, number: int) -> Outcome:
        order, seed = repeats(0, self.seeds, 0)[number]
        world = World(seed=seed, estimates=case.estimates, speeds=case.speeds, models=case.models)
        trace = with_models(_opened(case.source), world)
        found = evaluate(
            trace if order is None else shuffled_ties(trace, 0, order),
            case.window,
            Cluster.pool(case.nodes, 8),
            case.policy,
            find_policy(case.policy).space.defaults,
            world,
            way.plan(self.budget, case.objective),
            [way.line],
            self.trials,
        )
        return Outcome.of(found.lines[0])


# ---- what there is to gain -----------------------------------------------------------------------


def gains(runs: Runs, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Yield mean waits of the fixed lines and of oracles by horizon, and the oracles' gains."""
    for case in cases:
        fixed, week = (runs.one(case, Way(line)).wait_s for line in ("fixed", "fixed-week"))
        yield _wait(case, "fixed, one run", [fixed], None)
        yield _wait(case, "fixed-week, one run", [week], fixed)
        for hours in HORIZONS_H:
            oracle = runs.one(case, Way("oracle", hours)).wait_s
            yield _wait(case, f"oracle of {hours} h, one run", [oracle], fixed)
            what = f"oracle of {hours} h, times as good as fixed-week"
            yield Verdict.of([_over(week, oracle)], what=what, case=case.name, unit="x", note="no job waits")


def _wait(case: Case, who: str, waits_s: Sequence[float], fixed_s: float | None) -> Verdict:
    what = f"mean wait, {who}" if fixed_s is None else f"mean wait, {who}, baseline fixed"
    return Verdict.of(waits_s, what=what, case=case.name, unit="s", baseline=fixed_s)


def _over(one: float, other: float) -> float | None:
    return one / other if other else None


# ---- the causal model at equal cost --------------------------------------------------------------


def causal(runs: Runs, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Yield trimtab with its causal model and without it: as many simulations, and as many seconds."""
    for case in cases:
        way = Way("trimtab", alone=True)
        told = runs.all(case, way)
        blind = replace(way, blind=True)
        timed = replace(blind, seconds=float(np.mean([one.search_s for one in told])))
        for other in (way, blind, timed):
            yield from _priced(case, other.name, runs.all(case, other), None if other is way else told)


def _priced(
    case: Case, who: str, mine: Sequence[Outcome], told: Sequence[Outcome] | None
) -> Iterator[Verdict]:
    """Yield a line's mean waits, and what its searches took; the baseline is another line's mean."""
    for what, unit in (("wait_s", "s"), ("search_s", "s a search"), ("simulations", "a search")):
        name = f"mean {what.removesuffix('_s')}, {who}"
        baseline = float(np.mean([getattr(one, what) for one in told])) if told else None
        own = [getattr(one, what) for one in mine]
        yield Verdict.of(own, what=name, case=case.name, unit=unit, baseline=baseline)


# ---- end to end ----------------------------------------------------------------------------------


def end_to_end(runs: Runs, cases: Sequence[Case], lines: Sequence[str]) -> Iterator[Verdict]:
    """Yield the rows of each case; those that need a line which is not run are left out."""
    for case in cases:
        found = {line: runs.all(case, Way(line)) for line in lines}
        fixed_s = _mean_wait(found["fixed"]) if "fixed" in found else None
        for line, outcomes in found.items():
            yield _wait(case, line, _waits(outcomes), None if line == "fixed" else fixed_s)
        if set(FIVE) <= set(lines):
            yield _minutes(case, found)
        if "trimtab" in found:
            yield from _decisions(case, "trimtab", found["trimtab"], 30.0)
        if "trimtab-plus" in found:
            free = runs.all(case, FREE)
            yield _wait(case, "trimtab-plus without guardrails", _waits(free), fixed_s)
            yield from _compared(case, "trimtab-plus", found["trimtab-plus"], found, 0.25)
            yield from _compared(case, "trimtab-plus without guardrails", free, found, 0.4)
            yield from _decisions(case, "trimtab-plus", found["trimtab-plus"], 2.0)
            yield from _switching(case, found["trimtab-plus"])


def _waits(outcomes: Sequence[Outcome]) -> list[float]:
    return [one.wait_s for one in outcomes]


def _mean_wait(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean(_waits(outcomes)))


def _minutes(case: Case, found: dict[str, list[Outcome]]) -> Verdict:
    """Return the wall minutes of the five lines; the week before is searched once for all of them."""
    runs = zip(*(found[line] for line in FIVE), strict=True)
    seconds = [sum(one.wall_s for one in run) + max(one.week_s for one in run) for run in runs]
    return Verdict.of(
        [spent_s / 60 for spent_s in seconds],
        what="wall time of the five lines",
        case=case.name,
        unit="min",
        target=Target(high=5),
    )


def _compared(
    case: Case, who: str, mine: Sequence[Outcome], found: dict[str, list[Outcome]], gap: float
) -> Iterator[Verdict]:
    """Yield how many times as good a line is as others, run by run, and how much of the gap it closes."""
    for other, least in {"selftune": 1.1, "fixed": 1.5, "fixed-week": 1 / 1.01}.items():
        if other in found:
            ratios = [_over(one.wait_s, own.wait_s) for one, own in zip(found[other], mine, strict=True)]
            told: dict[str, Any] = {"what": f"{who}, times as good as {other}", "unit": "x"}
            yield Verdict.of(ratios, "no job waits", case=case.name, target=Target(low=least), **told)
    if "fixed-week" in found and "oracle" in found:
        yield _gap(case, who, mine, found, gap)


def _gap(
    case: Case, who: str, mine: Sequence[Outcome], found: dict[str, list[Outcome]], least: float
) -> Verdict:
    """Return the share of the gap between fixed-week and oracle; of mean waits, with the runs' own spread."""
    shares = [
        100 * (week.wait_s - own.wait_s) / (week.wait_s - best.wait_s)
        for own, week, best in zip(mine, found["fixed-week"], found["oracle"], strict=True)
        if week.wait_s > best.wait_s
    ]
    row = Verdict.of(
        shares,
        "no gap",
        what=f"{who}, gap fixed-week to oracle closed",
        case=case.name,
        unit="%",
        target=Target(low=100 * least),
    )
    own_s, week_s, best_s = map(_mean_wait, (mine, found["fixed-week"], found["oracle"]))
    if week_s <= best_s:
        return replace(row, measured=None, note="no gap")
    return replace(row, measured=100 * (week_s - own_s) / (week_s - best_s))


def _decisions(case: Case, who: str, outcomes: Sequence[Outcome], most_s: float) -> Iterator[Verdict]:
    """Yield the 95th percentile of a decision's wall seconds, and of its stages."""
    for stage in outcomes[0].decisions_s:
        values = [np.percentile(one.decisions_s[stage], 95).item() for one in outcomes]
        what = f"{who}, decision p95" if stage == "whole" else f"{who}, decision p95, its {stage}"
        target = Target(high=most_s) if stage == "whole" else None
        yield Verdict.of(values, what=what, case=case.name, unit="s", target=target)


def _switching(case: Case, outcomes: Sequence[Outcome]) -> Iterator[Verdict]:
    """Yield how sure changes were, what came true of them and how many were undone."""
    rows: dict[tuple[str, str], tuple[Target, list[float | None]]] = {
        ("changes whose gain is > 1 at its lower bound", "%"): (
            Target(low=100),
            [100 * float(np.mean(np.array(one.lower_gains) > 1)) for one in outcomes if one.lower_gains],
        ),
        ("realised over predicted gain", ""): (
            Target(0.7, 1.3),
            [one.switching["realised_over_predicted"] for one in outcomes],
        ),
        ("changes undone within 3 h", "%"): (
            Target(high=5),
            [100 * share for one in outcomes if (share := one.switching["flapping_share"]) is not None],
        ),
    }
    for (what, unit), (target, values) in rows.items():
        told = {"what": f"trimtab-plus, {what}", "unit": unit, "target": target}
        yield Verdict.of(values, "no change to judge", case=case.name, **told)
