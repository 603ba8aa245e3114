"""Jobs with deadlines and with curves over CPU and memory, and one run of them; times in minutes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import strategies as st

from trimtab.cluster import Cluster
from trimtab.curve import Curve
from trimtab.job import BEST_EFFORT, JobFacts, Service
from trimtab.knobs import Knobs, Value
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload

MINUTE_MS = 60_000
_CORES = (1, 2, 3, 4, 5, 6, 9, 12, 24)
_MEMORY_MIB = (21_333, 64_000, 128_000, 192_000, 256_000)


def _curve(*speeds: float, full_at_mib: int = 64_000) -> Curve:
    """Return a curve of Synergy's table: with less memory than its data needs, a job waits for the disk."""
    row = tuple(round(1_000_000 * speed) for speed in speeds)
    stalled = (100_000,) * len(row)
    return Curve(_CORES, _MEMORY_MIB, tuple(stalled if size < full_at_mib else row for size in _MEMORY_MIB))


# Relative speed by cores for each GPU, of Synergy's simulator (3 cores a GPU are the proportional share).
CURVES = {
    "resnet18": _curve(0.37, 0.72, 1, 1.30, 1.53, 1.75, 2.4, 2.4, 2.4),
    "mobilenet": _curve(0.37, 0.72, 1, 1.30, 1.49, 1.55, 1.55, 1.55, 1.55),
    "resnet50": _curve(0.40, 0.74, 1, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15),
    "deepspeech": _curve(0.30, 0.66, 1, 1, 1, 1, 1, 1, 1),
    "gnmt": _curve(1, 1, 1, 1, 1, 1, 1, 1, 1, full_at_mib=0),
    "transformer": _curve(1, 1, 1, 1, 1, 1, 1, 1, 1, full_at_mib=0),
}


# Faster with more memory, and not to be run with less than a footprint.
HUNGRY = Curve(
    (1, 3, 6),
    (21_333, 64_000, 128_000),
    ((100_000,) * 3, (300_000, 1_000_000, 1_500_000), (300_000, 1_100_000, 2_500_000)),
    30_000,
)


@st.composite
def wanted_jobs(draw: st.DrawFn, jobs_max: int = 14) -> Workload:
    """Return jobs with deadlines of all classes and curves, a minute or a few apart."""
    facts, durations, now_ms = [], [], 0
    for number in range(draw(st.integers(1, jobs_max))):
        now_ms += draw(st.sampled_from([0, 0, MINUTE_MS, 7 * MINUTE_MS, 61_003]))
        duration_ms = draw(st.sampled_from([1, 999, 5 * MINUTE_MS, 20 * MINUTE_MS, 45 * MINUTE_MS + 17]))
        count = draw(st.sampled_from([0, 1, 1, 1, 3]))
        first_ms = now_ms + duration_ms * draw(st.integers(5, 25)) // 10
        gap_ms = draw(st.sampled_from([MINUTE_MS, 15 * MINUTE_MS]))
        deadlines_ms = tuple(first_ms + place * gap_ms for place in range(count))
        kind = "strict" if count == 1 else "soft"
        service = Service(kind, deadlines_ms, (10, 8, 5)[:count]) if count else BEST_EFFORT
        curve = draw(st.sampled_from([None, *CURVES.values(), HUNGRY]))
        gpus = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 8, 9]))
        facts.append(JobFacts(f"j{number}", now_ms, gpus, service=service, curve=curve))
        durations.append(duration_ms)
    return Workload(facts, durations)


def jobs(table: str) -> Workload:
    """Read lines `job submit duration gpus model deadlines`, in minutes; deadlines as `10/20`, or `-`."""
    facts, durations = [], []
    for line in table.splitlines():
        if not line.strip():
            continue
        label, submit, duration, gpus, model, deadlines = line.split()
        submit_ms = _ms(submit)
        facts.append(
            JobFacts(label, submit_ms, int(gpus), service=_service(deadlines), curve=CURVES.get(model))
        )
        durations.append(_ms(duration))
    return Workload(facts, durations)


def _service(text: str) -> Service:
    if text == "-":
        return BEST_EFFORT
    deadlines_ms = tuple(_ms(part) for part in text.split("/"))
    kind = "strict" if len(deadlines_ms) == 1 else "soft"
    return Service(kind, deadlines_ms, (10, 8, 5, 2)[: len(deadlines_ms)])


def _ms(minutes: str) -> int:
    return int(Fraction(minutes) * MINUTE_MS)


def run(
    workload: Workload,
    policy: str = "sensascale",
    knobs: Mapping[str, Value] | None = None,
    *,
    nodes: int = 1,
    gpus_per_node: int = 4,
    restart_ms: int = 0,
    later: tuple[int, Mapping[str, Value]] | None = None,
) -> Engine:
    """Run to the end on the reference engine; `later` are other knobs from a minute on."""
    found = find_policy(policy)
    start: Knobs = found.space.project({**found.space.defaults, **(knobs or {})})
    environment = Environment(
        placement="consolidated",
        restart_ms=flat_restart(restart_ms),
        estimator=OracleEstimator(workload.duration_ms),
    )
    engine = Engine(workload, Cluster.pool(nodes, gpus_per_node), found, start, environment, timeline=True)
    if later is not None:
        engine.update(later[0] * MINUTE_MS, found.space.project({**start, **later[1]}))
    engine.run()
    return engine


def spans_min(engine: Engine) -> dict[str, tuple[float, float]]:
    """Return the first start and the end of each job, in minutes to four decimals."""
    return {
        facts.label: (_minutes(record.first_start_ms), _minutes(record.finish_ms))
        for facts, record in zip(engine.workload.facts, engine.records, strict=True)
    }


def _minutes(time_ms: int | None) -> float:
    assert time_ms is not None
    return round(time_ms / MINUTE_MS, 4)
