"""How fast models are with how much CPU and memory: the built-in table, and what is made of a table.

The built-in numbers are those that Synergy (Mohan et al., OSDI'22) ships with its simulator: relative speed
of one GPU by CPU cores and memory, 1 with 3 cores and 62.5 GiB. Of wider gangs it tells the best speed that
they reach; their curves are cut off there. Synergy counts m5, which works on audio, among the speech models.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from trimtab.cluster import CORES_PER_GPU, MEMORY_MIB_PER_GPU
from trimtab.curve import FULL_SPEED_PPM, Curve, Share
from trimtab.world import Seeds

CLASSES = ("image", "language", "speech")

# A model is sensitive if more than the proportional share makes it faster by more than this.
_SENSITIVE_GAIN_PPM = 100_000

_USUAL = Share(CORES_PER_GPU, MEMORY_MIB_PER_GPU)

# Widths in GPUs that were measured, ascending, with the curve of each.
Widths = tuple[tuple[int, Curve], ...]


@dataclass(frozen=True)
class CurveTable:
    """Speed by CPU and memory of models.

    Attributes:
        source: Where it came from. sha256: of the file; empty for the built-in one.
        curves: Model -> its curves by width.
        classes: Model -> image, language or speech, where known.
    """

    source: str
    sha256: str = ""
    curves: Mapping[str, Widths] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)

    def curve(self, model: str | None, gpus: int) -> Curve | None:
        """Return the curve of a model on so many GPUs, None if it was not measured.

        Of a width that was not measured, the next narrower one counts; below the narrowest, that one.
        """
        widths = self.curves.get(model or "", ())
        place = bisect_right([width for width, _ in widths], gpus)
        return widths[max(0, place - 1)][1] if widths else None

    def of_class(self, name: str) -> list[str]:
        """Return the models of a class, by name."""
        return sorted(model for model in self.curves if self.classes.get(model) == name)

    @cached_property
    def sensitive(self) -> frozenset[str]:
        """Models that gain more than 10 % if one GPU has more than 3 cores and 62.5 GiB."""
        return frozenset(model for model, widths in self.curves.items() if _gains(widths[0][1]))

    def perturbed(self, noise: float, seeds: Seeds) -> CurveTable:
        """Return what may be the truth if the table is up to `noise` off, drawn once for each model.

        Each speed of a curve is multiplied by its own 1 + U(-noise, noise), but that with 3 cores and
        62.5 GiB. What was faster stays no slower, so speeds whose order turns meet half-way; where the table
        says that CPU or memory change nothing, they change nothing.
        """
        found = {
            model: tuple((gpus, _off(curve, noise, seeds.stream("curve", model))) for gpus, curve in widths)
            for model, widths in self.curves.items()
        }
        return replace(self, source=f"{self.source} +-{noise:g}", curves=found)


def _gains(curve: Curve) -> bool:
    best = max(max(row) for row in curve.speeds_ppm)
    base = max(1, curve.at(1, _USUAL))
    return (best - base) * FULL_SPEED_PPM > _SENSITIVE_GAIN_PPM * base


def _off(curve: Curve, noise: float, rng: np.random.Generator) -> Curve:
    """Return the curve with each of its speeds up to `noise` off."""
    column, row = usual_point(curve.cores, curve.memory_mib)
    base = curve.speeds_ppm[row][column]
    known = np.unique(np.array(curve.speeds_ppm))
    drawn = known * (1 + rng.uniform(-noise, noise, len(known)))
    drawn = np.where(known < base, np.minimum(drawn, base), np.maximum(drawn, base))
    drawn[known == base] = base
    above = np.maximum.accumulate(drawn)
    below = np.minimum.accumulate(drawn[::-1])[::-1]
    true_ppm = dict(zip(known.tolist(), np.rint((above + below) / 2).astype(np.int64).tolist(), strict=True))
    return replace(curve, speeds_ppm=tuple(tuple(true_ppm[one] for one in row) for row in curve.speeds_ppm))


def usual_point(cores: Sequence[int], memory_mib: Sequence[int]) -> tuple[int, int]:
    """Return the places of the point next below 3 cores and 62.5 GiB for each GPU, or of the least.

    Args:
        cores, memory_mib: What was measured, ascending.
    """
    return _below(cores, _USUAL.cores), _below(memory_mib, _USUAL.memory_mib)


def _below(values: Sequence[int], most: int) -> int:
    return max(0, bisect_right(values, most) - 1)


def capped(curve: Curve, most_ppm: int) -> Curve:
    """Return the curve cut off at a speed."""
    return replace(
        curve, speeds_ppm=tuple(tuple(min(speed, most_ppm) for speed in row) for row in curve.speeds_ppm)
    )


# ---- Synergy's numbers ---------------------------------------------------------------------------

SYNERGY_CORES = (1, 2, 3, 4, 5, 6, 9, 12, 24)
SYNERGY_MEMORY_MIB = (21_333, 64_000, 128_000, 192_000, 256_000)  # 20.83, 62.5, 125, 187.5, 250 GiB

_STALLED = 0.1  # on 20.83 GiB, image and speech models wait for their data
_FIVE = (0.30, 0.66, 1, 1.25, 1.53, 1.75, 2)


def _surface(*rows: Sequence[float]) -> Curve:
    """Return a curve from speeds at the smallest memory, and from there on up; the last row goes on."""
    filled = [*rows, *[rows[-1]] * (len(SYNERGY_MEMORY_MIB) - len(rows))]
    speeds = tuple(tuple(round(speed * FULL_SPEED_PPM) for speed in row) for row in filled)
    return Curve(SYNERGY_CORES, SYNERGY_MEMORY_MIB, speeds)


def _hungry(*rows: Sequence[float]) -> Curve:
    return _surface([_STALLED] * len(SYNERGY_CORES), *rows)


def _along(*speeds: float) -> list[float]:
    """Return speeds by cores; the last one goes on."""
    return [*speeds, *[speeds[-1]] * (len(SYNERGY_CORES) - len(speeds))]


_FLAT = _surface(_along(1))
_M5 = (0.30, 0.66, 1, 1.20, 1.40)

# Model -> class, curve on one GPU, and the best speed of wider gangs as (GPUs, speed).
_SYNERGY: Mapping[str, tuple[str, Curve, tuple[tuple[int, float], ...]]] = {
    "alexnet": ("image", _hungry(_along(*_FIVE), _along(*_FIVE, 2.94)), ((2, 2.33), (4, 1.75))),
    "shufflenet": ("image", _hungry(_along(*_FIVE), _along(*_FIVE, 2.89)), ((2, 2.33), (4, 1.75))),
    "resnet18": ("image", _hungry(_along(0.37, 0.72, 1, 1.30, 1.53, 1.75, 2.4)), ((4, 1.75),)),
    "mobilenet": ("image", _hungry(_along(0.37, 0.72, 1, 1.30, 1.49, 1.55)), ()),
    "resnet50": ("image", _hungry(_along(0.40, 0.74, 1, 1.15)), ((2, 1),)),
    "m5": ("speech", _hungry(*(_along(*_M5, best) for best in (1.5, 2, 2.5))), ()),
    "deepspeech": ("speech", _hungry(_along(0.30, 0.66, 1)), ()),
    **dict.fromkeys(("gnmt", "transformer", "lstm", "bert", "vae"), ("language", _FLAT, ())),
}

SYNERGY_CLASSES = {model: name for model, (name, _, _) in _SYNERGY.items()}

BUILTIN_CURVES = CurveTable(
    "builtin",
    curves={
        model: ((1, curve), *((gpus, capped(curve, round(best * FULL_SPEED_PPM))) for gpus, best in caps))
        for model, (_, curve, caps) in _SYNERGY.items()
    },
    classes=SYNERGY_CLASSES,
)
