"""Policies of one's own for the twin tests: every kind of key, every hook, decisions of every kind."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from trimtab.cluster import ClusterView
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.lucid import Lucid
from trimtab.policies.policy import Decision, Lease, Plan, Preempt, QueuePolicy, Start
from trimtab.policies.shortest import Qssf, Sjf, Srsf, Srtf
from trimtab.policies.themis import Themis
from trimtab.policies.tiresias import Tiresias

_QUANTUM = Knob(
    name="quantum",
    kind="int",
    default=20,
    low=1,
    high=200,
    unit="s",
    trades="nothing",
    takes_effect="immediate",
    in_flight="nothing",
)


class OwnThemis(Themis):
    """Asked by the core as anybody's whole-pass policy with leases."""

    name: ClassVar[str] = "own-themis"


class OwnTiresias(Tiresias):
    name: ClassVar[str] = "own-tiresias"


class OwnSrtf(Srtf):
    name: ClassVar[str] = "own-srtf"


class OwnSrsf(Srsf):
    name: ClassVar[str] = "own-srsf"


class OwnQssf(Qssf):
    name: ClassVar[str] = "own-qssf"


class OwnSjf(Sjf):
    name: ClassVar[str] = "own-sjf"


class OwnLucid(Lucid):
    name: ClassVar[str] = "own-lucid"


class Levels(QueuePolicy):
    """Two hooks and no key: levels by attained service, as in Tiresias by submission."""

    name: ClassVar[str] = "levels"
    space: ClassVar[Space] = Space((_QUANTUM,))
    preemptive: ClassVar[bool] = True
    levels: ClassVar[int] = 3

    def level(self, job: JobView, knobs: Knobs) -> int:
        return min(2, job.attained_gpu_ms() // (knobs.integer("quantum") * 1000))

    def next_change_ms(self, job: JobView, knobs: Knobs) -> int | None:
        span = knobs.integer("quantum") * 1000
        passed = job.attained_gpu_ms() // span
        return None if passed >= 2 else -(-((passed + 1) * span - job.attained_gpu_ms()) // job.gpus)


class ByWidth(QueuePolicy):
    """Queues that jobs are in from the start, and nobody is preempted."""

    name: ClassVar[str] = "by-width"
    levels: ClassVar[int] = 4

    def level(self, job: JobView, knobs: Knobs) -> int:
        return min(3, job.gpus - 1)


class Patient(QueuePolicy):
    """A plan of its own: some jobs are promoted, others never; some gangs may be spread."""

    name: ClassVar[str] = "patient"

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            preemptive=True,
            grades=(7_000, 60_000),
            regrade="lazy",
            starve_ms=lambda job: None if job.id % 2 else 2 * job.graded_ms,
            consolidate=lambda job: job.gpus % 2 == 0,
        )


class Fractions(QueuePolicy):
    """Keys of several numbers, whole ones and others, that change while a job runs."""

    name: ClassVar[str] = "fractions"
    space: ClassVar[Space] = Space((_QUANTUM,))
    preemptive: ClassVar[bool] = True

    def key(self, job: JobView, now_ms: int, knobs: Knobs) -> tuple[int | float, ...]:
        attained = job.done_by(now_ms) // 1_000_000 + job.unpaid_overhead_ms(now_ms)
        return (attained / 7 if attained % 2 else attained // 7, -job.gpus / 3, job.preemptions)


class Endless(QueuePolicy):
    """A key without end for some, a number for others."""

    name: ClassVar[str] = "endless"

    def key(self, job: JobView, now_ms: int, knobs: Knobs) -> float:
        return float("inf") if job.gpus % 2 else -job.gpus / 2 + (job.estimate_ms or 0) / 1e6


class Picky:
    """Widest first among those that waited longest by column, others when they are reviewed; takes turns."""

    name: ClassVar[str] = "picky"
    space: ClassVar[Space] = Space((_QUANTUM,))

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        span_ms = knobs.integer("quantum") * 1000
        decisions: list[Decision] = []
        held = view.now_ms - view.running.column("started_ms")
        for place in (held >= span_ms).nonzero()[0].tolist()[:2]:
            job = view.running[place]
            if len(view.pending) and job.preemptions < 3:
                decisions.append(Preempt(job.id))
                view.free.give(job.nodes)
        waited = view.now_ms - view.pending.column("submit_ms")
        order = sorted(range(len(view.pending)), key=lambda at: (-view.pending[at].gpus, -waited[at], at))
        for at in order:
            job = view.pending[at]
            nodes = view.free.place(job.gpus)
            if nodes is not None:
                view.free.take(nodes)
                decisions.append(Start(job.id, nodes if job.id % 2 else None))
        return decisions if len({type(d) for d in decisions}) == 1 else [d for d in decisions if _is_plain(d)]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        return view.now_ms + knobs.integer("quantum") * 500 if len(view.running) + len(view.pending) else None


class Crowd(Picky):
    """Takes turns, too; starts jobs beside others, some for a limited time, where no GPUs are free."""

    name: ClassVar[str] = "crowd"

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        span_ms = knobs.integer("quantum") * 1000
        turns: list[Decision] = [
            Preempt(job.id)
            for job in view.running
            if len(view.pending)
            and job.preemptions < 2
            and view.now_ms - (job.started_ms or 0) >= 2 * span_ms
        ]
        if turns:
            return turns
        alone = [job for job in view.running if job.partner is None and len(job.nodes) == 1]
        starts: list[Decision] = []
        for job in view.pending:
            until_ms = view.now_ms + span_ms if job.id % 3 == 0 and job.preemptions < 2 else None
            nodes = view.free.place(job.gpus)
            others = [other for other in alone if other.gpus == job.gpus]
            if nodes is not None:
                view.free.take(nodes)
                starts.append(Start(job.id, nodes, until_ms=until_ms))
            elif others:
                alone.remove(others[-1])
                starts.append(Start(job.id, until_ms=until_ms, beside=others[-1].id))
        return starts


def _is_plain(decision: Decision) -> bool:
    """Preemptions and starts together: only the preemptions, so that no start counts on the other's nodes."""
    return isinstance(decision, Preempt)


class Wrong:
    """Decides what is not possible, in one of many ways."""

    space: ClassVar[Space] = Space()
    name: ClassVar[str] = "wrong"

    def __init__(self, way: str) -> None:
        self.way = way

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        ways: dict[str, list[object]] = {
            "nobody": [Start(10_000)],
            "negative": [Preempt(-1)],
            "huge": [Start(1 << 70)],
            "twice": [Start(job.id) for job in view.pending for _ in range(2)],
            "no place": [Start(job.id, ((0, job.gpus + 1),)) for job in view.pending],
            "not running": [Preempt(job.id) for job in view.pending],
            "running": [Start(job.id) for job in (*view.running, *view.pending)],
            "no decision": ["start"],
            "text": [Start("a")],  # type: ignore[arg-type]
            "beside nobody": [Start(job.id, beside=1 << 70) for job in view.pending],
            "beside itself": [Start(job.id, beside=job.id) for job in view.pending],
            "beside another width": [Start(0), Start(1, beside=0)] if len(view.pending) > 1 else [],
            "until now": [Start(job.id, until_ms=view.now_ms) for job in view.pending],
            "until half": [Start(job.id, until_ms=0.5) for job in view.pending],  # type: ignore[arg-type]
            "raises": [],
            "lease of nobody": [Lease(10_000, 0, 1, 1)],
            "lease of who waits": [Lease(job.id, 0, 1, 1) for job in view.pending],
            "lease before it starts": [Start(0), Lease(0, 5, 0, 1)],
            "lease without renewal": [Start(0), Lease(0, 0, 1, 0)],
        }
        if self.way == "raises":
            raise ZeroDivisionError("by\nzero")
        if self.way == "column":
            view.pending.column("gpu")
        return ways.get(self.way, [])  # type: ignore[return-value]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        return {"review": view.now_ms, "half": 0.5}.get(self.way)  # type: ignore[return-value]


WRONG_WAYS = (
    "lease of nobody",
    "lease of who waits",
    "lease before it starts",
    "lease without renewal",
    "nobody",
    "negative",
    "huge",
    "twice",
    "no place",
    "not running",
    "running",
    "no decision",
    "text",
    "beside nobody",
    "beside itself",
    "beside another width",
    "until now",
    "until half",
    "raises",
    "column",
    "review",
    "half",
    "nothing",
)


class WrongHook(QueuePolicy):
    """Answers what is no answer, in one of many ways."""

    name: ClassVar[str] = "wrong-hook"
    preemptive: ClassVar[bool] = True
    levels: ClassVar[int] = 2

    def __init__(self, way: str) -> None:
        self.way = way

    def key(self, job: JobView, now_ms: int, knobs: Knobs) -> int:
        answers = {"nan": float("nan"), "text": "first", "nan inside": (1, float("nan")), "none": None}
        if self.way == "raises":
            raise KeyError(job.id)
        return answers.get(self.way, Fraction(job.id))  # type: ignore[return-value]

    def level(self, job: JobView, knobs: Knobs) -> int:
        return {"level": 2, "half level": 0.5, "below": -1}.get(self.way, 0)  # type: ignore[return-value]

    def next_change_ms(self, job: JobView, knobs: Knobs) -> int | None:
        return {"never": 0, "past": -5, "half": 0.5}.get(self.way)  # type: ignore[return-value]


WRONG_HOOKS = (
    "nan",
    "text",
    "nan inside",
    "none",
    "raises",
    "level",
    "half level",
    "below",
    "never",
    "past",
    "half",
    "fraction",
)


class _NeitherNor:
    def __bool__(self) -> bool:
        raise OverflowError("neither true nor false")


class WrongPlan(QueuePolicy):
    """A plan whose functions answer what is no answer."""

    name: ClassVar[str] = "wrong-plan"

    def __init__(self, starve: object, consolidate: object = False) -> None:
        self.starve = starve
        self.consolidate = consolidate

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            preemptive=True,
            grades=(1_000,),
            starve_ms=lambda job: self.starve,  # type: ignore[arg-type,return-value]
            consolidate=lambda job: self.consolidate,  # type: ignore[arg-type,return-value]
        )


WRONG_PLANS = (WrongPlan(0.5), WrongPlan("never"), WrongPlan(-1), WrongPlan(None, _NeitherNor()))
