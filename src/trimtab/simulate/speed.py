"""Speeds of jobs that share a GPU, and of gangs that are spread over nodes: measured, else by class.

Lucid (Hu et al., ASPLOS'23) measured 1,388 pairs of training jobs on one RTX 3090. Its tables are not part
of Trimtab; `BUILTIN` holds their means by class. Only single GPUs were measured: pairs of wider gangs are
assumed to slow down alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trimtab.curve import FULL_SPEED_PPM
from trimtab.profile import CUTS, JUMBO, MEDIUM, SCORES, TINY, Cuts, Profile

# A job's configuration: what it trains, and whether in mixed precision.
Config = tuple[str, bool]

# Thresholds in % on what a job uses alone: they give 54 of Lucid's 66 configurations their label, and miss
# the others by one class.
_JUMBO_GMEM_UTIL = 30.5
_MEDIUM_GPU_UTIL = 25.0

# Mean speed in ppm by own class (row) and the other's (column), over Lucid's 1,388 pairs in its own labels.
_CLASS_MEANS_PPM = (
    (1_009_000, 986_000, 959_000),
    (993_000, 925_000, 834_000),
    (956_000, 886_000, 757_000),
)

# Lucid's 66 single configurations by class: how many there are, and the means of what they use.
_CLASS_PROFILES = (
    (25, Profile(gpu_util=21.2, gmem_util=7.1, gmem_mib=3187)),
    (16, Profile(gpu_util=48.5, gmem_util=20.3, gmem_mib=2758)),
    (25, Profile(gpu_util=83.0, gmem_util=55.3, gmem_mib=6404)),
)


@dataclass(frozen=True)
class SpeedTable:
    """Measured speeds, and what stands in for those that were not measured.

    Attributes:
        source: Where it came from. sha256: of the file; empty for the built-in one.
        pairs: (one, other) -> the speeds of both in ppm as measured, noise above full speed included; each
            pair stands once, in any order.
        apart: Pairs that were tried and do not fit on one GPU; each stands once, in any order.
        spread: Model -> (GPUs, speed in ppm when not consolidated), GPUs ascending.
        profiles: What a job without a model may be: how often, and its profile.
    """

    source: str
    sha256: str = ""
    pairs: Mapping[tuple[Config, Config], tuple[int, int]] = field(default_factory=dict)
    apart: frozenset[tuple[Config, Config]] = frozenset()
    spread: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    profiles: tuple[tuple[int, Profile], ...] = _CLASS_PROFILES

    @cached_property
    def configs(self) -> frozenset[Config]:
        """Every configuration that something was measured of."""
        paired = {config for pair in (*self.pairs, *self.apart) for config in pair}
        return frozenset(paired | {(model, amp) for model in self.spread for amp in (False, True)})

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        """Return the speed of each job beside the other, in ppm of its speed alone, 1 .. 1,000,000.

        As measured, where this pair was; else the means by the two classes; full speed if of one of the jobs
        nothing is known.
        """
        measured = self._both_ways.get((_config(one), _config(other)))
        if measured is not None:
            return measured
        scores = self.class_of(one), self.class_of(other)
        if scores[0] is None or scores[1] is None:
            return FULL_SPEED_PPM, FULL_SPEED_PPM
        means = self.class_means_ppm
        return _clamped(means[scores[0]][scores[1]]), _clamped(means[scores[1]][scores[0]])

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        """Return how much of a GPU a job demands: 0 little, 1 some, 2 much; 2 where nothing is known.

        Where pairs with its configuration were measured, their mean speed decides by the cuts, else
        thresholds on what it uses alone.
        """
        known = self.class_of(profile, cuts)
        return JUMBO if known is None else known

    def class_of(self, profile: Profile, cuts: Cuts = CUTS) -> int | None:
        """Return the same as `score`, None where nothing is known."""
        config = _config(profile)
        mean_ppm = None if config is None else self._means_ppm.get(config)
        return _class_by_use(profile) if mean_ppm is None else _class_of(mean_ppm, cuts)

    def fits(self, one: Profile, other: Profile) -> bool:
        """Return whether both may be on one GPU: False where it failed, or where of one nothing is known.

        What two jobs cost each other is not known if of one nothing is: their full speed is no measurement.
        """
        if self.class_of(one) is None or self.class_of(other) is None:
            return False
        configs = _config(one), _config(other)
        return configs not in self.apart and configs[::-1] not in self.apart

    def spread_ppm(self, profile: Profile, gpus: int) -> int | None:
        """Return a gang's speed when it is not consolidated, in ppm; None where its model was not measured.

        Of a width that was not measured, the next narrower one counts.
        """
        measured = self.spread.get(profile.model or "", ())
        place = bisect_right([width for width, _ in measured], gpus)
        return _clamped(measured[place - 1][1]) if place else None

    @cached_property
    def class_means_ppm(self) -> tuple[tuple[int, ...], ...]:
        """Mean speed in ppm by own class and the other's, as measured; the built-in where no pair was."""
        found: dict[tuple[int, int], list[int]] = {}
        for configs, speeds in self.pairs.items():
            own, other = (_class_of(self._means_ppm[config], CUTS) for config in configs)
            found.setdefault((own, other), []).append(speeds[0])
            found.setdefault((other, own), []).append(speeds[1])
        return tuple(
            tuple(
                _mean(found[own, other]) if (own, other) in found else _CLASS_MEANS_PPM[own][other]
                for other in SCORES
            )
            for own in SCORES
        )

    @cached_property
    def _both_ways(self) -> dict[tuple[Config | None, Config | None], tuple[int, int]]:
        """The pairs in both orders, clamped; a job beside its like has the mean of the two speeds."""
        found: dict[tuple[Config | None, Config | None], tuple[int, int]] = {}
        for (one, other), (first, second) in self.pairs.items():
            if one == other:
                first = second = (first + second) // 2
            found[one, other] = _clamped(first), _clamped(second)
            found[other, one] = _clamped(second), _clamped(first)
        return found

    @cached_property
    def _means_ppm(self) -> dict[Config, int]:
        """The mean speed of each configuration over all its pairs, in ppm."""
        found: dict[Config, list[int]] = {}
        for configs, speeds in self.pairs.items():
            for config, speed_ppm in zip(configs, speeds, strict=True):
                found.setdefault(config, []).append(speed_ppm)
        return {config: _mean(speeds) for config, speeds in found.items()}


BUILTIN = SpeedTable("builtin")


def config_text(config: Config) -> str:
    """Return a configuration as people read it."""
    model, amp = config
    return f"{model} (mixed precision)" if amp else model


def _config(profile: Profile) -> Config | None:
    return None if profile.model is None else (profile.model, profile.amp)


def _class_of(mean_ppm: int, cuts: Cuts) -> int:
    jumbo, medium = (round(cut * FULL_SPEED_PPM) for cut in cuts)
    return JUMBO if mean_ppm < jumbo else MEDIUM if mean_ppm < medium else TINY


def _class_by_use(profile: Profile) -> int | None:
    if profile.gpu_util is None or profile.gmem_util is None:
        return None
    if profile.gmem_util > _JUMBO_GMEM_UTIL:
        return JUMBO
    return MEDIUM if profile.gpu_util > _MEDIUM_GPU_UTIL else TINY


def _clamped(speed_ppm: int) -> int:
    return max(1, min(speed_ppm, FULL_SPEED_PPM))


def _mean(speeds_ppm: Iterable[int]) -> int:
    values = list(speeds_ppm)
    return round(sum(values) / len(values))
