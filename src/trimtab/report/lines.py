"""What a page about a walk-forward evaluation is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.rounds import Round
from trimtab.knobs import Knobs
from trimtab.search.causal import Graph
from trimtab.simulate.metrics import Metrics
from trimtab.timeline import Timeline
from trimtab.traces.trace import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of an evaluation: the same jobs under one way of choosing the settings."""

    name: str
    meaning: str
    metrics: Metrics
    start_knobs: Knobs
    rounds: tuple[Round, ...]
    segments: dict[str, dict[str, float]]
    seconds: dict[str, float]  # wall and CPU seconds; never part of a comparison of results
    jobs: pl.DataFrame  # as `simulate.metrics.jobs_table` gives it
    timeline: Timeline
    notes: tuple[str, ...] = ()
    graph: Graph | None = None  # the causal graph a line learned last

    @property
    def switches(self) -> int:
        return sum(one.switched for one in self.rounds)

    def jsonable(self) -> dict[str, Any]:
        """Return the object `evaluate --format json` prints for a line."""
        return {
            "line": self.name,
            "metrics": self.metrics,
            "knobs": self.start_knobs.jsonable(),
            "switches": self.switches,
            "hours": [one.jsonable() for one in self.rounds],
            "segments": self.segments,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "digest": self.timeline.digest(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A walk-forward evaluation: all its lines and what they share."""

    provenance: Provenance
    kept: int
    window: str
    first_day: str  # what second 0 of the output clock is, for people
    cluster: Cluster
    policy: str
    settings: dict[str, Any]  # objective, horizons, budget, threshold, seed … as given
    lines: tuple[Line, ...]
