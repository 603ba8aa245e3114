"""The tuner: spends a budget of simulations on one situation, and keeps the fate of every proposal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.errors import ConfigError, TrialsLost
from trimtab.knobs import Knobs
from trimtab.objective import Objective
from trimtab.search.sampler import SURROGATE, Sampler, design, make_sampler
from trimtab.search.space import Point, SearchSpace
from trimtab.world import Seeds

# Spaces of fewer distinct settings than this are tried as a whole, whatever the sampler.
ENUMERATE_BELOW = 200

Costs = Callable[[Sequence[Knobs]], list[float]]

# A setting, why it is proposed, and the point it was projected from if a point was proposed.
Proposal = tuple[Knobs, str] | tuple[Knobs, str, Point]


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal and its fate.

    `simulated`; `thrashes`, where jobs were preempted without end and the cost is infinite; `failed`, where
    the simulation gave no number; `duplicate` of a setting whose cost was already known; `rejected` unseen,
    by what a model predicted; or `explored`, simulated in spite of that. `reason` says why where that is not
    plain, `predicted` is the gain a model gave (NaN if none was asked), `point` what was proposed before it
    was projected to a legal setting (None if the setting itself was).
    """

    knobs: Knobs
    fate: str
    purpose: str
    cost: float
    gain: float
    reason: str = ""
    predicted: float = math.nan
    point: Point | None = None

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON; a cost or gain that is no number becomes null."""
        cost, gain = (value if math.isfinite(value) else None for value in (self.cost, self.gain))
        plain: dict[str, Any] = {"knobs": self.knobs.jsonable(), "fate": self.fate, "purpose": self.purpose}
        plain |= {"cost": cost, "gain": gain}
        if self.reason:
            plain["reason"] = self.reason
        if math.isfinite(self.predicted):
            plain["predicted"] = self.predicted
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a search is done.

    Attributes:
        sampler: A name of `search.sampler.SAMPLERS`.
        budget: Simulations, the incumbent's included.
        objective: What is to be made small.
    """

    objective: Objective
    sampler: str = "bluefin"
    budget: int = 80


@dataclass
class Search:
    """What a search found: every trial, and the best setting with its gain over the incumbent.

    `failures` says why a setting has no cost: what its simulation raised.
    """

    incumbent: Knobs
    objective: Objective
    costs: dict[Knobs, float] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    failures: dict[Knobs, str] = field(default_factory=dict)
    stopped: str = ""

    @property
    def best(self) -> Knobs:
        """The setting of least cost; ties go to the incumbent, then to the one tried first.

        It is the incumbent, too, if that has no cost to compare with.
        """
        best = self.incumbent
        for knobs, cost in self.costs.items():
            if cost < self.costs[best]:
                best = knobs
        return best

    @property
    def gain(self) -> float:
        """The best setting's gain; 1 if it is the incumbent."""
        return 1.0 if self.best == self.incumbent else self.gain_of(self.best)

    @property
    def idle(self) -> bool:
        """Whether the incumbent costs nothing, so that no setting can be better."""
        return self.costs[self.incumbent] == 0

    @property
    def simulated(self) -> int:
        return len(self.costs)

    def gain_of(self, knobs: Knobs) -> float:
        return self.objective.gain(self.costs[self.incumbent], self.costs[knobs])

    def gains(self) -> dict[Knobs, float]:
        """Return the gains of the settings that have a finite cost."""
        return {knobs: self.gain_of(knobs) for knobs, cost in self.costs.items() if math.isfinite(cost)}

    def leaders(self, count: int) -> list[Knobs]:
        """Return the settings of least cost, best first, ties in the order they were tried."""
        known = (knobs for knobs, cost in self.costs.items() if not math.isnan(cost))
        return sorted(known, key=lambda knobs: self.costs[knobs])[:count]


def search(
    costs: Costs,
    space: SearchSpace,
    incumbent: Knobs,
    tuning: Tuning,
    seeds: Seeds,
    first: Sequence[Knobs] = (),
) -> Search:
    """Search a space for the setting of least cost.

    The incumbent, then `first` (settings that did well before), then a design of corners and scattered
    points (the sampler `surrogate` scatters by itself), then the sampler's proposals until the budget is
    spent or it has nothing new. A small space is tried as a whole instead.

    Args:
        costs: Settings -> costs in seconds; called with what may be tried together.
        space: Where to look.
        incumbent: The running setting.
        tuning: Sampler, budget and objective.
        seeds: Random streams of this search.
        first: Settings to try before the design.

    Raises:
        ConfigError: If the budget is below 1.
    """
    if tuning.budget < 1:
        raise ConfigError(f"budget = {tuning.budget}: it must be at least 1 simulation; nothing was run.")
    found = Search(incumbent, tuning.objective)
    if begin(found, costs, space, tuning, seeds, first):
        sampler = make_sampler(tuning.sampler, space, found.best, seeds, found.gains())
        climb(found, costs, space, sampler, tuning.budget)
    return found


def begin(
    found: Search,
    costs: Costs,
    space: SearchSpace,
    tuning: Tuning,
    seeds: Seeds,
    first: Sequence[Knobs],
) -> bool:
    """Try the incumbent, then a small space as a whole, or else `first` and the design.

    Returns:
        Whether proposals should follow; if not, `stopped` says why.
    """
    if not try_incumbent(found, costs):
        return False
    if math.isnan(found.costs[found.incumbent]):
        reason = found.failures.get(found.incumbent, "it has no cost")
        found.stopped = f"the running setting could not be simulated: {reason}"
        return False
    everything = space.enumerate(ENUMERATE_BELOW)
    if everything is not None:
        attempt(found, costs, [(knobs, "enumerated") for knobs in everything], tuning.budget)
        found.stopped = "space enumerated" if set(everything) <= set(found.costs) else "budget spent"
        return False
    opening: list[Proposal] = [(knobs, "earlier leader") for knobs in first]
    scattered = 0 if tuning.sampler == SURROGATE else 2 * len(space.axes) + 8  # it scatters by itself
    points = design(space, scattered, seeds, found.incumbent)
    opening += [(space.knobs(point), "design", point) for point in points]
    attempt(found, costs, opening, tuning.budget)
    return True


def try_incumbent(found: Search, costs: Costs) -> bool:
    """Try the incumbent first; return whether there is anything to gain over it, and if not, note that."""
    attempt(found, costs, [(found.incumbent, "incumbent")], 1)
    if found.idle:
        found.stopped = "nothing to gain"
    return not found.idle


def climb(found: Search, costs: Costs, space: SearchSpace, sampler: Sampler, budget: int) -> None:
    """Let a sampler propose until nothing is left of the budget, or it has nothing new."""
    stale = 0
    while found.simulated < budget:
        tickets = sampler.ask()
        if not tickets or stale >= budget:
            found.stopped = "nothing new to try"
            return
        before = found.simulated
        proposals = [(space.knobs(ticket.point), ticket.purpose, ticket.point) for ticket in tickets]
        attempt(found, costs, proposals, budget)
        gains = (found.gain_of(knobs) if knobs in found.costs else None for knobs, *_ in proposals)
        sampler.tell({ticket.id: gain for ticket, gain in zip(tickets, gains, strict=True)})
        stale = stale + 1 if found.simulated == before else 0
    found.stopped = "budget spent"


def attempt(found: Search, costs: Costs, proposals: Sequence[Proposal], budget: int) -> None:
    """Simulate the proposals that are new, as many as the budget allows, and note the fate of each.

    One setting whose simulation raises does not stop the others: it has failed, and `failures` says why.

    Raises:
        TrialsLost: If nobody is left to simulate.
    """
    fresh = [knobs for knobs in dict.fromkeys(knobs for knobs, *_ in proposals) if knobs not in found.costs]
    fresh = fresh[: max(0, budget - found.simulated)]
    found.costs.update(zip(fresh, _tried(found, costs, fresh), strict=True))
    found.trials.extend(_fates(found, proposals, set(fresh)))


def _tried(found: Search, costs: Costs, settings: Sequence[Knobs]) -> list[float]:
    """Return what settings cost, NaN for those whose simulation raises."""
    if not settings:
        return []
    try:
        return costs(settings)
    except TrialsLost:
        raise
    except Exception as error:  # a policy of a user's own may raise anything
        if len(settings) > 1:  # find those that failed
            return [cost for knobs in settings for cost in _tried(found, costs, [knobs])]
        found.failures[settings[0]] = f"{type(error).__name__}: {error}"
        return [math.nan]


def _fates(found: Search, proposals: Sequence[Proposal], fresh: set[Knobs]) -> Iterator[Trial]:
    for knobs, purpose, *points in proposals:
        if knobs in found.costs:
            cost, fate = found.costs[knobs], "duplicate"
            if knobs in fresh:
                fate = "failed" if math.isnan(cost) else "thrashes" if math.isinf(cost) else "simulated"
                fresh.discard(knobs)
            reason, point = found.failures.get(knobs, ""), points[0] if points else None
            yield Trial(knobs, fate, purpose, cost, found.gain_of(knobs), reason, point=point)
