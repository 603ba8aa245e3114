"""How well a simulation tells a history's own starts, under the settings that were in force in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from trimtab.cluster import Cluster
from trimtab.errors import InputError
from trimtab.knobs import Knobs
from trimtab.simulate.run import World, simulate
from trimtab.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Times in s, means over the jobs whose start the history tells.

    Attributes:
        wait_s, simulated_wait_s: From submission to the first start, as it was and as simulated.
        error_s, median_error_s: How far simulated starts are from real ones, either way.
    """

    jobs: int
    wait_s: float
    simulated_wait_s: float
    error_s: float
    median_error_s: float

    def allowed_s(self, interval_s: float) -> float:
        """Return the mean error that is aimed at: 5 % of the mean wait and an interval of the scheduler."""
        return 0.05 * self.wait_s + interval_s


def fidelity(trace: Trace, cluster: Cluster, policy: str, knobs: Knobs, world: World) -> Fidelity:
    """Simulate a history and compare the starts.

    Raises:
        InputError: If the history tells no start.
    """
    if "start_ms" not in trace.jobs.columns:
        raise InputError(f"{trace.provenance.source}: tells no starts to compare with; nothing was run.")
    simulated = simulate(trace, cluster, policy, knobs, world).jobs
    waits = trace.jobs.select("job_id", wait_s=(pl.col("start_ms") - pl.col("submit_ms")) / 1000).join(
        simulated.select("job_id", simulated_s=pl.col("start_s") - pl.col("submit_s")), on="job_id"
    )
    known = waits.drop_nulls()
    if known.is_empty():
        raise InputError(f"{trace.provenance.source}: tells no starts to compare with; nothing was run.")
    errors = (known["simulated_s"] - known["wait_s"]).abs().to_numpy()
    return Fidelity(
        jobs=len(known),
        wait_s=float(known["wait_s"].to_numpy().mean()),
        simulated_wait_s=float(known["simulated_s"].to_numpy().mean()),
        error_s=float(errors.mean()),
        median_error_s=float(np.median(errors)),
    )
