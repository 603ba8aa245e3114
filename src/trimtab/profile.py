"""What is known of how hard a job uses its GPU, and what two jobs on one GPU do to each other's speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# A configuration whose mean speed beside others is below the first cut demands much (score 2), below the
# second some (score 1), else little (score 0).
Cuts = tuple[float, float]
CUTS: Cuts = (0.85, 0.95)

TINY, MEDIUM, JUMBO = 0, 1, 2
SCORES = (TINY, MEDIUM, JUMBO)


@dataclass(frozen=True, slots=True)
class Profile:
    """One job as measured alone on its GPUs; None where something was not measured.

    Attributes:
        model: What it trains; with data set and batch size, as `model/data set/batch size`, where known.
        gpu_util: Share of time in which the GPU computes, in %.
        gmem_util: Share of time in which its memory is read or written, in %.
        gmem_mib: Memory in use on each GPU.
        amp: Whether it computes in mixed precision.
    """

    model: str | None = None
    gpu_util: float | None = None
    gmem_util: float | None = None
    gmem_mib: int | None = None
    amp: bool = False


class PairSpeeds(Protocol):
    """What sharing GPUs costs."""

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        """Return the speed of each job beside the other, in ppm of its speed alone, 1 .. 1,000,000."""
        ...

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        """Return how much of a GPU a job demands: 0 little, 1 some, 2 much; 2 where nothing is known."""
        ...

    def fits(self, one: Profile, other: Profile) -> bool:
        """Return whether both may be on one GPU: False where it failed, or where of one nothing is known."""
        ...
