"""A day of the control loop with a scheduler that fails and a program that is killed, and what it broke.

The scheduler is the engine in simulated time behind `Faulty`; searches are played: they propose what the seed
says, illegal settings and wild gains among it. So a day takes a second at most, and all that is tried is the
loop, its journal and its recovery.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.cluster import Cluster
from trimtab.control.adapter import Adapter, Change, Identity, InForce, JobEvent, Receipt, State
from trimtab.control.advising import Advising, SearchKind
from trimtab.control.changer import NOTHING
from trimtab.control.entries import CLOSING
from trimtab.control.faulty import FAULTS, Fault, Faulty
from trimtab.control.guardrails import Apply, Guardrails, Keep, Tenure
from trimtab.control.journal import plain
from trimtab.control.loop import Loop
from trimtab.control.orders import Orders, Plant
from trimtab.control.rounds import Round
from trimtab.control.safety import Safety, Step
from trimtab.control.scoring import Shadow
from trimtab.control.simulated import Simulated
from trimtab.control.standing import Standing, fold
from trimtab.forecast.history import Past
from trimtab.job import JobFacts, JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.search.scene import Scene
from trimtab.search.spaces import search_space
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import Workload
from trimtab.world import Seeds

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLUSTER = Cluster.pool(2, 4)
POLICY = "tiresias"
SPACE = find_policy(POLICY).space

# How often each fault befalls a call, of those drawn for a day.
RATES = (0.02, 0.1, 0.3)

ORDERS = Orders(
    mode="auto",
    rails=Guardrails(gain_min=1.05, dwell_ms=HOUR_MS // 2),
    safety=Safety(history_min_ms=0, steps={"num_queues": Step(difference=3)}, failures_max=4),
)


class Killed(Exception):
    """The program dies here."""


@dataclass(frozen=True)
class Line:
    """An entry of the journal in memory."""

    number: int
    kind: str
    key: str | None
    body: Mapping[str, Any]


@dataclass
class Memory:
    """A journal in memory; it may be told to kill the program before or after it writes."""

    lines: list[Line] = field(default_factory=list)
    strike: Callable[[], None] = lambda: None
    kept: dict[str, bytes] = field(default_factory=dict)

    def append(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        at_ms: int,
        key: str | None = None,
        parts: Mapping[str, bytes] = NOTHING,
    ) -> Line:
        self.strike()
        self.kept.update(parts)
        line = Line(len(self.lines) + 1, kind, key, json.loads(json.dumps(plain(body), allow_nan=False)))
        self.lines.append(line)
        self.strike()
        return line

    def entries(self, after: int = 0, kinds: Any = None, limit: int | None = None) -> tuple[Line, ...]:
        found = (one for one in self.lines[after:] if kinds is None or one.kind in kinds)
        return tuple(itertools.islice(found, limit))

    def parts(self, names: Sequence[str]) -> dict[str, bytes]:
        return {name: self.kept[name] for name in names if name in self.kept}

    def learned(self, model: str | None, graph: str | None) -> None:
        pass


class Switch:
    """An adapter in front of others, of which one answers; it may be told to kill the program at any call.

    Attributes:
        asked: Every change that was asked for, and when.
    """

    def __init__(self, adapter: Adapter, clock: Callable[[], int]) -> None:
        self.adapter, self._clock = adapter, clock
        self.strike: Callable[[], None] = lambda: None
        self.asked: list[tuple[int, Change]] = []

    def identity(self) -> Identity:
        return self.adapter.identity()

    def now_ms(self) -> int:
        return self.adapter.now_ms()

    def in_force(self) -> InForce:
        self.strike()
        return self.adapter.in_force()

    def state(self) -> State:
        self.strike()
        return self.adapter.state()

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        return self.adapter.events(after, most)

    def apply(self, change: Change) -> Receipt:
        self.strike()
        self.asked.append((self._clock(), change))
        receipt = self.adapter.apply(change)
        self.strike()
        return receipt


class Written(Simulated):
    """The engine as a scheduler that remembers who wrote what and when.

    Attributes:
        writes: Instant and change, each once.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.writes: list[tuple[int, Change]] = []

    def apply(self, change: Change) -> Receipt:
        known = {one.key for _, one in self.writes}
        receipt = super().apply(change)
        if change.key not in known:
            self.writes.append((self.now_ms(), change))
        return receipt


class Played:
    """Searches that propose what a seed says."""

    def __init__(self, seed: int) -> None:
        self._dice = Seeds(seed).stream("played")

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        dice = self._dice
        knobs = SPACE.project(
            {
                "num_queues": int(dice.integers(1, 6)),
                "queue_thresholds": tuple(sorted(dice.integers(300, 90_000, 4).tolist())),
                "in_queue_order": str(dice.choice(["sim_tail", "start", "submit"])),
            }
        )
        gain, fate = float(np.exp(dice.normal(0.15, 0.2))), dice.random()
        if fate < 0.1:  # a setting that projection would change
            knobs = Knobs({**knobs, "queue_thresholds": (9_000, 600, 600)})
        if fate > 0.97:
            raise ArithmeticError("a search that fails")
        better = gain > 1 and knobs != scene.running
        verdict = Apply(knobs, f"gain {gain:.3f}") if better else Keep(f"gain {gain:.3f} is too small")
        return Round(
            time_s=scene.now_ms / 1000,
            knobs_before=scene.running,
            best=knobs,
            verdict=verdict,
            gain=gain,
            cost_running=100.0,
            cost_best=100.0 / gain,
            trials=2,
            pending=scene.count(JobState.PENDING),
            running=scene.count(JobState.RUNNING),
            arrivals=0,
            search_s=0.0,
            search=search,
        )

    def gain(self, scene: Scene, wanted: Knobs) -> float:
        return float(np.exp(self._dice.normal(0.15, 0.2)))

    def begin(self, stop_after: int | None = None) -> None:
        pass

    def interrupt(self, why: str) -> None:
        pass

    def realised(self, shadow: Shadow, past: Past, facts: Sequence[JobFacts]) -> float:
        return float(shadow.gain * np.exp(self._dice.normal(-0.02, 0.1)))


def jobs(seed: int, days: float, a_day: int = 60) -> Workload:
    """Return a few jobs a day, so that the engine takes no time."""
    dice = Seeds(seed).stream("jobs")
    count = round(days * a_day)
    submit_ms = [0, *np.sort(dice.integers(0, round(days * DAY_MS), count - 1)).tolist()]
    run_ms = np.exp(dice.normal(np.log(900_000), 1.2, count)).astype(int).tolist()
    gpus = dice.choice([1, 1, 2, 4], count).tolist()
    facts = [
        JobFacts(f"j{place}", at_ms, wide, user=f"u{place % 7}")
        for place, (at_ms, wide) in enumerate(zip(submit_ms, gpus, strict=True))
    ]
    return Workload(facts, [max(1000, one) for one in run_ms])


@dataclass
class Result:
    """What a seed came to.

    Attributes:
        broken: What must not happen and did, in sentences.
        kills: How often the program was killed. faults: what was done to the scheduler, by name.
        changes, confirmed: Intents, and those that came into force.
        steps: Before which it might have been killed. rounds: verdicts.
    """

    seed: int
    broken: list[str] = field(default_factory=list)
    kills: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    confirmed: int = 0
    rounds: int = 0
    steps: int = 0


class Theatre:
    """One scheduler, one journal, and a loop that may be killed and started again.

    Args:
        seed: Of everything.
        journal: Where it writes; in memory if None.
        faults: Rates of the faults of the scheduler; none by default.
        kill_rate: How likely the program dies at each of its steps. kill_at: at which step it does.
        hours: How long it is hostile; two honest hours follow.
        advising: Who searches; by default what the seed says.
    """

    def __init__(
        self,
        seed: int,
        journal: Any = None,
        faults: Mapping[Fault, float] | None = None,
        kill_rate: float = 0.0,
        kill_at: int | None = None,
        hours: int = 24,
        orders: Orders = ORDERS,
        advising: Advising | None = None,
    ) -> None:
        self.seed, self.hours, self.orders = seed, hours, orders
        self.now_ms = 0
        self.journal = journal if journal is not None else Memory()
        workload, environment = jobs(seed, hours / 24 + 0.2), Environment(placement="count")
        self.scheduler = Written(workload, CLUSTER, POLICY, SPACE.defaults, environment, start_ms=0)
        self.faulty = Faulty(self.scheduler, faults or {}, Seeds(seed))
        self.switch = Switch(self.faulty, lambda: self.now_ms)
        self.plant = Plant(POLICY, search_space(find_policy(POLICY), SPACE.defaults, "count"), environment)
        self.result = Result(seed)
        self._dice, self._kill_rate = Seeds(seed).stream("kills"), kill_rate
        self._kill_at, self._steps = kill_at, 0
        self._advising = advising or Played(seed)
        self.loop = self._start()

    def _strike(self) -> None:
        self._steps += 1
        if self._steps == self._kill_at or (self._kill_rate and self._dice.random() < self._kill_rate):
            raise Killed

    def _start(self) -> Loop:
        """Start the program, as often as it takes to get past the first entry."""
        while True:
            run = f"r{self.result.kills}"
            try:
                loop = Loop(
                    *(self.switch, self.journal, self.plant, self.orders, self._advising),
                    lambda: self.now_ms,
                    run,
                )
                loop.start({})
                return loop
            except Killed:
                self.result.kills += 1

    def play(self) -> Result:
        """Play the hostile hours and two honest ones, and look what was broken."""
        self.switch.strike = self._strike
        if isinstance(self.journal, Memory):
            self.journal.strike = self._strike
        self.run_until(self.hours * HOUR_MS)
        self.result.steps = self._steps
        self._kill_rate, self._kill_at = 0.0, None
        self.switch.adapter = self.scheduler
        self.loop.resume("the test")
        self.run_until((self.hours + 2) * HOUR_MS + HOUR_MS // 2)
        self._judge()
        return self.result

    def run_until(self, until_ms: int) -> None:
        """Tick when the loop wants to, through kills."""
        while self.now_ms < until_ms:
            try:
                due_ms = self.loop.tick()
            except Killed:
                self.result.kills += 1
                self.loop = self._start()
                due_ms = self.now_ms + 5_000
            self.now_ms = min(max(due_ms, self.now_ms + 1), until_ms)
            self.scheduler.advance(self.now_ms)

    # ---- what must hold --------------------------------------------------------------------------

    def _judge(self) -> None:
        lines, broken = self.journal.entries(), self.result.broken
        intents = {one.key: one for one in lines if one.kind == "intent"}
        purposes = {key: one.body["purpose"] for key, one in intents.items()}
        self.result.changes = len(intents)
        closed = {one.key for one in lines if one.body.get("outcome") in CLOSING}
        self.result.confirmed = len(
            {one.key for one in lines if one.key and one.body.get("outcome") == "confirmed"}
        )
        self.result.rounds = sum(one.kind == "verdict" for one in lines)
        for fault in self.faulty.log:
            self.result.faults[fault.fault] = self.result.faults.get(fault.fault, 0) + 1
        broken += [f"{key}: asked for an illegal setting" for key in self._illegal()]
        broken += [f"{key}: written without an intent" for key in self._unintended(intents)]
        broken += [f"{key}: no outcome" for key in intents if key not in closed]
        broken += self._too_soon(purposes)
        broken += self._astray(lines)

    def _illegal(self) -> list[str]:
        return [change.key for _, change in self.switch.asked if SPACE.project(change.knobs) != change.knobs]

    def _unintended(self, intents: Mapping[str | None, Any]) -> list[str]:
        keys = [change.key.removesuffix("/half") for _, change in self.scheduler.writes]
        return [key for key in keys if key not in intents]

    def _too_soon(self, purposes: Mapping[str | None, str]) -> list[str]:
        """Return changes asked for, or written, less than a dwell after anything else was."""
        found, dwell_ms = [], self.orders.rails.dwell_ms
        told = {"asked for": self.switch.asked}
        if "apply_late" not in self.result.faults:  # what is late was asked for in good time
            told["written"] = self.scheduler.writes
        for what, changes in told.items():
            first = dict[str, int]()
            for at_ms, change in changes:
                first.setdefault(change.key.removesuffix("/half"), at_ms)
            times = sorted((at_ms, key) for key, at_ms in first.items())
            for (before_ms, _), (at_ms, key) in itertools.pairwise(times):
                if purposes.get(key) == "change" and at_ms - before_ms < dwell_ms:
                    found.append(f"{key}: {what} {(at_ms - before_ms) / 1000:g} s after the one before")
        return found

    def _astray(self, lines: Sequence[Any]) -> list[str]:
        """Return how journal, loop and scheduler differ after two honest rounds."""
        found, standing, real = [], fold(Standing(), lines), self.scheduler.in_force()
        if standing != self.loop.standing:
            found.append("the journal folds to something else than the loop goes by")
        if standing.knobs != real.knobs:
            found.append(f"in force is {real.knobs.text()}, the journal has {standing.knobs}")
        if standing.open is not None or standing.torn is not None or standing.back is not None:
            found.append(f"not recovered: {standing.open or standing.torn or standing.back}")
        if self.loop.trouble:
            found.append(f"not recovered: {self.loop.trouble}")
        return found


def drawn_faults(seed: int) -> dict[Fault, float]:
    """Return three to six faults of a day, and how often each happens."""
    dice = Seeds(seed).stream("faults")
    names = dice.choice(FAULTS, int(dice.integers(3, 7)), replace=False)
    return {name: float(dice.choice(RATES)) for name in names.tolist()}


def hostile_day(seed: int) -> Result:
    """Play a day with a failing scheduler, and a program that is killed now and then."""
    return Theatre(seed, faults=drawn_faults(seed), kill_rate=0.002 if seed % 2 else 0.0).play()


def killed_often(seed: int, journal: Any = None) -> Result:
    """Play six hours in which the program dies at one step in twelve, with an honest scheduler."""
    return Theatre(seed, journal, kill_rate=1 / 12, hours=6).play()
