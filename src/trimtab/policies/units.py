"""Complementary pairing: a job that gains from CPU and memory with one that can spare them, as one unit.

A pair gets the proportional part of its GPUs, its envelope. Inside it the insensitive job drops to what it
needs without loss, and the sensitive one takes the rest [SensaScale: pairing within a category; scores are
ours].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.policies.urgency import Rank, Rated

NEAR_MS = 3_600_000  # latest starts are compared on the scale of an hour, or of the time until them


class Pairing(NamedTuple):
    """How partners are chosen.

    Attributes:
        scope: `class`: inside a service class; `all`: between any two with hope; `off`: nobody is paired.
        window: How many insensitive jobs are looked at. is_best: all pairs at once (the largest sum of
            scores) instead of one after another.
        memory_ppm, time_ppm, latest_ppm: Weights of memory, unlike run times and unlike latest starts.
        least_ppm: The score a pair must exceed.
    """

    scope: str
    window: int
    is_best: bool
    memory_ppm: int
    time_ppm: int
    latest_ppm: int
    least_ppm: int = 50_000


class Unit(NamedTuple):
    """One job, or a sensitive and an insensitive one that are to start on one node."""

    jobs: tuple[Rated, ...]

    @property
    def gpus(self) -> int:
        return sum(job.gpus for job in self.jobs)

    def shares(self) -> tuple[Share, ...]:
        """Return what each job gets in the unit."""
        if len(self.jobs) == 1:
            return (self.jobs[0].part,)
        return pair_shares(*self.jobs)

    def lefts_ms(self) -> list[int]:
        """Return the run times left with these shares."""
        if len(self.jobs) == 1:
            return [self.jobs[0].left_ms(FULL_SPEED_PPM)]
        return [
            job.left_ms(job.speed_ppm(share)) for job, share in zip(self.jobs, self.shares(), strict=True)
        ]

    def latest_ms(self, lefts_ms: Sequence[int]) -> int | None:
        """Return by when the unit has to start: the first of its jobs."""
        latest = [
            job.deadline_ms - left_ms
            for job, left_ms in zip(self.jobs, lefts_ms, strict=True)
            if job.deadline_ms is not None
        ]
        return min(latest, default=None)


def spare_of(job: Rated) -> Share:
    """Return what a job can give away of its part without loss."""
    return job.part.less(job.traits.least)


def need_of(job: Rated) -> Share:
    """Return what a job wants beyond its part."""
    part, best = job.part, job.traits.best
    return Share(max(0, best.cores - part.cores), max(0, best.memory_mib - part.memory_mib))


def pair_shares(sensitive: Rated, insensitive: Rated) -> tuple[Share, Share]:
    """Return what both get: the insensitive one its least, the other what that leaves, up to its best demand.

    Cores that are left over go back to the insensitive one.
    """
    given = need_of(sensitive).within(spare_of(insensitive))
    left = Share(insensitive.part.cores - given.cores, insensitive.traits.least.memory_mib)
    return sensitive.part.plus(given), left


def category(job: Rated, scope: str) -> tuple[int, str]:
    """Return the class inside which a job is paired; the hopeless are always among themselves."""
    if job.rank is Rank.HOPELESS:
        return int(Rank.HOPELESS), ""
    return (0, "") if scope == "all" else (int(job.rank), job.job.facts.service.kind)


def make_units(jobs: Sequence[Rated], how: Pairing, now_ms: int) -> list[Unit]:
    """Return the units of jobs that wait, given most urgent first, in the order of their first jobs."""
    paired: dict[int, Unit] = {}
    if how.scope != "off":
        for group in _by_category(jobs, how.scope):
            paired.update(_pairs(group, how, now_ms))
    units, seen = [], set()
    for job in jobs:
        unit = paired.get(job.id, Unit((job,)))
        if unit.jobs[0].id not in seen:
            seen.add(unit.jobs[0].id)
            units.append(unit)
    return units


def _by_category(jobs: Sequence[Rated], scope: str) -> list[list[Rated]]:
    groups: dict[tuple[int, str], list[Rated]] = {}
    for job in jobs:
        if job.on_one_node:
            groups.setdefault(category(job, scope), []).append(job)
    return list(groups.values())


def _pairs(jobs: Sequence[Rated], how: Pairing, now_ms: int) -> dict[int, Unit]:
    """Return the pairs among jobs of one class, by both their ids."""
    sensitive = [job for job in jobs if job.traits.label == "sensitive"]
    insensitive = [job for job in jobs if job.traits.label == "insensitive"]
    choose = _matched if how.is_best else _greedy
    return {
        job.id: Unit((one, other))
        for one, other in choose(sensitive, insensitive, how, now_ms)
        for job in (one, other)
    }


def _greedy(
    sensitive: Sequence[Rated], insensitive: Sequence[Rated], how: Pairing, now_ms: int
) -> list[tuple[Rated, Rated]]:
    found, left = [], list(insensitive)
    for one in sensitive[: how.window]:
        fits = [other for other in left[: how.window] if one.gpus + other.gpus <= one.vc.gpus_per_node]
        scored = [(-score_ppm(one, other, how, now_ms), place) for place, other in enumerate(fits)]
        if scored and -min(scored)[0] > how.least_ppm:
            other = fits[min(scored)[1]]
            left.remove(other)
            found.append((one, other))
    return found


def _matched(
    sensitive: Sequence[Rated], insensitive: Sequence[Rated], how: Pairing, now_ms: int
) -> list[tuple[Rated, Rated]]:
    rows, columns = sensitive[: how.window], insensitive[: how.window]
    gains = [[_gain_ppm(one, other, how, now_ms) for other in columns] for one in rows]
    return [(rows[row], columns[column]) for row, column in assignment(gains) if gains[row][column] > 0]


def _gain_ppm(one: Rated, other: Rated, how: Pairing, now_ms: int) -> int:
    if one.gpus + other.gpus > one.vc.gpus_per_node:
        return 0
    return max(0, score_ppm(one, other, how, now_ms) - how.least_ppm)


def score_ppm(one: Rated, other: Rated, how: Pairing, now_ms: int) -> int:
    """Return how well an insensitive job serves a sensitive one: what it gives, less how unlike they are.

    Source: sensascale.md 3.4, with an hour as the scale of latest starts.
    """
    need, spare = need_of(one), spare_of(other)
    cores_ppm = min(need.cores, spare.cores) * FULL_SPEED_PPM // max(1, one.part.cores)
    memory_ppm = min(need.memory_mib, spare.memory_mib) * FULL_SPEED_PPM // max(1, one.part.memory_mib)
    ours_ms = one.left_ms(one.speed_ppm(pair_shares(one, other)[0]))
    its_ms = other.left_ms(FULL_SPEED_PPM)
    unlike_ppm = abs(ours_ms - its_ms) * FULL_SPEED_PPM // max(1, ours_ms, its_ms)
    return (
        cores_ppm
        + memory_ppm * how.memory_ppm // FULL_SPEED_PPM
        - unlike_ppm * how.time_ppm // FULL_SPEED_PPM
        - _apart_ppm(one, other, now_ms) * how.latest_ppm // FULL_SPEED_PPM
    )


def _apart_ppm(one: Rated, other: Rated, now_ms: int) -> int:
    """Return how far latest starts are apart; one with a deadline and one without count as an hour."""
    ours_ms, its_ms = one.latest_ms(), other.latest_ms()
    if ours_ms is None or its_ms is None:
        return 0 if ours_ms is its_ms else FULL_SPEED_PPM
    return abs(ours_ms - its_ms) * FULL_SPEED_PPM // max(NEAR_MS, abs(ours_ms - now_ms))


def assignment(gains: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return (row, column) pairs, each row and column once, with the largest sum of gains (none negative).

    Rows are entered one after another along a cheapest path with prices on both sides (Kuhn, Munkres), in
    whole numbers; of equal paths the one over the lower column counts.
    """
    size = max(len(gains), max((len(row) for row in gains), default=0))
    costs = [[-gain for gain in row] + [0] * (size - len(row)) for row in gains]
    costs += [[0] * size for _ in range(size - len(costs))]
    row_of = [-1] * size
    row_prices, column_prices = [0] * size, [0] * size
    for row in range(size):
        _enter(row, costs, row_of, row_prices, column_prices)
    taken = [(row, column) for column, row in enumerate(row_of)]
    return sorted((row, column) for row, column in taken if row < len(gains) and column < len(gains[row]))


def _enter(
    row: int,
    costs: Sequence[Sequence[int]],
    row_of: list[int],
    row_prices: list[int],
    column_prices: list[int],
) -> None:
    size = len(row_of)
    gaps: list[int | None] = [None] * size
    came_from, reached = [-1] * size, [False] * size
    path: list[tuple[int, int]] = []  # rows on the tree, each with the column that led to it
    current, led_by = row, -1
    while True:
        path.append((current, led_by))
        for column in range(size):
            if not reached[column]:
                gap = costs[current][column] - row_prices[current] - column_prices[column]
                known = gaps[column]
                if known is None or gap < known:
                    gaps[column], came_from[column] = gap, led_by
        step, chosen = min(
            (gap, column) for column, gap in enumerate(gaps) if not reached[column] and gap is not None
        )
        for member, column in path:
            row_prices[member] += step
            if column >= 0:
                column_prices[column] -= step
        gaps = [gap if gap is None or reached[at] else gap - step for at, gap in enumerate(gaps)]
        reached[chosen] = True
        if row_of[chosen] < 0:
            break
        current, led_by = row_of[chosen], chosen
    column = chosen
    while came_from[column] >= 0:
        row_of[column] = row_of[came_from[column]]
        column = came_from[column]
    row_of[column] = row
