"""What is known of a cluster's jobs at an instant: the only thing a forecast may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trimtab.traces.trace import DAY_MS, Trace

# An instant that has not come: the completion of a job that still runs or waits.
NEVER_MS = int(np.iinfo(np.int64).max)

# How long jobs that ended are remembered: forecasts look back four weeks.
MEMORY_MS = 35 * DAY_MS

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
        return self.take(slice(int(np.searchsorted(self.submit_ms, from_ms)), None))

    def take(self, which: NDArray[np.bool_] | slice) -> Past:
        """Return the same with some of the jobs only."""
        columns = {
            field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "now_ms"
        }
        return Past(self.now_ms, **columns)


@dataclass(frozen=True, eq=False)
class History:
    """The jobs of a whole trace, of which `as_of` shows what was known at an instant; columns as in `Past`.

    There is no schedule in a trace: each job counts as started when it was submitted, and as completed after
    its run time.
    """

    submit_ms: Integers
    duration_ms: Integers
    gpus: Integers
    vc: Integers
    user: Integers
    name: Integers

    @classmethod
    def of(cls, trace: Trace) -> History:
        """Return a trace's jobs with times on its output clock, labels numbered as they first occur."""
        vc, user, name = (_numbered(trace.labels(label)) for label in ("vc", "user", "name"))
        submit_ms = trace.column("submit_ms") - trace.zero_ms
        return cls(submit_ms, trace.column("duration_ms"), trace.column("gpus"), vc, user, name)

    def as_of(self, now_ms: int) -> Past:
        """Return the jobs submitted before `now_ms` as they were known then."""
        jobs = slice(0, int(np.searchsorted(self.submit_ms, now_ms)))
        submit_ms, duration_ms = self.submit_ms[jobs], self.duration_ms[jobs]
        # Completed at the instant itself is known, as in the engine.
        completed = duration_ms <= now_ms - submit_ms
        return Past(
            now_ms=now_ms,
            submit_ms=submit_ms,
            gpus=self.gpus[jobs],
            vc=self.vc[jobs],
            user=self.user[jobs],
            name=self.name[jobs],
            finish_ms=np.where(completed, submit_ms + duration_ms, NEVER_MS),
            ran_ms=np.minimum(duration_ms, now_ms - submit_ms),
        )


def _numbered(labels: Sequence[str | None]) -> Integers:
    """Return labels as numbers in the order of their first occurrence, -1 for none."""
    numbers: dict[str, int] = {}
    found = [-1 if label is None else numbers.setdefault(label, len(numbers)) for label in labels]
    return np.array(found, dtype=np.int64)
