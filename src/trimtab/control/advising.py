"""An advisor for a live scheduler: what may move is all that is searched, and gains are looked at again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trimtab.control.advisor import SURE, Advisor, BackgroundAdvisor, CausalAdvisor, PoolingAdvisor
from trimtab.control.guardrails import Guardrails, Tenure
from trimtab.control.rounds import Round
from trimtab.control.scoring import Shadow, realised_gain
from trimtab.errors import UnknownName
from trimtab.forecast.history import Past
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.search.evidence import Pooling
from trimtab.search.generation import PAPER, PLUS, Forecasting, Generation
from trimtab.search.scene import Scene
from trimtab.search.space import SearchSpace
from trimtab.search.tuner import Tuning
from trimtab.simulate.trials import Stoppable, Trials
from trimtab.world import Seeds

SearchKind = Literal["main", "background"]
LINES: dict[str, Forecasting] = {"trimtab": PAPER, "trimtab-plus": PLUS}


class Advising(Protocol):
    """What the loop asks; everything else about searching is not its business."""

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        """Return the record of a round, verdict included."""
        ...

    def begin(self, stop_after: int | None = None) -> None:
        """Get ready for a search, which stops after so many calls for trials if an earlier one did."""
        ...

    def interrupt(self, why: str) -> None:
        """Let the search that was begun end soon, with `Interrupted`; any thread may say so."""
        ...

    def gain(self, scene: Scene, wanted: Knobs) -> float:
        """Return the gain of one setting over the running one, on the futures of the last round."""
        ...

    def realised(self, shadow: Shadow, past: Past, facts: Sequence[JobFacts]) -> float:
        """Return the gain that a change had, or would have had, on what came; see `scoring`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    """How a live scheduler's settings are searched.

    Attributes:
        line: `trimtab` or `trimtab-plus`, as in an evaluation.
        tuning: Objective, sampler and simulations a round.
        rails: What a change must reach.
        forecasting: What the futures are; None for the line's own.
        seed: Root of the random streams.

    Raises:
        UnknownName: If there is no such line.
    """

    line: str
    tuning: Tuning
    rails: Guardrails
    forecasting: Forecasting | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.line not in LINES:
            raise UnknownName("line", self.line, LINES)


class Searches:
    """The advisors of an evaluation's lines beside a live scheduler.

    Args:
        how: What to search for, and how.
        trials: Tries settings.
        held: Knobs that must stay as they are; they are not searched.
    """

    def __init__(self, how: Searching, trials: Trials, held: frozenset[str] = frozenset()) -> None:
        seeds = Seeds(how.seed)
        self._generation = Generation(how.forecasting or LINES[how.line], seeds)
        self._scoring, self._trials = trials, Stoppable(trials)
        self._objective, self._held = how.tuning.objective, held
        self._advisor = self._main(how, seeds)
        self._light = BackgroundAdvisor(self._generation, self._trials, how.tuning, how.rails, seeds)

    def _main(self, how: Searching, seeds: Seeds) -> Advisor:
        if how.line == "trimtab":
            return CausalAdvisor(self._generation, self._trials, how.tuning, how.rails, seeds)
        return PoolingAdvisor(self._generation, self._trials, how.tuning, how.rails, Pooling(), SURE, seeds)

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        scene = replace(scene, space=holding(scene.space, self._held, scene.running))
        if search == "main":
            return self._advisor.advise(scene, tenure)
        return self._light.advise(scene, tenure, self._advisor.leaders)

    def gain(self, scene: Scene, wanted: Knobs) -> float:
        situations = self._generation.again(scene, self._generation.how.futures)
        if not situations:
            return math.nan
        rows = [self._trials.measure(one, [scene.running, wanted], self._objective) for one in situations]
        costs = [math.expm1(sum(math.log1p(row[place].cost) for row in rows) / len(rows)) for place in (0, 1)]
        return self._objective.gain(costs[0], costs[1])

    def realised(self, shadow: Shadow, past: Past, facts: Sequence[JobFacts]) -> float:
        return realised_gain(shadow, past, facts, self._scoring, self._objective)

    def interrupt(self, why: str) -> None:
        self._trials.stop(why)

    def begin(self, stop_after: int | None = None) -> None:
        self._trials.begin(stop_after)


def holding(space: SearchSpace, held: frozenset[str], running: Knobs) -> SearchSpace:
    """Return a space in which some knobs stay as they run; what projection makes of the others may differ."""
    if not held:
        return space
    return replace(
        space,
        base=running,
        to_values=lambda point: {
            name: value for name, value in space.to_values(point).items() if name not in held
        },
    )
