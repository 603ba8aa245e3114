"""How fast a job is with how much CPU and memory: a curve over both, in whole numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

# Work is counted in milliseconds x parts per million of full speed, so decimal speeds are exact.
FULL_SPEED_PPM = 1_000_000


class Share(NamedTuple):
    """CPU and memory of a job on one node, of several jobs together, or what is left of a node."""

    cores: int
    memory_mib: int

    def plus(self, other: Share) -> Share:
        """Return both together."""
        return Share(self.cores + other.cores, self.memory_mib + other.memory_mib)

    def less(self, part: Share) -> Share:
        """Return what is left without a part; below 0 where the part is larger."""
        return Share(self.cores - part.cores, self.memory_mib - part.memory_mib)

    def within(self, room: Share) -> Share:
        """Return as much of it as a room has, of cores and of memory."""
        return Share(min(self.cores, room.cores), min(self.memory_mib, room.memory_mib))

    def fits(self, room: Share) -> bool:
        """Whether a room has so much of both."""
        return self.cores <= room.cores and self.memory_mib <= room.memory_mib

    def text(self) -> str:
        """Return it as a timeline tells it."""
        return f"{self.cores} cores {self.memory_mib} MiB"


NOTHING = Share(0, 0)


def total(shares: Iterable[Share]) -> Share:
    """Return all shares together."""
    return reduce(Share.plus, shares, NOTHING)


@dataclass(frozen=True, slots=True)
class Curve:
    """Relative speed over CPU cores x memory, both for each GPU of a job.

    Between two measured numbers of cores the speed runs straight, from 0 at none; beyond the last one it
    stays. Memory counts in steps: what lies between two sizes is as good as the smaller one; below the
    smallest, that one counts (what a job cannot run without is its footprint).

    Attributes:
        cores: Measured numbers of cores for each GPU, ascending, shape (c,).
        memory_mib: Measured sizes of memory for each GPU, ascending, shape (m,).
        speeds_ppm: Speed by memory (row) and cores, shape (m, c).
        footprint_mib: Memory for each GPU without which the job does not run.
    """

    cores: tuple[int, ...]
    memory_mib: tuple[int, ...]
    speeds_ppm: tuple[tuple[int, ...], ...]
    footprint_mib: int = 0

    def at(self, gpus: int, share: Share) -> int:
        """Return the speed of a job of so many GPUs with a share, in ppm of what the curve calls 1."""
        row = bisect_right(self.memory_mib, share.memory_mib // gpus) - 1
        return self._along(self.speeds_ppm[max(0, row)], gpus, share.cores)

    def _along(self, speeds_ppm: tuple[int, ...], gpus: int, cores: int) -> int:
        place = bisect_right(self.cores, cores // gpus)
        if place == len(self.cores):
            return speeds_ppm[-1]
        low, low_ppm = (self.cores[place - 1], speeds_ppm[place - 1]) if place else (0, 0)
        rise_ppm = speeds_ppm[place] - low_ppm
        return low_ppm + rise_ppm * (cores - gpus * low) // (gpus * (self.cores[place] - low))
