"""The engine as a scheduler that is tuned: in simulated time, or in wall time at a factor.

It alone knows the whole trace. What it tells is what a real one could: of a job that has not finished, what
it has run so far and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.cluster import Cluster
from trimtab.control.adapter import (
    Change,
    EventKind,
    Identity,
    InForce,
    JobEvent,
    Receipt,
    Refused,
    State,
    refuse_illegal,
)
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import make_engine
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.world import wall_s

# What the engine's events are to whoever watches a scheduler; of others nobody outside hears.
_KINDS: dict[str, EventKind] = {
    "submit": "submit",
    "reject": "cancel",
    "start": "start",
    "preempt": "preempt",
    "finish": "finish",
}


class Simulated:
    """A scheduler that is the engine; see `Adapter`.

    A setting that is written is in force from the next instant on: as soon as its clock has moved.

    Args:
        workload: All jobs there will ever be, with their run times.
        knobs: What it goes by at first.
        start_ms: Where its clock stands at first; the first submission if None.
        speedup: Simulated ms for each ms of wall time; None: its clock stands until `advance` moves it.

    Raises:
        ConfigError: If the speedup is not above 0, or the policy cannot run this.
        Refused: If the knobs are not legal.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        knobs: Knobs,
        environment: Environment,
        *,
        name: str = "simulated",
        engine: str = "auto",
        start_ms: int | None = None,
        speedup: float | None = None,
    ) -> None:
        if speedup is not None and not 0 < speedup < float("inf"):
            raise ConfigError(f"speedup = {speedup}: it must be a number above 0; nothing was run.")
        found = find_policy(policy)
        refuse_illegal(found.space, knobs)
        self._identity = Identity(name, policy, cluster, True, environment.site)
        self._space, self._workload = found.space, workload
        self._hides_estimates = isinstance(environment.estimator, OracleEstimator)
        self._engine = make_engine(engine, workload, cluster, found, knobs, environment, timeline=True)
        if start_ms is not None:
            self._engine.run(start_ms)
        self._writes = [InForce(knobs, 1, self._engine.now_ms)]
        self._asked: dict[str, tuple[Knobs, Receipt]] = {}
        self._events: list[JobEvent] = []
        self._noted = 0  # events of the engine's timeline that have been looked at
        self._speedup, self._origin = speedup, (wall_s(), self._engine.now_ms)

    @property
    def has_deadlines(self) -> bool:
        """Whether any of its jobs has a deadline."""
        return any(facts.service.deadlines_ms for facts in self._workload.facts)

    def advance(self, until_ms: int) -> None:
        """Move the clock on; what happens before that instant has happened then. It never goes back.

        Raises:
            ConfigError: If wall time moves it.
        """
        if self._speedup is not None:
            raise ConfigError("this scheduler's clock is moved by wall time, not by hand.")
        self._engine.run(until_ms)

    def identity(self) -> Identity:
        return self._identity

    def now_ms(self) -> int:
        self._catch_up()
        return self._engine.now_ms

    def in_force(self) -> InForce:
        now_ms = self.now_ms()
        first, *later = self._writes
        reached = [write for write in later if write.as_of_ms < now_ms]
        return replace(reached[-1] if reached else first, as_of_ms=now_ms)

    def state(self) -> State:
        self._catch_up()
        snapshot = self._engine.snapshot()
        labels = tuple(job.facts.label for job in snapshot.jobs)
        return State(self._told(snapshot), labels)

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        self._catch_up()
        self._note_events()
        return self._events[max(0, after) : max(0, after) + most]

    def apply(self, change: Change) -> Receipt:
        self._catch_up()
        if change.key in self._asked:
            knobs, receipt = self._asked[change.key]
            if knobs != change.knobs:
                raise Refused(f"change {change.key}: was asked for before with another setting.")
            return receipt
        last = self._writes[-1]
        if change.expected != last.version:
            raise Refused(
                f"change {change.key}: version {last.version} was written last, not {change.expected}."
            )
        refuse_illegal(self._space, change.knobs)
        now_ms = self._engine.now_ms
        self._engine.update(now_ms, change.knobs)
        self._writes.append(InForce(change.knobs, last.version + 1, now_ms))
        receipt = Receipt(change.key, last.version + 1)
        self._asked[change.key] = change.knobs, receipt
        return receipt

    def _catch_up(self) -> None:
        """Let happen what has come due on the wall clock."""
        if self._speedup is not None:
            began_s, start_ms = self._origin
            self._engine.run(start_ms + int((wall_s() - began_s) * 1000 * self._speedup))

    def _told(self, snapshot: Snapshot) -> Snapshot:
        """Return the state without what nobody outside may know: estimates that are the truth."""
        if self._hides_estimates:
            for job in snapshot.jobs:
                job.estimate_ms = None
        return replace(snapshot, estimator=None)

    def _note_events(self) -> None:
        timeline = self._engine.timeline
        assert timeline is not None
        for event in timeline.events[self._noted :]:
            kind = _KINDS.get(event.kind)
            if kind is None or event.job is None:
                continue
            facts = self._workload.facts[event.job]
            self._events.append(
                JobEvent(
                    number=len(self._events) + 1,
                    kind=kind,
                    time_ms=event.time_ms,
                    label=facts.label,
                    facts=facts if kind == "submit" else None,
                    ran_ms=self._workload.duration_ms[event.job] if kind == "finish" else None,
                )
            )
        self._noted = len(timeline.events)
