"""The jobs of one simulation: what schedulers are told, and, apart from it, how long they really run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trimtab.job import JobFacts
from trimtab.policies.tiresias import MODEL_SKEW_PPM
from trimtab.traces.trace import Trace


@dataclass(frozen=True)
class Workload:
    """Jobs by dense id, in submit order. `duration_ms` is the truth only the simulator knows."""

    facts: Sequence[JobFacts]
    duration_ms: Sequence[int]

    def __len__(self) -> int:
        return len(self.facts)

    @classmethod
    def of(cls, trace: Trace, spread_ppm: int, seed_order: Sequence[int] | None = None) -> Workload:
        """Return a trace's jobs on its output clock (second 0 = `trace.zero_ms`).

        Args:
            trace: The jobs.
            spread_ppm: Speed of a gang that is not consolidated.
            seed_order: A random number a job; jobs of one instant are ordered by it instead of by source.
        """
        submit = (trace.column("submit_ms") - trace.zero_ms).tolist()
        columns = [trace.labels(name) for name in ("vc", "user", "name", "model")]
        facts = [
            JobFacts(
                label, submit_ms, gpus, vc, user, name, MODEL_SKEW_PPM.get(model or "", 1_000_000), spread_ppm
            )
            for label, submit_ms, gpus, vc, user, name, model in zip(
                trace.labels("job_id"), submit, trace.column("gpus").tolist(), *columns, strict=True
            )
        ]
        durations = trace.column("duration_ms").tolist()
        if seed_order is not None:
            order = sorted(range(len(facts)), key=lambda job: (submit[job], seed_order[job]))
            facts, durations = [facts[job] for job in order], [durations[job] for job in order]
        return cls(facts, durations)


class Estimator(Protocol):
    """Tells policies how long a job may run, from nothing later than the present."""

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        """Learn that a job completed at `now_ms` after running `duration_ms`."""
        ...

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        """Retrain if `period_ms` have passed since the last time; return whether it happened."""
        ...

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        """Return the estimated run time of a job, at least 1 ms."""
        ...

    def fork(self) -> Estimator:
        """Return an independent copy."""
        ...


@dataclass(frozen=True)
class OracleEstimator:
    """Tells the truth; takes it as an argument so that every place that peeks can be seen."""

    duration_ms: Sequence[int]

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        """Learn nothing: there is nothing left to learn."""

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        return False

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        return self.duration_ms[job_id]

    def fork(self) -> OracleEstimator:
        return self
