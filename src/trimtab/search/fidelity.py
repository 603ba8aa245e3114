"""How coarsely may a search simulate? Merged jobs where they rank settings as all jobs do (AutoSched, §5).

Each situation is calibrated anew: a few probe settings are measured on all jobs and on merged ones, and the
coarsest merging is taken that orders the probes alike and whose best probe is as good as the best. What a
search on merged jobs finds is a proposal; it is accepted by what it gives on all jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trimtab.errors import TrialsLost
from trimtab.forecast.aggregate import LADDER, Coarseness, aggregate
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.search.sampler import design
from trimtab.search.space import SearchSpace
from trimtab.search.tuner import Search, attempt
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.world import Seeds

PROBES = 8
_LEADING_PROBES = 3
FINALISTS = 4
RANK_MIN = 0.95
REGRET_MAX = 0.005


class Bench:
    """One situation on which each setting is simulated once, however often it is asked for.

    Attributes:
        situation: What settings are tried on.
        known: What they gave.
    """

    def __init__(self, situation: Situation, measure: Callable[[Sequence[Knobs]], list[Measured]]) -> None:
        self.situation = situation
        self.known: dict[Knobs, Measured] = {}
        self._measure = measure

    def measure(self, candidates: Sequence[Knobs]) -> list[Measured]:
        """Return what each candidate gives; whatever a simulation raises passes through."""
        fresh = [knobs for knobs in dict.fromkeys(candidates) if knobs not in self.known]
        if fresh:
            self.known.update(zip(fresh, self._measure(fresh), strict=True))
        return [self.known[knobs] for knobs in candidates]

    def costs(self, candidates: Sequence[Knobs]) -> list[float]:
        """Return each candidate's cost, NaN where its simulation raises.

        Raises:
            TrialsLost: If nobody is left to simulate.
        """
        try:
            return [one.cost for one in self.measure(candidates)]
        except TrialsLost:
            raise
        except Exception:
            return [math.nan] if len(candidates) == 1 else [self.costs([one])[0] for one in candidates]


@dataclass(frozen=True, slots=True)
class Rung:
    """How merged jobs compare with all jobs, on the probes.

    Attributes:
        how: How jobs were merged.
        bench: The situation with merged jobs.
        rank: Spearman's rank correlation of the probes' costs; NaN where all cost the same, or one has none.
        regret: How much better, as a gain less 1, the best probe is than the one that merged jobs call best.
    """

    how: Coarseness
    bench: Bench
    rank: float
    regret: float

    @property
    def jobs(self) -> int:
        """How many jobs are left, active ones included."""
        return len(self.bench.situation.workload)

    @property
    def faithful(self) -> bool:
        return self.rank >= RANK_MIN and self.regret <= REGRET_MAX

    def jsonable(self) -> dict[str, Any]:
        """Return plain values; what is no number becomes null."""
        rank, regret = (value if math.isfinite(value) else None for value in (self.rank, self.regret))
        return {**asdict(self.how), "jobs": self.jobs, "rank_correlation": rank, "regret": regret}


@dataclass(frozen=True)
class Fidelity:
    """What a search is to simulate, and why.

    Attributes:
        full: All jobs.
        rungs: What was compared with them, from coarse to fine; the last one is taken if it is faithful.
        reason: Why this fidelity, for people.
    """

    full: Bench
    rungs: tuple[Rung, ...]
    reason: str

    @property
    def merged(self) -> bool:
        return bool(self.rungs) and self.rungs[-1].faithful

    @property
    def bench(self) -> Bench:
        """What to search on."""
        return self.rungs[-1].bench if self.merged else self.full

    @property
    def simulations(self) -> int:
        """Simulations on merged jobs so far."""
        return sum(len(rung.bench.known) for rung in self.rungs)

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for the journal."""
        return {
            "merged": self.merged,
            "reason": self.reason,
            "jobs": [len(one.situation.workload) for one in (self.full, self.bench)],
            "rungs": [rung.jsonable() for rung in self.rungs],
        }


def probes_of(space: SearchSpace, running: Knobs, leaders: Sequence[Knobs], seeds: Seeds) -> list[Knobs]:
    """Return the settings to calibrate by: the running one, those best so far, and points of the design."""
    points = (space.knobs(point) for point in design(space, PROBES, seeds, running))
    return list(dict.fromkeys([running, *leaders[:_LEADING_PROBES], *points]))[:PROBES]


def coarsened(situation: Situation, how: Coarseness) -> Situation:
    """Return the same situation with its arrivals merged; active jobs are as they were.

    A group is no wider than half of the narrowest node: one as wide as a node would wait for a free node, as
    none of its members does.
    """
    whole, active = situation.workload, len(situation.snapshot.jobs)
    widest = min(vc.gpus_per_node for vc in situation.cluster.vcs) // 2
    coming, run_ms = aggregate(whole.facts[active:], whole.duration_ms[active:], how, widest)
    workload = Workload([*whole.facts[:active], *coming], [*whole.duration_ms[:active], *run_ms])
    environment = situation.environment
    if isinstance(environment.estimator, OracleEstimator):
        environment = replace(environment, estimator=environment.estimator.supposing(workload))
    return replace(situation, workload=workload, environment=environment)


def calibrate(
    full: Bench, trials: Trials, objective: Objective, running: Knobs, probes: Sequence[Knobs], settings: int
) -> Fidelity:
    """Choose the coarsest merging that is faithful on the probes and saves work.

    It saves work if probes, search and finalists together simulate fewer jobs than the search alone would
    on all of them: counted, not timed, so that the choice is the same on every machine. Where that cannot be,
    nothing but the running setting is simulated here.

    Args:
        full: All jobs.
        trials: Tries settings on merged ones.
        objective: What is to be made small.
        running: The running setting.
        probes: The settings to compare by, the running one among them.
        settings: How many settings the search will try at most.
    """
    if objective.individual:
        return Fidelity(full, (), "all jobs: the objective asks how each of them fares")
    if full.costs([running])[0] == 0:
        return Fidelity(full, (), "all jobs: the running setting costs nothing")
    before, rungs = len(full.situation.workload), list[Rung]()
    for how in LADDER:
        situation = coarsened(full.situation, how)
        after = len(situation.workload)
        compared = sum(rung.jobs for rung in rungs) + before
        if len(probes) * compared + settings * after + FINALISTS * before >= settings * before:
            continue
        bench = Bench(situation, partial(trials.measure, situation, objective=objective))
        rungs.append(_compared(how, full, bench, objective, probes))
        if rungs[-1].faithful:
            reason = f"merged: {after} of {before} jobs rank {len(probes)} settings as all jobs do"
            return Fidelity(full, tuple(rungs), reason)
    reason = "no merging ranks settings as they do" if rungs else "merging would save nothing"
    return Fidelity(full, tuple(rungs), f"all jobs: {reason}")


def _compared(
    how: Coarseness, full: Bench, bench: Bench, objective: Objective, probes: Sequence[Knobs]
) -> Rung:
    true, merged = full.costs(probes), bench.costs(probes)
    chosen, best = true[int(np.argmin(merged))], min(true)
    return Rung(how, bench, rank_correlation(true, merged), objective.gain(chosen, best) - 1)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation, NaN where one side is constant or a value is NaN."""
    from scipy.stats import rankdata

    ranks = [rankdata(side) for side in (one, other)]
    if any(np.ptp(rank) == 0 or np.isnan(rank).any() for rank in ranks):
        return math.nan
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def accepted(found: Search, full: Bench) -> Search:
    """Return the search's finalists and all else that is known of all jobs, compared on all jobs.

    Simulated are the running setting and the few that did best, unless they were before.
    """
    final = Search(found.incumbent, found.objective)
    proposals = [(found.incumbent, "incumbent")]
    proposals += [(knobs, "finalist") for knobs in found.leaders(FINALISTS)]
    proposals += [(knobs, "probe") for knobs in full.known if knobs not in dict(proposals)]
    attempt(final, full.costs, proposals, len(proposals))
    final.stopped = "finalists compared"
    return final
