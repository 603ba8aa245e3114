"""Fewer jobs for the same work: arrivals that are alike are simulated side by side as one (AutoSched, §5).

Jobs of one virtual cluster and width that are submitted in the same span of time and run about as long become
one job of as many GPUs as they ask for together, at most a node's. Its scheduler sees one member (see
`JobFacts.members`); means and percentiles count all of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from trimtab.job import JobFacts


@dataclass(frozen=True, slots=True)
class Coarseness:
    """How alike jobs must be to become one.

    Attributes:
        arrivals_ms: Length of the spans of submit time, ms.
        log_run: Length of the spans of run time, in natural logarithms.
        members_max: Most jobs in one.
    """

    arrivals_ms: int
    log_run: float
    members_max: int


# From coarse to fine, as calibration tries them.
LADDER = (
    Coarseness(3_600_000, 1.0, 8),
    Coarseness(900_000, 0.7, 8),
    Coarseness(300_000, 0.7, 8),
    Coarseness(300_000, 0.7, 2),
)

# A job and how long it runs, ms.
Run = tuple[JobFacts, int]


def aggregate(
    facts: Sequence[JobFacts], durations_ms: Sequence[int], how: Coarseness, gpus_max: int
) -> tuple[list[JobFacts], list[int]]:
    """Return fewer jobs with the same service, to the GPU-ms, by submit time.

    A group is submitted at the mean of its members' times and runs as long as their mean; what whole
    milliseconds leave over is carried on to the next group of that kind, and the last job of a kind, which
    stays alone, takes it. Jobs of a kind have one virtual cluster, width, skew, spread speed, profile, class
    of service and curve; a group's deadlines are as far off as its first job's.

    Args:
        facts: Jobs that have not been submitted yet, by submit time.
        durations_ms: Their run times, ms.
        how: How alike jobs must be.
        gpus_max: Most GPUs a group may ask for: a node's, or less where a virtual cluster is smaller.
            Jobs that want as much themselves stay alone.
    """
    alone: list[Run] = []
    kinds: dict[Hashable, list[Run]] = {}
    for run in zip(facts, durations_ms, strict=True):
        one = run[0]
        fits = one.members == 1 and 2 * one.gpus <= gpus_max
        kind = one.vc, one.gpus, one.skew_ppm, one.spread_ppm, one.profile, one.service.kind, one.curve
        (kinds.setdefault(kind, []) if fits else alone).append(run)
    merged = alone
    for jobs in kinds.values():
        merged += _merge(jobs, how, min(how.members_max, gpus_max // jobs[0][0].gpus))
    merged.sort(key=lambda run: run[0].submit_ms)
    return [one for one, _ in merged], [run_ms for _, run_ms in merged]


def _merge(jobs: Sequence[Run], how: Coarseness, most: int) -> Iterable[Run]:
    """Merge jobs of one kind, at most so many at a time; the last stays alone."""
    *others, (last, last_ms) = jobs
    open_groups: dict[tuple[int, int], list[Run]] = {}
    full: list[list[Run]] = []
    for run in others:
        kind = run[0].submit_ms // how.arrivals_ms, math.floor(math.log(max(run[1], 1)) / how.log_run)
        group = open_groups.setdefault(kind, [])
        group.append(run)
        if len(group) == most:
            full.append(open_groups.pop(kind))
    left_ms = 0
    for group in [*full, *open_groups.values()]:
        run_ms, left_ms = divmod(sum(run_ms for _, run_ms in group) + left_ms, len(group))
        yield _side_by_side([one for one, _ in group]), run_ms
    yield last, last_ms + left_ms


def _side_by_side(members: Sequence[JobFacts]) -> JobFacts:
    first, count = members[0], len(members)
    if count == 1:
        return first
    submit_ms = sum(one.submit_ms for one in members) // count
    return first.submitted(submit_ms)._replace(gpus=first.gpus * count, members=count)
