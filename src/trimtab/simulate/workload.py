"""The jobs of one simulation: what schedulers are told, and, apart from it, how long they really run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from trimtab.curve import FULL_SPEED_PPM, Curve
from trimtab.job import BEST_EFFORT, JobFacts, Service, ServiceClass
from trimtab.policies.tiresias import MODEL_SKEW_PPM
from trimtab.profile import Profile
from trimtab.simulate.curves import CurveTable
from trimtab.site import PLAIN_SITE, Site
from trimtab.traces.deadlines import OPTION_VALUES
from trimtab.traces.trace import Trace
from trimtab.world import Seeds


@dataclass(frozen=True)
class Workload:
    """Jobs by dense id, in submit order. What only the simulator knows stands beside the facts.

    Attributes:
        duration_ms: How long each job runs with the proportional share of its nodes; a job that would run
            longer than its limit is ended there, whatever the policy.
        curves: Speed by CPU and memory, where the truth is another than what the facts say; else empty.
    """

    facts: Sequence[JobFacts]
    duration_ms: Sequence[int]
    curves: Sequence[Curve | None] = ()

    def __post_init__(self) -> None:
        """Cut the run times of jobs that have a limit."""
        pairs = zip(self.facts, self.duration_ms, strict=True)
        if any(one.limit_ms is not None and one.limit_ms < run_ms for one, run_ms in pairs):
            object.__setattr__(self, "duration_ms", _within_limits(self.facts, self.duration_ms))

    def __len__(self) -> int:
        return len(self.facts)

    def curve(self, job_id: int) -> Curve | None:
        """Return a job's true speed by CPU and memory."""
        return self.curves[job_id] if self.curves else self.facts[job_id].curve

    @classmethod
    def of(
        cls,
        trace: Trace,
        spread_ppm: int,
        seed_order: Sequence[int] | None = None,
        curves: CurveTable | None = None,
        truth: CurveTable | None = None,
        site: Site = PLAIN_SITE,
    ) -> Workload:
        """Return a trace's jobs on its output clock (second 0 = `trace.zero_ms`).

        Args:
            trace: The jobs.
            spread_ppm: Speed of a gang that is not consolidated, of jobs that do not say it themselves.
            seed_order: A random number a job; jobs of one instant are ordered by it instead of by source.
            curves: Speed by CPU and memory of the models, None where these do not matter.
            truth: The same as it really is, where that is something else.
            site: Where jobs without a time limit get one by their partition, if they do.
        """
        submit = (trace.column("submit_ms") - trace.zero_ms).tolist()
        columns = [trace.labels(name) for name in ("vc", "user", "name", "account", "qos", "model")]
        gpus_of = trace.column("gpus").tolist()
        facts = [
            JobFacts(
                *(label, submit_ms, gpus, vc, user, name),
                MODEL_SKEW_PPM.get(model or "", FULL_SPEED_PPM),
                spread,
                profile=profile,
                service=service,
                curve=None if curves is None else curves.curve(model, gpus),
                limit_ms=site.partition(vc).limit_ms if limit_ms is None else limit_ms,
                account=account,
                qos=qos,
            )
            for (
                label,
                submit_ms,
                gpus,
                vc,
                user,
                name,
                account,
                qos,
                model,
                spread,
                profile,
                service,
                limit_ms,
            ) in zip(
                trace.labels("job_id"),
                submit,
                gpus_of,
                *columns,
                _spreads_ppm(trace, spread_ppm),
                profiles_of(trace),
                services_of(trace),
                _limits_ms(trace),
                strict=True,
            )
        ]
        durations = trace.column("duration_ms").tolist()
        true: tuple[Curve | None, ...] = ()
        if truth is not None:
            true = tuple(truth.curve(*one) for one in zip(columns[-1], gpus_of, strict=True))
        if seed_order is not None:
            order = sorted(range(len(facts)), key=lambda job: (submit[job], seed_order[job]))
            facts, durations = [facts[job] for job in order], [durations[job] for job in order]
            true = tuple(true[job] for job in order) if true else ()
        return cls(facts, durations, true)


def _within_limits(facts: Sequence[JobFacts], duration_ms: Sequence[int]) -> list[int]:
    return [
        run_ms if one.limit_ms is None else min(one.limit_ms, run_ms)
        for one, run_ms in zip(facts, duration_ms, strict=True)
    ]


def _limits_ms(trace: Trace) -> list[int | None]:
    """Return the time limits that users asked for, None where a trace tells none."""
    if "limit_ms" not in trace.jobs.columns:
        return [None] * len(trace)
    return [None if one is None or one < 1 else one for one in trace.jobs["limit_ms"].to_list()]


def _spreads_ppm(trace: Trace, otherwise_ppm: int) -> list[int]:
    """Return each job's speed when it is not consolidated."""
    if "spread_speed" not in trace.jobs.columns:
        return [otherwise_ppm] * len(trace)
    speeds = trace.jobs["spread_speed"].to_list()
    return [otherwise_ppm if speed is None else round(speed * FULL_SPEED_PPM) for speed in speeds]


def profiles_of(trace: Trace) -> list[Profile | None]:
    """Return what each job of a trace is known to use, None where its columns say nothing.

    A model's data set and batch size are part of its name, `model/data set/batch size`, where they are known.
    """
    known = [name for name in _PROFILE if name in trace.jobs.columns]
    if not known:
        return [None] * len(trace)
    made: dict[tuple[Any, ...], Profile | None] = {}
    rows = trace.jobs.select(
        pl.col(name) if name in known else pl.lit(None).alias(name) for name in _PROFILE
    ).rows()
    for row in set(rows):
        made[row] = _profile(*row) if any(value is not None for value in row) else None
    return [made[row] for row in rows]


_PROFILE = ("model", "dataset", "batchsize", "amp", "gpu_util", "gmem_util", "gmem_mib")


def _profile(
    model: str | None,
    dataset: str | None,
    batch: int | None,
    amp: int | None,
    gpu_util: float | None,
    gmem_util: float | None,
    gmem_mib: float | None,
) -> Profile:
    parts = [str(part) for part in (model, dataset, batch) if part is not None]
    name = None if model is None else "/".join(parts)
    memory_mib = None if gmem_mib is None else round(gmem_mib)
    return Profile(name, gpu_util, gmem_util, memory_mib, amp == 1)


def services_of(trace: Trace) -> list[Service]:
    """Return what each job's user wants of it, on the trace's output clock; nothing told is best effort.

    A job with deadlines is soft if its class says so or it has several, else strict; one whose class says
    `best` has none. Values that are not told, or not for every deadline, are the usual ones.
    """
    if "deadline_ms" not in trace.jobs.columns:
        return [BEST_EFFORT] * len(trace)
    submit = (trace.column("submit_ms") - trace.zero_ms).tolist()
    columns = [trace.labels(name) for name in ("deadline_ms", "deadline_value", "service_class")]
    return [
        BEST_EFFORT if deadlines is None or kind == "best" else _service(submit_ms, deadlines, values, kind)
        for submit_ms, deadlines, values, kind in zip(submit, *columns, strict=True)
    ]


def _service(submit_ms: int, deadlines: str, values: str | None, kind: str | None) -> Service:
    after_ms = [int(part) for part in deadlines.split("/")]
    worth = [int(float(part)) for part in values.split("/")] if values is not None else []
    if len(worth) != len(after_ms):
        worth = [OPTION_VALUES[min(place, len(OPTION_VALUES) - 1)] for place in range(len(after_ms))]
    options = sorted(zip(after_ms, worth, strict=True))
    found: ServiceClass = "soft" if kind == "soft" or len(options) > 1 else "strict"
    return Service(found, tuple(submit_ms + one for one, _ in options), tuple(value for _, value in options))


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
    """Tells the truth; takes it as an argument so that every place that peeks can be seen.

    A subclass tells its `duration_ms` as well, so that the compiled core need not ask.
    """

    duration_ms: Sequence[int]

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        """Learn nothing: there is nothing left to learn."""

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        return False

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        return self.duration_ms[job_id]

    def fork(self) -> OracleEstimator:
        return self

    def supposing(self, workload: Workload) -> OracleEstimator:
        """Return what it would tell if the jobs were these."""
        return OracleEstimator(workload.duration_ms)


# What a noisy estimate never goes below, unless the job is shorter still.
_ESTIMATE_LEAST_MS = 60_000


@dataclass(frozen=True)
class NoisyEstimator(OracleEstimator):
    """Tells estimates that are off by random factors, one a job, which stay.

    The factors are lognormal with mean 1 and a standard deviation: exp(s z - s^2 / 2), s^2 = ln(1 + sd^2), z
    standard normal. What a job draws depends on its label and the seed alone.

    Attributes:
        duration_ms: The estimates, by dense id.
        sd: The standard deviation of estimate / run time. seeds: root of the draws.
    """

    sd: float
    seeds: Seeds

    @classmethod
    def of(cls, workload: Workload, sd: float, seeds: Seeds) -> NoisyEstimator:
        """Return estimates for a workload."""
        spread = math.sqrt(math.log1p(sd * sd))
        told = []
        for facts, duration_ms in zip(workload.facts, workload.duration_ms, strict=True):
            z = seeds.stream("estimate", facts.label).standard_normal() if sd else 0.0
            estimate_ms = round(duration_ms * math.exp(spread * z - spread * spread / 2))
            told.append(max(1, estimate_ms, min(duration_ms, _ESTIMATE_LEAST_MS)))
        return cls(told, sd, seeds)

    def supposing(self, workload: Workload) -> NoisyEstimator:
        """Return what it would tell if the jobs were these."""
        return NoisyEstimator.of(workload, self.sd, self.seeds)
