"""A scheduler at an instant, as a search meets it: its state, and all that is known of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.cluster import Cluster
from trimtab.forecast.history import Integers, Past
from trimtab.job import JobFacts, JobState
from trimtab.knobs import Knobs
from trimtab.search.space import SearchSpace
from trimtab.simulate.state import Environment, Snapshot


@dataclass(frozen=True, eq=False)
class Scene:
    """What a search begins with; nothing in it is later than its instant.

    Attributes:
        snapshot: The scheduler's state.
        past: Every job submitted before, those of the snapshot among them.
        facts: What was submitted, by row of `past`.
        first_row: The row of the job with id 0.
        space: Where better settings are looked for.
    """

    snapshot: Snapshot
    past: Past
    facts: Sequence[JobFacts]
    first_row: int
    cluster: Cluster
    policy: str
    environment: Environment
    space: SearchSpace

    @property
    def now_ms(self) -> int:
        return self.past.now_ms

    @property
    def running(self) -> Knobs:
        """The settings in force."""
        return self.snapshot.knobs

    @property
    def active_rows(self) -> Integers:
        """The rows of the snapshot's jobs, in id order."""
        return np.array([self.first_row + job.id for job in self.snapshot.jobs], dtype=np.int64)

    def count(self, state: JobState) -> int:
        """Return how many jobs of the snapshot are pending, or running."""
        return sum(job.state is state for job in self.snapshot.jobs)
