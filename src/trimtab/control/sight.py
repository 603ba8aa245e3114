"""What is known of a scheduler at an instant, whole: all that a decision is made from, in memory and kept.

Kept, it is a few named parts. The name of a part is the digest of its text, and what does not change from
round to round (jobs that ended, what estimates have learned) has the same names again: it is there once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from trimtab.cluster import Cluster, VirtualCluster
from trimtab.control.adapter import State
from trimtab.control.standing import knobs_of
from trimtab.curve import FULL_SPEED_PPM, Curve, Share
from trimtab.errors import ConfigError, TrimtabError
from trimtab.forecast.durations import HistoryEstimator, Learned
from trimtab.forecast.history import NEVER_MS, Past
from trimtab.forecast.throughput import Throughput
from trimtab.job import BEST_EFFORT, JobFacts, JobState, JobView, Service
from trimtab.knobs import Knobs
from trimtab.profile import Profile
from trimtab.search.scene import Scene
from trimtab.search.space import SearchSpace
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.workload import Estimator
from trimtab.site import PLAIN_SITE, Site
from trimtab.traces.trace import DAY_MS

# The version of what is kept: of the columns of jobs and of everything else below.
SCHEMA = 2

# Jobs of one day stand together in parts of so many, as does what was learned, in its own order.
_ROWS = 256

_NAME_DIGITS = 32

# What a job's facts say again.
_GIVEN = ("facts", "gpus", "member_gpus", "submit_ms")
_JOB = tuple(name for name in JobView.__slots__ if name not in _GIVEN)
_PAST = ("vc", "user", "name")
_SCALARS = (
    *("now_ms", "arrived", "places", "tick_anchor_ms", "dirty", "reviews_ms", "sampled", "job_ms"),
    "memories",
)

T = TypeVar("T")


class Unkept(TrimtabError):
    """What was kept cannot be put together again."""


@dataclass(frozen=True, eq=False)
class Sight:
    """What is known at an instant; nothing in it is later.

    Attributes:
        state: The scheduler's jobs, as it showed them. cluster: what they run on.
        past: Every job submitted before, as known then. facts: what was submitted, by row of `past`.
        estimator: What estimates have learned.
        site: What partitions, qualities of service and accounts are worth.
    """

    state: State
    cluster: Cluster
    past: Past
    facts: list[JobFacts]
    estimator: HistoryEstimator
    site: Site = PLAIN_SITE

    def scene(self, knobs: Knobs, policy: str, environment: Environment, space: SearchSpace) -> Scene:
        """Return what a search begins with.

        Args:
            knobs: In force, as they were read back; the state may say an older setting.
            environment: With any estimator, policies are told estimates, learned from completed jobs alone.
        """
        environment = replace(environment, pace=Throughput.of(self.past.submit_ms.tolist()), site=self.site)
        if environment.estimator is not None:
            environment = replace(environment, estimator=self.estimator.fork())
        return Scene(
            snapshot=_renumbered(self.state, self.facts, knobs, environment.estimator),
            past=self.past,
            facts=self.facts,
            first_row=0,
            cluster=self.cluster,
            policy=policy,
            environment=environment,
            space=space,
        )


def _renumbered(
    state: State, facts: Sequence[JobFacts], knobs: Knobs, estimator: Estimator | None
) -> Snapshot:
    """Return the state with its jobs numbered by row, and without what only the scheduler may know."""
    snapshot, rows = state.snapshot, {one.label: row for row, one in enumerate(facts)}
    ids = {job.id: rows[label] for label, job in zip(state.labels, snapshot.jobs, strict=True)}
    jobs = []
    for label, job in zip(state.labels, snapshot.jobs, strict=True):
        twin = job.copy()
        twin.id = rows[label]
        twin.facts = job.facts._replace(label=label)
        twin.partner = None if job.partner is None else ids.get(job.partner)
        if estimator is None:
            twin.estimate_ms = None
        elif job.estimate_ms is None:
            twin.estimate_ms = estimator.estimate_ms(twin.id, twin.facts, snapshot.now_ms, 1.0)
        jobs.append(twin)
    return replace(
        snapshot,
        knobs=knobs,
        jobs=tuple(sorted(jobs, key=lambda job: job.id)),
        arrived=len(facts),
        crossing=tuple(sorted(ids[one] for one in snapshot.crossing if one in ids)),
        estimator=None,
    )


# ---- kept ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A sight as it is kept: the names of its parts, for an entry, and their texts.

    Attributes:
        names: By what they are parts of, in order. parts: the text of each name.
    """

    names: Mapping[str, Any]
    parts: Mapping[str, bytes]


def part_name(text: bytes) -> str:
    """Return the name of a part."""
    return hashlib.sha256(text).hexdigest()[:_NAME_DIGITS]


def names_in(names: Mapping[str, Any]) -> list[str]:
    """Return the names of all parts of a kept sight."""
    return [one for name, found in names.items() if name != "schema" for one in found]


def keep(sight: Sight) -> Kept:
    """Return a sight in parts."""
    learned, snapshot = sight.estimator.learned(), sight.state.snapshot
    there = frozenset(sight.state.labels)
    texts = {
        "head": [_text(_head(sight, learned))],
        "jobs": [_text(_rows(sight, rows, there)) for rows in _by_day(sight.past)],
        "learned": [_text(_lessons(some)) for some in _aligned(learned.jobs, learned.first)],
        "completed": [_text(list(some)) for some in _aligned(snapshot.completed_gpu_ms, 0)],
    }
    names = {name: [part_name(text) for text in some] for name, some in texts.items()}
    parts = dict(zip(names_in(names), (text for some in texts.values() for text in some), strict=True))
    return Kept({"schema": SCHEMA, **names}, parts)


def kept_again(kept: Kept) -> Sight:
    """Return a sight from its parts.

    Raises:
        Unkept: If a part is not what its name says, or they make no sight.
    """
    if kept.names.get("schema") != SCHEMA:
        raise Unkept(f"the state is of schema {kept.names.get('schema')!r:.40}, this Trimtab reads {SCHEMA}")
    for name in names_in(kept.names):
        if name not in kept.parts:
            raise Unkept(f"part {name} of the state is not there")
    for name, text in kept.parts.items():
        if part_name(text) != name:
            raise Unkept(f"part {name} of the state is not what was written")
    try:
        return _again({name: [json.loads(kept.parts[one]) for one in kept.names[name]] for name in _PARTS})
    except (ConfigError, KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        raise Unkept(
            f"the state cannot be put together ({type(problem).__name__}: {problem!s:.80})"
        ) from None


_PARTS = ("head", "jobs", "learned", "completed")


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _aligned(values: Sequence[T], first: int) -> Iterator[Sequence[T]]:
    """Yield runs that end where a count from `first` on is a multiple of `_ROWS`: they stay the same."""
    begin = 0
    while begin < len(values):
        end = begin + _ROWS - (first + begin) % _ROWS
        yield values[begin:end]
        begin = end


def _by_day(past: Past) -> Iterator[range]:
    """Yield runs of rows submitted on one day."""
    days = past.submit_ms // DAY_MS
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(past)]
    for begin, end in pairwise(edges):
        for first in range(begin, end, _ROWS):
            yield range(first, min(first + _ROWS, end))


def _head(sight: Sight, learned: Learned) -> dict[str, Any]:
    """Return what is another one at every instant: who is there, and where they stand."""
    state, snapshot = sight.state, sight.state.snapshot
    rows = {one.label: row for row, one in enumerate(sight.facts)}
    at = [rows[label] for label in state.labels]
    told = [job.facts._replace(label=label) for label, job in zip(state.labels, snapshot.jobs, strict=True)]
    others = [place for place, row in enumerate(at) if told[place] != sight.facts[row]]
    return {
        **{name: getattr(snapshot, name) for name in _SCALARS},
        "knobs": snapshot.knobs.jsonable(),
        "crossing": snapshot.crossing,
        "rows": at,
        "jobs": {name: [_plain(getattr(job, name)) for job in snapshot.jobs] for name in _JOB},
        "others": [others, _facts([told[place] for place in others])],
        "cluster": [sight.cluster.pooled, [[getattr(vc, one) for one in _VC] for vc in sight.cluster.vcs]],
        "learned": [learned.first, learned.first_ms, learned.now_ms],
        **({} if sight.site == PLAIN_SITE else {"site": sight.site.tables()}),
    }


_VC = tuple(field.name for field in fields(VirtualCluster))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, JobState) else value


def _rows(sight: Sight, rows: range, there: frozenset[str]) -> dict[str, Any]:
    """Return some rows of the past; of jobs that are there the state says how long they have run."""
    past, facts = sight.past, sight.facts[rows.start : rows.stop]
    part = slice(rows.start, rows.stop)
    ran = zip(facts, past.ran_ms[part].tolist(), strict=True)
    return {
        **_facts(facts),
        "ids": [getattr(past, name)[part].tolist() for name in _PAST],
        "finish_ms": [None if one == NEVER_MS else one for one in past.finish_ms[part].tolist()],
        "ran_ms": [None if one.label in there else ran_ms for one, ran_ms in ran],
    }


def _lessons(jobs: Sequence[tuple[JobFacts, int]]) -> dict[str, Any]:
    return {**_facts([facts for facts, _ in jobs]), "ran_ms": [ran_ms for _, ran_ms in jobs]}


def _facts(facts: Sequence[JobFacts]) -> dict[str, Any]:
    """Return facts as columns, without those that say the usual of every job."""
    columns = {name: [getattr(one, name) for one in facts] for name in JobFacts._fields}
    usual = JobFacts._field_defaults
    found = {
        name: column
        for name, column in columns.items()
        if name not in usual or any(value != usual[name] for value in column)
    }
    for name, pack in _PACKED.items():
        if name in found:
            found[name] = [None if value is None else pack(value) for value in found[name]]
    return found


_PACKED: dict[str, Callable[[Any], Any]] = {
    "profile": lambda one: [getattr(one, field.name) for field in fields(Profile)],
    "service": lambda one: None if one == BEST_EFFORT else list(one),
    "curve": lambda one: [one.cores, one.memory_mib, one.speeds_ppm, one.footprint_mib],
}


# ---- and back --------------------------------------------------------------------------------------


def _again(found: Mapping[str, list[Any]]) -> Sight:
    (head,) = found["head"]
    facts = [one for part in found["jobs"] for one in _facts_again(part)]
    state = _state_again(head, facts, [one for part in found["completed"] for one in part])
    first, first_ms, now_ms = head["learned"]
    jobs = [pair for part in found["learned"] for pair in _lessons_again(part)]
    estimator = HistoryEstimator.relearned(Learned(first, jobs, first_ms, now_ms))
    pooled, vcs = head["cluster"]
    cluster = Cluster(tuple(VirtualCluster(*values) for values in vcs), pooled)
    site = Site.of_tables("the state", head.get("site", {}))
    return Sight(state, cluster, _past_again(state, facts, found["jobs"]), facts, estimator, site)


def _facts_again(part: Mapping[str, Any]) -> Iterator[JobFacts]:
    names = [name for name in JobFacts._fields if name in part]
    unpack = [_UNPACKED.get(name) for name in names]
    for values in zip(*(part[name] for name in names), strict=True):
        given: dict[str, Any] = {
            name: value if again is None else again(value)
            for name, value, again in zip(names, values, unpack, strict=True)
        }
        yield JobFacts(**given)


_UNPACKED: dict[str, Callable[[Any], Any]] = {
    "profile": lambda one: None if one is None else Profile(*one),
    "service": lambda one: BEST_EFFORT if one is None else Service(one[0], tuple(one[1]), tuple(one[2])),
    "curve": lambda one: None if one is None else _curve_again(*one),
}


def _curve_again(cores: list[int], sizes: list[int], speeds: list[list[int]], footprint: int) -> Curve:
    return Curve(tuple(cores), tuple(sizes), tuple(tuple(row) for row in speeds), footprint)


def _lessons_again(part: Mapping[str, Any]) -> Iterator[tuple[JobFacts, int]]:
    return zip(_facts_again(part), part["ran_ms"], strict=True)


def _state_again(head: Mapping[str, Any], facts: Sequence[JobFacts], completed: list[int]) -> State:
    places, others = head["others"]
    told = [facts[row] for row in head["rows"]]
    for place, other in zip(places, _facts_again(others), strict=True):
        told[place] = other
    columns = [head["jobs"][name] for name in _JOB]
    jobs = [_view(one, values) for one, values in zip(told, zip(*columns, strict=True), strict=True)]
    scalars = {name: _tuple(head[name]) for name in _SCALARS}
    snapshot = Snapshot(
        **scalars,
        knobs=knobs_of(head["knobs"]),
        jobs=tuple(jobs),
        completed_gpu_ms=tuple(completed),
        estimator=None,
        crossing=tuple(head["crossing"]),
    )
    return State(snapshot, tuple(one.label for one in told))


def _view(facts: JobFacts, values: Sequence[Any]) -> JobView:
    given = dict(zip(_JOB, values, strict=True))
    job = JobView(given["id"], facts, given["home"], given["estimate_ms"])
    for name, value in given.items():
        setattr(job, name, _tuple(value))
    job.state = JobState(given["state"])
    job.share = None if given["share"] is None else Share(*given["share"])
    return job


def _tuple(value: Any) -> Any:
    return tuple(_tuple(one) for one in value) if isinstance(value, list) else value


def _past_again(state: State, facts: Sequence[JobFacts], parts: Sequence[Mapping[str, Any]]) -> Past:
    done = {
        label: job.done // FULL_SPEED_PPM
        for label, job in zip(state.labels, state.snapshot.jobs, strict=True)
    }
    finish_ms = [NEVER_MS if one is None else one for part in parts for one in part["finish_ms"]]
    ran = zip(facts, (one for part in parts for one in part["ran_ms"]), strict=True)
    columns = {
        **{name: [one for part in parts for one in part["ids"][at]] for at, name in enumerate(_PAST)},
        "submit_ms": [one.submit_ms for one in facts],
        "gpus": [one.gpus for one in facts],
        "finish_ms": finish_ms,
        "ran_ms": [done[one.label] if ran_ms is None else ran_ms for one, ran_ms in ran],
    }
    arrays = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    return Past(now_ms=state.snapshot.now_ms, **arrays)
