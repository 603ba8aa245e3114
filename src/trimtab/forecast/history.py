"""What is known of a cluster's jobs at an instant: the only thing a forecast may look at."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

# An instant that has not come: the completion of a job that still runs or waits.
NEVER_MS = int(np.iinfo(np.int64).max)

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Past:
    """Jobs submitted before an instant, as known at it, by submit time; columns of shape (jobs,).

    Times are ms on the trace's output clock, so they may be negative.

    Attributes:
        now_ms: The instant. Nothing in here is later.
        submit_ms: When a job was submitted, ascending and before `now_ms`.
        gpus: GPUs it asks for.
        vc, user, name: Labels as whole numbers, the same ones at every instant; -1 where the trace does
            not tell.
        finish_ms: When it completed, `NEVER_MS` if it had not by `now_ms`.
        ran_ms: Work done, in ms at full speed: of a completed job its whole run time, of any other one what
            it has run so far (0 while it has never run).
    """

    now_ms: int
    submit_ms: Integers
    gpus: Integers
    vc: Integers
    user: Integers
    name: Integers
    finish_ms: Integers
    ran_ms: Integers

    def __len__(self) -> int:
        return len(self.submit_ms)

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Which jobs have completed."""
        return np.not_equal(self.finish_ms, NEVER_MS)

    def since(self, from_ms: int) -> Past:
        """Return the same without the jobs submitted before `from_ms`."""
        first = int(np.searchsorted(self.submit_ms, from_ms))
        columns = {
            field.name: getattr(self, field.name)[first:] for field in fields(self) if field.name != "now_ms"
        }
        return Past(self.now_ms, **columns)
