"""What CPU and memory do to a job on one node: its best demand, what it needs without loss, and its label.

[SensaScale: "sensitive and insensitive by dependence on CPU and memory"; thresholds are ours.]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from trimtab.cluster import VirtualCluster
from trimtab.curve import FULL_SPEED_PPM, Curve, Share

Label = Literal["sensitive", "insensitive", "neutral"]


class Thresholds(NamedTuple):
    """Where labels change, in ppm of the speed with the proportional share.

    Attributes:
        theta_ppm: Gain above which a job is sensitive.
        delta_ppm: Loss that counts as none.
        eps_ppm: How far below its top speed the best demand may stay.
    """

    theta_ppm: int = 100_000
    delta_ppm: int = 0
    eps_ppm: int = 20_000


class Traits(NamedTuple):
    """What follows from a job's curve, its GPUs and the size of its node.

    Attributes:
        best: The smallest share with (nearly) its top speed. best_ppm: its speed with it.
        least: The smallest share without loss, never more than the proportional one.
        label: Sensitive jobs gain from more than their part; insensitive ones can do with less.
    """

    best: Share
    best_ppm: int
    least: Share
    label: Label


@lru_cache(maxsize=4096)
def traits_of(vc: VirtualCluster, curve: Curve | None, gpus: int, at: Thresholds) -> Traits:
    """Return the traits of a job; without a curve, or wider than a node, it has its part and no wishes."""
    part = vc.proportional(gpus)
    unmoved = Traits(part, FULL_SPEED_PPM, part, "neutral")
    if curve is None or gpus > vc.gpus_per_node or part.cores < 1:
        return unmoved
    speeds = [(share, vc.speed_ppm(curve, gpus, share)) for share in _grid(curve, gpus, vc.node_share)]
    if not speeds:
        return unmoved
    top_ppm = max(speed for _, speed in speeds)
    enough_ppm = max(FULL_SPEED_PPM, top_ppm * (FULL_SPEED_PPM - at.eps_ppm) // FULL_SPEED_PPM)
    best, best_ppm = next(
        ((share, speed) for share, speed in speeds if speed >= enough_ppm), (part, FULL_SPEED_PPM)
    )
    least = next(
        (
            share
            for share in _grid(curve, gpus, part)
            if vc.speed_ppm(curve, gpus, share) >= FULL_SPEED_PPM - at.delta_ppm
        ),
        part,
    )
    is_sensitive = best_ppm - FULL_SPEED_PPM > at.theta_ppm
    label: Label = "sensitive" if is_sensitive else "insensitive" if least != part else "neutral"
    return Traits(best, best_ppm, least, label)


def _grid(curve: Curve, gpus: int, most: Share) -> Iterator[Share]:
    """Return the shares at measured points up to `most`, and those at its edges, fewest cores first."""
    for cores in _steps(curve.cores, gpus, most.cores):
        for memory_mib in _steps(curve.memory_mib, gpus, most.memory_mib):
            if cores >= 1 and memory_mib >= curve.footprint_mib * gpus:
                yield Share(cores, memory_mib)


def _steps(per_gpu: tuple[int, ...], gpus: int, most: int) -> list[int]:
    return [*(gpus * one for one in per_gpu if gpus * one < most), most]
