"""The paper's search: pairs are proposed, and what a causal model says cannot pay is not simulated.

Each proposal is projected, looked up, and judged by the performance model: one that is predicted to stay
below 0.95 of the best is rejected, except by chance. Models are refitted as measurements come in, and then
graph and model say which knobs are still worth varying [Gao et al., ICS'24].

With the sampler `surrogate` the model proposes instead of judging: fitted once, to earlier situations, it is
the first guess that the measurements of this search correct.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.objective import Measured
from trimtab.search.causal import Graph, learn, rows_min
from trimtab.search.model import Model, fit, trusted
from trimtab.search.sampler import SURROGATE, Sampler, Ticket, make_sampler
from trimtab.search.samples import Encoding, Samples, Summary, Table, Vector
from trimtab.search.scope import Scope, what_if
from trimtab.search.space import Point, SearchSpace
from trimtab.search.surrogate import Guess, SurrogateSampler
from trimtab.search.tuner import Search, Trial, Tuning, attempt, begin
from trimtab.world import Seeds, wall_s

Measure = Callable[[Sequence[Knobs]], list[Measured]]

_SITUATIONS = 24  # the last ones are learned from: a day of hourly searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the model is used.

    Attributes:
        learning: Whether there is a model at all; without, the same search simulates all it proposes.
        identity: Whether the model adds up predicted parts; without, it predicts the objective itself.
        fair: Compare a predicted gain with what the model predicts of the best measured setting, not with
            what was measured of it: predictions are drawn towards the mean, and the best of many
            measurements is a lucky one, so that hardly a proposal reaches it.
        reject_below: Part of the best gain that a predicted gain must reach.
        explore: Chance that a setting is simulated all the same.
        leave_scope: Chance that a round proposes as if there were no scope.
        refit_every: New measurements after which the model is fitted again.
        refits_max: The most fits of one search.
        rounds_max: The most rounds of proposals of one search, however many were rejected; None for no limit.
        budget_s: Seconds from its beginning after which no round of a search begins, in place of rounds and
            simulations; None to be the same on every machine.
    """

    learning: bool = True
    identity: bool = True
    fair: bool = True
    reject_below: float = 0.95
    explore: float = 0.1
    leave_scope: float = 0.2
    refit_every: int = 5
    refits_max: int = 8
    rounds_max: int | None = None
    budget_s: float | None = None


# The published rules: the predicted gain against the best measured one, 40 rounds.
PAPER = Rules(fair=False, rounds_max=40)


@dataclass
class Lessons:
    """What has been learned about one policy, one objective and one set of axes.

    Attributes:
        samples: What was measured.
        graph: The causal graph, learned once a day of trace time; None as long as there is none.
        parents: Mediator -> the knobs it is predicted from, where the graph is followed.
        model: The latest model, None as long as there is none.
    """

    samples: Samples
    graph: Graph | None = None
    parents: Mapping[str, frozenset[str]] = field(default_factory=dict)
    model: Model | None = None
    graph_day: int | None = None


class Experience:
    """What searches hand on to later ones; rows of other policies, objectives or axes are never mixed."""

    def __init__(self) -> None:
        self._lessons: dict[tuple[str, str, str], Lessons] = {}

    def of(self, policy: str, objective: str, space: SearchSpace) -> Lessons:
        """Return what is known, empty at first."""
        encoding = Encoding(space)
        key = policy, objective, encoding.version
        return self._lessons.setdefault(key, Lessons(Samples(encoding)))


@dataclass(frozen=True, slots=True)
class Event:
    """Something learned in a search: `model`, `graph`, `scope` or `note`, after so many simulations."""

    kind: str
    simulated: int
    detail: Mapping[str, Any]

    def jsonable(self) -> dict[str, Any]:
        return {"kind": self.kind, "simulated": self.simulated, **self.detail}


@dataclass
class CausalSearch(Search):
    """A search with what it learned and left out.

    Attributes:
        events: What was learned, in order.
        scope: The last one.
        scope_regret: How much better the best measured gain is than the best of those in the last scope.
        learn_s: Wall seconds spent on graphs, models and scopes.
    """

    events: list[Event] = field(default_factory=list)
    scope: Scope = field(default_factory=Scope)
    scope_regret: float = 0.0
    learn_s: float = 0.0

    def count(self, fate: str) -> int:
        """Return how many trials met a fate."""
        return sum(trial.fate == fate for trial in self.trials)


def causal_search(
    measure: Measure,
    summary: Summary,
    space: SearchSpace,
    incumbent: Knobs,
    tuning: Tuning,
    seeds: Seeds,
    lessons: Lessons,
    day: int,
    rules: Rules | None = None,
    first: Sequence[Knobs] = (),
) -> CausalSearch:
    """Search a space for the setting of least cost, and learn from what is measured.

    It begins as `tuner.search` does; a small space is tried as a whole, with nothing rejected.

    Args:
        measure: Settings -> what they give; called with what may be tried together.
        summary: The situation they are tried on.
        space: Where to look.
        incumbent: The running setting.
        tuning: Sampler, budget in simulations and objective.
        seeds: Random streams of this search.
        lessons: What earlier searches learned; added to.
        day: The day of trace time: the graph is learned once on each.
        rules: How the model is used.
        first: Settings to try before the design.
    """
    found = CausalSearch(incumbent, tuning.objective)
    if tuning.budget < 1:
        found.stopped = "no budget: nothing was simulated"
        return found
    session = _Session(found, measure, summary, space, tuning, seeds, lessons, day, rules or Rules())
    if begin(found, session.costs, space, tuning, seeds, first):
        session.note()
        session.climb()
    session.note()
    return found


class _Session:
    """One search under way."""

    def __init__(
        self,
        found: CausalSearch,
        measure: Measure,
        summary: Summary,
        space: SearchSpace,
        tuning: Tuning,
        seeds: Seeds,
        lessons: Lessons,
        day: int,
        rules: Rules,
    ) -> None:
        self._found, self._measure, self._summary, self._space = found, measure, summary, space
        self._tuning, self._seeds, self._lessons, self._day = tuning, seeds, lessons, day
        self._rules, self._began_s = rules, wall_s()
        self._proposing = tuning.sampler == SURROGATE
        self._here = lessons.samples.open(summary)
        self._measured: dict[Knobs, Measured] = {}
        self._noted = 0
        self._new_rows = 0
        self._refits = 0
        self._chance = seeds.stream("search", "explore")
        self._outside = seeds.stream("search", "out of scope")

    # ---- measuring -------------------------------------------------------------------------------

    def costs(self, candidates: Sequence[Knobs]) -> list[float]:
        """Measure settings, and remember what they gave."""
        found = self._measure(candidates)
        self._measured.update(zip(candidates, found, strict=True))
        return [one.cost for one in found]

    def note(self) -> None:
        """Add what was measured since the last time to the samples."""
        for trial in self._found.trials[self._noted :]:
            if trial.fate in ("simulated", "explored"):
                designed = trial.purpose in ("design", "enumerated")
                kept = self._lessons.samples.add(
                    self._here, trial.knobs, self._measured[trial.knobs], designed
                )
                self._new_rows += kept
        self._noted = len(self._found.trials)

    # ---- rounds ----------------------------------------------------------------------------------

    def climb(self) -> None:
        """Let the sampler propose until the budget is spent, rejecting what the model says cannot pay."""
        found, budget_s = self._found, self._rules.budget_s
        sampler = self._sampler()
        rounds = stale = 0
        self._learn()
        while found.simulated < self._simulations_max:
            if budget_s is not None and wall_s() - self._began_s > budget_s:
                found.stopped = f"time spent after {rounds} rounds"
                return
            if budget_s is None and rounds == self._rules.rounds_max:
                found.stopped = f"{rounds} rounds"
                return
            tickets, before = sampler.ask(), found.simulated
            if not tickets or stale >= self._tuning.budget:
                found.stopped = "nothing new to try" if not tickets else "nothing left that may pay"
                return
            gains = self._round(tickets)
            sampler.tell(gains)
            self.note()
            rounds, stale = rounds + 1, stale + 1 if found.simulated == before else 0
            self._learn()
        found.stopped = "budget spent"

    @property
    def _simulations_max(self) -> int:
        return self._tuning.budget if self._rules.budget_s is None else sys.maxsize

    def _sampler(self) -> Sampler:
        if not self._proposing:
            return make_sampler(
                self._tuning.sampler, self._space, self._found.best, self._seeds, self._found.gains()
            )
        return SurrogateSampler(self._space, self._seeds, self._found.gains(), self._first_guess())

    def _first_guess(self) -> Guess | None:
        """Learn from earlier situations what to expect of settings on this one; None if that is nothing."""
        table = self._lessons.samples.table(_SITUATIONS + 1)
        table = table.take(table.situation != self._here)
        if not self._rules.learning or not len(table):
            return None
        self._learn_graph(table)
        self._fit(table)
        model, encoding = self._lessons.model, self._lessons.samples.encoding
        if model is None or not model.ready(len(self._space.axes)):
            return None
        incumbent = self._found.incumbent

        def guess(settings: Sequence[Knobs]) -> Vector:
            logs = np.log(model.predict(encoding.rows([incumbent, *settings]), self._summary).gains()[1:])
            return np.where(np.isfinite(logs), logs, 0.0)

        return guess

    def _round(self, tickets: Sequence[Ticket]) -> dict[int, float | None]:
        """Judge and try one batch; return the gains, None for what was rejected or has none."""
        found = self._found
        whole = self._outside.random() < self._rules.leave_scope
        scope = Scope() if whole else found.scope
        batch = [
            (self._space.knobs(scope.narrow(self._space, one.point)), one.purpose, one.point)
            for one in tickets
        ]
        against = self._judge(batch)
        anyway = [self._chance.random() < self._rules.explore for _ in batch]
        tried = []
        for (knobs, purpose, point), explored in zip(batch, anyway, strict=True):
            if knobs in against and not explored:
                found.trials.append(replace(against[knobs], purpose=purpose, point=point))
            else:
                tried.append((knobs, purpose, point))
        first = len(found.trials)
        attempt(found, self.costs, tried, self._simulations_max)
        found.trials[first:] = [_explored(trial, against.get(trial.knobs)) for trial in found.trials[first:]]
        gains = (found.gain_of(knobs) if knobs in found.costs else None for knobs, *_ in batch)
        return {ticket.id: gain for ticket, gain in zip(tickets, gains, strict=True)}

    def _judge(self, batch: Sequence[tuple[Knobs, str, Point]]) -> dict[Knobs, Trial]:
        """Return the rejections among the settings that are not known already."""
        model, found = self._lessons.model, self._found
        fresh = {knobs: purpose for knobs, purpose, _ in batch if knobs not in found.costs}
        if self._proposing or model is None or not fresh or not model.ready(len(self._space.axes)):
            return {}
        rows = self._lessons.samples.encoding.rows([found.incumbent, found.best, *fresh])
        predicted = model.predict(rows, self._summary)
        own, *gains = predicted.gains()[1:].tolist()
        of, best = ("what is predicted of the best", own) if self._rules.fair else ("the best", found.gain)
        least = self._rules.reject_below * best
        return {
            knobs: Trial(
                knobs,
                "rejected",
                purpose,
                math.nan,
                math.nan,
                f"predicted gain {gain:.3f} is below {self._rules.reject_below:g} of {of}, {best:.3f}",
                gain,
            )
            for (knobs, purpose), gain in zip(fresh.items(), gains, strict=True)
            if gain < least  # what is no number rejects nothing
        }

    # ---- learning --------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Learn what is due once enough was measured: the graph of the day, the model, the scope."""
        rules = self._rules
        if self._proposing:
            return
        if rules.learning and self._new_rows >= rules.refit_every and self._refits < rules.refits_max:
            began_s = wall_s()
            table = self._lessons.samples.table(_SITUATIONS)
            self._learn_graph(table)
            self._fit(table)
            self._draw_scope()
            self._found.learn_s += wall_s() - began_s

    def _learn_graph(self, table: Table) -> None:
        lessons = self._lessons
        if lessons.graph_day == self._day or len(table) < rows_min(table.axis_of):
            return
        lessons.graph_day = self._day
        try:
            graph = learn(table, self._tuning.objective.name, self._seeds)
        except ConfigError as refused:
            self._event("note", text=str(refused))
            return
        except ValueError as unfit:  # FCI on columns that it cannot tell apart
            self._event("note", text=f"no causal graph: {unfit}; the search goes without one.")
            return
        lessons.graph, lessons.parents = graph, trusted(table, graph)
        followed = {name: sorted(knobs) for name, knobs in lessons.parents.items()}
        self._event("graph", rows=graph.rows, edges=len(graph.edges), followed=followed)

    def _fit(self, table: Table) -> None:
        lessons = self._lessons
        name, identity = self._tuning.objective.name, self._rules.identity
        lessons.model = fit(table, name, lessons.parents, self._here, identity)
        self._refits, self._new_rows = self._refits + 1, 0
        ready = lessons.model.ready(len(self._space.axes))
        self._event("model", rows=lessons.model.rows, spearman=lessons.model.spearman, ready=ready)

    def _draw_scope(self) -> None:
        graph, model = self._lessons.graph, self._lessons.model
        if graph is None or model is None or not model.ready(len(self._space.axes)):
            return
        found = self._found
        known = found.gains()
        measured = found.leaders(len(known))
        encoding = self._lessons.samples.encoding
        found.scope = what_if(graph, model, encoding, self._summary, measured)
        found.scope_regret = found.scope.regret(self._space, known)
        self._event("scope", **found.scope.jsonable(), regret=found.scope_regret)

    def _event(self, kind: str, **detail: Any) -> None:
        self._found.events.append(Event(kind, self._found.simulated, detail))


def _explored(trial: Trial, verdict: Trial | None) -> Trial:
    """Return a trial as explored if it was simulated in spite of a verdict."""
    if verdict is None or trial.fate != "simulated":
        return trial
    return replace(trial, fate="explored", reason=verdict.reason, predicted=verdict.predicted)
