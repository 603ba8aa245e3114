"""Which CPU and memory are worth giving to a job: the shares with which it is never slower than its due."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from trimtab.cluster import VirtualCluster
from trimtab.curve import FULL_SPEED_PPM, Curve, Share


class Option(NamedTuple):
    """A share on one node and the speed with it, in ppm of that with the proportional share."""

    cores: int
    memory_mib: int
    speed_ppm: int

    @property
    def share(self) -> Share:
        return Share(self.cores, self.memory_mib)


class Ladder(NamedTuple):
    """What a job on one node may be given: as fast as with its proportional share, or faster.

    Attributes:
        options: By cores, then memory; none needs as much of both as another that is as fast.
        lean: The least it may be left with: fewest cores, within the proportional share in both.
        best: The fastest, of those the one with fewest cores.
    """

    options: tuple[Option, ...]
    lean: Option
    best: Option


@lru_cache(maxsize=4096)
def ladder(curve: Curve, gpus: int, vc: VirtualCluster) -> Ladder | None:
    """Return the shares worth giving to a job of so many GPUs on one node, None if there is no choice.

    The proportional share is always one that is allowed, or is as good as another that takes less.
    """
    due = vc.proportional(gpus)
    options: list[Option] = []
    for one in sorted(_candidates(curve, gpus, vc)):
        if all(one.memory_mib < held.memory_mib or one.speed_ppm > held.speed_ppm for held in options):
            options.append(one)
    within = [one for one in options if one.cores <= due.cores and one.memory_mib <= due.memory_mib]
    if not within:
        return None
    fastest_ppm = max(one.speed_ppm for one in options)
    best = next(one for one in options if one.speed_ppm == fastest_ppm)
    return Ladder(tuple(options), within[0], best)


def _candidates(curve: Curve, gpus: int, vc: VirtualCluster) -> Iterator[Option]:
    """Yield whole cores x measured sizes of memory that a node has, and the proportional share."""
    due, most = vc.proportional(gpus), vc.node_share
    least_mib = curve.footprint_mib * gpus
    sizes_mib = {max(size_mib * gpus, least_mib) for size_mib in curve.memory_mib}
    for memory_mib in sorted(one for one in sizes_mib if one <= most.memory_mib):
        for cores in range(1, most.cores + 1):
            speed_ppm = vc.speed_ppm(curve, gpus, Share(cores, memory_mib))
            if speed_ppm >= FULL_SPEED_PPM:
                yield Option(cores, memory_mib, speed_ppm)
    if due.cores >= 1 and due.memory_mib >= least_mib:
        yield Option(due.cores, due.memory_mib, FULL_SPEED_PPM)


class Seat:
    """A job on a node: what it may be given there and what it has."""

    __slots__ = ("at", "gpus", "id", "ladder")

    def __init__(self, job_id: int, gpus: int, choices: Ladder | None, due: Share) -> None:
        """Seat a job with its least share, or with its proportional one where there is no choice."""
        self.id = job_id
        self.gpus = gpus
        self.ladder = choices
        self.at = Option(due.cores, due.memory_mib, FULL_SPEED_PPM) if choices is None else choices.lean


class Room:
    """CPU and memory of one node, given to its jobs one after the other."""

    def __init__(self, share: Share) -> None:
        self.cores, self.memory_mib = share
        self.seats: list[Seat] = []

    def holds(self, share: Option) -> bool:
        """Whether so much is left."""
        return share.cores <= self.cores and share.memory_mib <= self.memory_mib

    def add(self, seat: Seat, want: Option | None = None) -> None:
        """Let a job in with what it wants, or else its least share, for which others give back theirs.

        Whoever has most cores for each GPU gives back first, then most memory, then who came first. As each
        has at most its proportional part afterwards, and the GPUs fit, this cannot fail.
        """
        if want is not None and self.holds(want):
            seat.at = want
        givers = sorted(self.seats, key=_most_for_each_gpu)
        while not self.holds(seat.at):
            self.give(giver := givers.pop(0), giver.at if giver.ladder is None else giver.ladder.lean)
        self._take(seat.at, 1)
        self.seats.append(seat)

    def give(self, seat: Seat, option: Option) -> None:
        """Change what a job has."""
        self._take(seat.at, -1)
        self._take(option, 1)
        seat.at = option

    def _take(self, option: Option, sign: int) -> None:
        self.cores -= sign * option.cores
        self.memory_mib -= sign * option.memory_mib

    def fill(self, node: Share) -> None:
        """Give what is left where it adds most speed for its part of the node, until it adds none."""
        while (found := self._best_rise(node)) is not None:
            self.give(*found)

    def _best_rise(self, node: Share) -> tuple[Seat, Option] | None:
        """Return the rise with most speed for its cost; of equal ones that of the first job, the least."""
        found: tuple[Seat, Option] | None = None
        most, least = 0, 1  # its gain and cost
        for seat in self.seats:
            for option in seat.ladder.options if seat.ladder is not None else ():
                cores, memory_mib = option.cores - seat.at.cores, option.memory_mib - seat.at.memory_mib
                if not (0 <= cores <= self.cores and 0 <= memory_mib <= self.memory_mib):
                    continue
                gain = option.speed_ppm - seat.at.speed_ppm
                cost = cores * node.memory_mib + memory_mib * node.cores
                if gain > 0 and gain * least > most * cost:
                    found, most, least = (seat, option), gain, cost
        return found


def _most_for_each_gpu(seat: Seat) -> tuple[int, int]:
    scale = FULL_SPEED_PPM
    return -(seat.at.cores * scale // seat.gpus), -(seat.at.memory_mib * scale // seat.gpus)
