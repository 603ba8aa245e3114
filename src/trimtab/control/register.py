"""The jobs of a live scheduler as far as they are known: its events and states, put together.

Events may come twice, late or out of order. Each is taken once, by its number, and a job is what all of its
events together say, whatever their order. A state says who is there; where it contradicts events, it counts.

Of a job that has ended and of which no event is taken any more, only what it came to is kept. There is room
for `ENDED_MAX` of those that are not there any more; beyond that the oldest are let go, and counted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from trimtab.cluster import Cluster, Placement
from trimtab.control.adapter import JobEvent, State
from trimtab.control.sight import Sight
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import TrimtabError
from trimtab.forecast.durations import KEEP_JOBS, HistoryEstimator
from trimtab.forecast.history import MEMORY_MS, NEVER_MS, Integers, Past
from trimtab.job import JobFacts, JobState, JobView
from trimtab.site import PLAIN_SITE, Site

# Numbers of events so far behind the latest one are taken to have been seen.
WINDOW = 4096

# Jobs that are remembered although they are not there any more: four weeks of the busiest trace known to us
# have 46,000. When there are more, the oldest quarter is let go: parts of states stay the same for as long.
ENDED_MAX = 65_536
_KEPT_OF_FOUR = 3

# A state lacks jobs now and then that ended a moment ago; more than this share is a torn one.
_LACKING_MAX = 0.1

_MOVES = {"start": 1, "preempt": 0, "finish": 0, "cancel": 0}

_NEVER_MOVED: frozenset[tuple[int, int, bool]] = frozenset()


class Torn(TrimtabError):
    """A state contradicts itself or what is known: nothing may be decided on it."""


@dataclass(slots=True)
class _Known:
    """What is known of a job; `serial` is the order in which jobs were first heard of."""

    serial: int
    facts: JobFacts | None = None
    moves: frozenset[tuple[int, int, bool]] = _NEVER_MOVED  # time, event, whether it runs from then
    ended_ms: int = NEVER_MS
    cancelled: bool = False
    ran_ms: int | None = None  # as the scheduler said of a completed job
    done_ms: int = 0  # work done as the last state that held it had it; all of it, once that is settled
    vanished: bool = False  # it was there, is not any more, and nobody said how it ended

    def worked_ms(self, now_ms: int) -> int:
        """Return how long it has run by an instant, as its events have it, and no less than was seen."""
        total_ms, since_ms = 0, None
        for time_ms, _, runs in sorted(self.moves):
            if since_ms is not None:
                total_ms += max(0, min(time_ms, now_ms) - since_ms)
            since_ms = time_ms if runs and time_ms < now_ms else None
        if since_ms is not None:
            total_ms += now_ms - since_ms
        return max(total_ms, self.done_ms)

    def heard_ms(self) -> int:
        """Return when it was submitted, or, where nobody has told, its first event."""
        return self.facts.submit_ms if self.facts else min(self.moves)[0]

    def settle(self) -> None:
        """Keep what it ran in place of the events that say so."""
        self.done_ms, self.moves = self.worked_ms(self.ended_ms), _NEVER_MOVED


class Register:
    """All jobs heard of within the memory, and what they say at an instant.

    Args:
        ended_max: How many are remembered that are not there any more.

    Attributes:
        after: The number after which the scheduler is to be asked for events; some come twice.
        events: How many were taken, each once.
        let_go: How many jobs were forgotten sooner than by their age, for want of room.
    """

    def __init__(self, ended_max: int = ENDED_MAX) -> None:
        self._ended_max, self.let_go = ended_max, 0
        self._jobs: dict[str, _Known] = {}
        self._unsettled: deque[tuple[int, str]] = deque()  # jobs that have ended, by the number that says so
        self._numbers: set[int] = set()
        self._latest = 0
        self._serial = 0
        self._labels: dict[tuple[str, str], int] = {}
        self._numbered = 0
        self._missed: frozenset[str] = frozenset()
        self._unlearned: list[str] = []  # jobs that have completed, of which estimates have not learned yet
        self._estimator = HistoryEstimator(min(KEEP_JOBS, ended_max))
        self.events = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def after(self) -> int:
        return max(0, self._latest - WINDOW // 8)

    @property
    def latest(self) -> int:
        """The largest number of an event so far, 0 before the first."""
        return self._latest

    def hear(self, events: Iterable[JobEvent]) -> None:
        """Take events, each once."""
        for event in events:
            if event.number in self._numbers or event.number <= self._latest - WINDOW:
                continue
            self._numbers.add(event.number)
            self._latest = max(self._latest, event.number)
            self._take(event)
            self.events += 1
        if len(self._numbers) > 2 * WINDOW:
            self._numbers = {number for number in self._numbers if number > self._latest - WINDOW}
        self._settle()

    def _settle(self) -> None:
        """Keep less of the jobs that have ended and of which no event before the end can come any more."""
        while self._unsettled and self._unsettled[0][0] <= self._latest - WINDOW:
            _, label = self._unsettled.popleft()
            job = self._jobs.get(label)
            if job is None:
                continue
            if job.facts is None:
                del self._jobs[label]  # nobody will ever say what it was
            else:
                job.settle()

    def _take(self, event: JobEvent) -> None:
        job = self._job(event.label)
        if event.facts is not None:
            job.facts = _shared(event.facts, event.label)
        if event.kind == "submit":
            return
        job.moves |= {(event.time_ms, event.number, bool(_MOVES[event.kind]))}
        if event.kind in ("finish", "cancel"):
            job.ended_ms, job.cancelled = event.time_ms, event.kind == "cancel"
            job.ran_ms = event.ran_ms
            self._unsettled.append((event.number, event.label))
            if event.kind == "finish":
                self._unlearned.append(event.label)

    def _job(self, label: str) -> _Known:
        if label not in self._jobs:
            self._jobs[label] = _Known(self._serial)
            self._serial += 1
        return self._jobs[label]

    def see(self, state: State) -> None:
        """Take a state: who is there, and how far they are.

        Raises:
            Torn: If a job stands twice in it, more GPUs are held than asked for, or jobs are missing that
                must be there. What was known stays as it was; a second such state in a row is believed.
        """
        now_ms, jobs = state.snapshot.now_ms, state.snapshot.jobs
        if len(set(state.labels)) != len(jobs) or len(state.labels) != len(jobs):
            raise Torn("the state names a job twice: nothing is decided on it")
        for label, job in zip(state.labels, jobs, strict=True):
            known = self._job(label)
            known.facts = known.facts or _shared(job.facts, label)
            known.done_ms, known.vanished = job.done // FULL_SPEED_PPM, False
        lacking = self._lacking(state)
        again, self._missed = lacking & self._missed, lacking
        for label in again:
            self._jobs[label].vanished = True
        if len(lacking - again) > max(1, _LACKING_MAX * (len(jobs) + len(lacking))):
            raise Torn(
                f"the state lacks {len(lacking)} jobs that ought to be there: nothing is decided on it"
            )
        self._learn(now_ms)
        self.forget(now_ms, state.labels)

    def _learn(self, now_ms: int) -> None:
        """Let estimates learn of the jobs that completed by an instant, in the order in which they did."""
        known = [(self._jobs[label].ended_ms, label) for label in self._unlearned if label in self._jobs]
        ended = sorted((ended_ms, label) for ended_ms, label in known if ended_ms <= now_ms)
        for ended_ms, label in ended:
            job = self._jobs[label]
            if job.facts is not None:
                self._estimator.observe(job.facts, _ran_ms(job, None, ended_ms, True), ended_ms)
        self._unlearned = [label for ended_ms, label in known if ended_ms > now_ms]

    def _lacking(self, state: State) -> frozenset[str]:
        """Return the jobs that are not in a state although nothing says that they have ended."""
        now_ms, there = state.snapshot.now_ms, set(state.labels)
        return frozenset(
            label
            for label, job in self._jobs.items()
            if job.facts is not None
            and job.facts.submit_ms < now_ms < job.ended_ms
            and not job.vanished
            and label not in there
        )

    def forget(self, now_ms: int, there: Collection[str] = ()) -> None:
        """Drop jobs that are not there any more: those older than the memory, and what there is no room for.

        The numbers of their labels go with them.
        """
        still = set(there)
        gone = [
            (job.heard_ms(), label)
            for label, job in self._jobs.items()
            if (job.facts is None or job.ended_ms < now_ms or job.vanished) and label not in still
        ]
        dropped = [one for one in gone if one[0] < now_ms - MEMORY_MS]
        if len(gone) - len(dropped) > self._ended_max:
            old = len(dropped)
            dropped = sorted(gone)[: len(gone) - self._ended_max * _KEPT_OF_FOUR // 4]
            self.let_go += len(dropped) - old
        for _, label in dropped:
            del self._jobs[label]
        if dropped:
            kept = {key for job in self._jobs.values() if job.facts for key in _label_keys(job.facts)}
            self._labels = {key: number for key, number in self._labels.items() if key in kept}

    # ---- what they make --------------------------------------------------------------------------

    def _rows(self, state: State) -> list[tuple[str, JobFacts, _Known]]:
        """Return the jobs known at a state's instant, in submit order."""
        now_ms, there = state.snapshot.now_ms, set(state.labels)
        rows = [
            (label, job.facts, job)
            for label, job in self._jobs.items()
            if job.facts is not None and (label in there or self._belongs(job, now_ms))
        ]
        return sorted(rows, key=lambda row: (row[1].submit_ms, row[2].serial))

    def _belongs(self, job: _Known, now_ms: int) -> bool:
        """Whether a job that a state does not hold is part of the past: not if it ended before it ran."""
        assert job.facts is not None
        if job.facts.submit_ms >= now_ms:
            return False
        return not (job.cancelled and job.ended_ms <= now_ms and job.worked_ms(job.ended_ms) == 0)

    def past(self, state: State) -> tuple[Past, list[JobFacts]]:
        """Return what is known at a state's instant, nothing later, and what was submitted, by row."""
        now_ms, there = state.snapshot.now_ms, dict(zip(state.labels, state.snapshot.jobs, strict=True))
        rows = self._rows(state)
        facts = [one for _, one, _ in rows]
        ended = [label not in there and job.ended_ms <= now_ms for label, _, job in rows]
        past = Past(
            now_ms=now_ms,
            submit_ms=_integers([one.submit_ms for one in facts]),
            gpus=_integers([one.gpus for one in facts]),
            vc=_integers([self._number("vc", one.vc) for one in facts]),
            user=_integers([self._number("user", one.user) for one in facts]),
            name=_integers([self._number("name", one.name) for one in facts]),
            finish_ms=_integers(
                [
                    job.ended_ms if is_over else NEVER_MS
                    for (_, _, job), is_over in zip(rows, ended, strict=True)
                ]
            ),
            ran_ms=_integers(
                [
                    _ran_ms(job, there.get(label), now_ms, is_over)
                    for (label, _, job), is_over in zip(rows, ended, strict=True)
                ]
            ),
        )
        return past, facts

    def _number(self, kind: str, label: str | None) -> int:
        """Return the number of a label, the same one as long as any job in memory has it; -1 for none."""
        if label is None:
            return -1
        key = kind, label
        if key not in self._labels:
            self._labels[key] = self._numbered
            self._numbered += 1
        return self._labels[key]

    def sight(self, state: State, cluster: Cluster, site: Site = PLAIN_SITE) -> Sight:
        """Return all that is known at the instant of a state that was seen."""
        past, facts = self.past(state)
        return Sight(state, cluster, past, facts, self._estimator.fork(), site)


def _ran_ms(job: _Known, there: JobView | None, now_ms: int, ended: bool) -> int:
    if there is not None:
        return there.done // FULL_SPEED_PPM
    if ended and job.ran_ms is not None:
        return job.ran_ms
    return job.worked_ms(min(now_ms, job.ended_ms))


def _shared(facts: JobFacts, label: str) -> JobFacts:
    """Return a job's facts under its label, with texts that other jobs have too as the same objects."""
    vc, user, name = (text and sys.intern(text) for text in (facts.vc, facts.user, facts.name))
    return facts._replace(label=label, vc=vc, user=user, name=name)


def _label_keys(facts: JobFacts) -> list[tuple[str, str]]:
    named = (("vc", facts.vc), ("user", facts.user), ("name", facts.name))
    return [(kind, label) for kind, label in named if label is not None]


def _integers(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def check_held(state: State, cluster: Cluster, placement: Placement) -> None:
    """Refuse a state in which a node has more GPUs in use than it has, shared ones counted once.

    Raises:
        Torn: If there is one.
    """
    held: dict[tuple[int, int], int] = {}
    counted: set[int] = set()
    for job in state.snapshot.jobs:
        if job.state is not JobState.RUNNING or job.partner in counted:
            continue
        counted.add(job.id)
        for node, gpus in job.nodes:
            held[job.home, node] = held.get((job.home, node), 0) + gpus
    for (home, node), gpus in held.items():
        vc = cluster.vcs[home]
        if gpus > (vc.gpus if placement == "count" else vc.gpus_per_node):
            raise Torn(
                f"the state has {gpus} GPUs in use on node {node} of {vc.name}: nothing is decided on it"
            )
