"""Schedules small enough to be worked out by hand: jobs from a text table, one run, its events as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from trimtab.cluster import Cluster, Pace, Placement
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobFacts
from trimtab.knobs import Knobs, Value
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Policy
from trimtab.profile import PairSpeeds, Profile
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import Estimator, OracleEstimator, Workload
from trimtab.site import PLAIN_SITE, Site

COLUMNS = ("job", "submit_s", "duration_s", "gpus", "vc", "skew", "spread_speed", "model")
COLUMNS += ("user", "account", "qos", "limit_s")


def jobs(table: str) -> Workload:
    """Read a table: a line of column names out of `COLUMNS`, then one job a line; `-` stands for nothing."""
    header, *rows = [line.split() for line in table.splitlines() if line.strip()]
    assert set(header) <= set(COLUMNS), header
    cells = [{name: cell for name, cell in zip(header, row, strict=True) if cell != "-"} for row in rows]
    facts = [
        JobFacts(
            label=cell["job"],
            submit_ms=_thousandths(cell["submit_s"]),
            gpus=int(cell["gpus"]),
            vc=cell.get("vc"),
            skew_ppm=_ppm(cell.get("skew", "1")),
            spread_ppm=_ppm(cell.get("spread_speed", ".5")),
            profile=Profile(model=cell["model"]) if "model" in cell else None,
            user=cell.get("user"),
            account=cell.get("account"),
            qos=cell.get("qos"),
            limit_ms=_thousandths(cell["limit_s"]) if "limit_s" in cell else None,
        )
        for cell in cells
    ]
    assert [one.submit_ms for one in facts] == sorted(one.submit_ms for one in facts)
    return Workload(facts, [_thousandths(cell["duration_s"]) for cell in cells])


def run(
    workload: Workload,
    policy: str | Policy,
    knobs: Mapping[str, Value] | None = None,
    *,
    nodes: int = 1,
    gpus_per_node: int = 4,
    cluster: Cluster | None = None,
    placement: Placement = "consolidated",
    restart_s: int = 0,
    updates: Sequence[tuple[int, Mapping[str, Value]]] = (),
    estimates_s: Sequence[int] | None = None,
    completed_gpu_s: Sequence[int] = (),
    speeds: PairSpeeds | None = None,
    pace: Pace | None = None,
    site: Site = PLAIN_SITE,
) -> Engine:
    """Run to the end, by the index and by the policy's own `decide`; both must give the same events.

    Args:
        workload: The jobs.
        policy: A policy or its name.
        knobs: Knobs that differ from the defaults; taken as they are, so thresholds may be below their range.
        updates: (second, knobs that change) pairs; what is not named stays as it was at the start.
        estimates_s: What the policy is told about run times, the truth if None.
        completed_gpu_s: GPU-seconds of jobs that completed before the first one arrives.
        speeds: What sharing GPUs costs. pace: The forecast of submissions.
        site: What partitions, qualities of service and accounts are worth.
    """
    found = find_policy(policy) if isinstance(policy, str) else policy
    start = Knobs({**found.space.defaults, **(knobs or {})})
    told = workload.duration_ms if estimates_s is None else [1000 * one for one in estimates_s]
    estimator: Estimator = OracleEstimator(told)
    environment = Environment(
        placement=placement,
        restart_ms=flat_restart(1000 * restart_s),
        estimator=estimator,
        completed_gpu_ms=tuple(1000 * one for one in completed_gpu_s),
        speeds=speeds,
        pace=pace,
        site=site,
    )
    engines = []
    for by_the_book in (False, True):
        engine = Engine(
            workload,
            cluster or Cluster.pool(nodes, gpus_per_node),
            found,
            start,
            environment,
            timeline=True,
            by_the_book=by_the_book,
        )
        for second, changed in updates:
            engine.update(1000 * second, Knobs({**start, **changed}))
        engine.run()
        engines.append(engine)
    indexed, plain = engines
    assert events(indexed) == events(plain)
    assert indexed.records == plain.records
    return indexed


def events(engine: Engine) -> str:
    """Return the whole timeline: second, event and job a line."""
    assert engine.timeline is not None
    return engine.timeline.text()


def acts(engine: Engine) -> str:
    """Return what the scheduler did: all but the submissions, which stand in the table of jobs.

    Events of one instant and kind share a line, `second kind job job ...`, in the order they happened.
    """
    assert engine.timeline is not None
    lines: list[str] = []
    for event in engine.timeline.events:
        if event.kind == "submit":
            continue
        head = f"{event.time_ms / 1000:g} {event.kind}"
        label = event.detail if event.job is None else engine.timeline.labels[event.job]
        if lines and lines[-1].split()[:2] == head.split():
            lines[-1] += f" {label}"
        else:
            lines.append(f"{head} {label}")
    return "\n".join(lines)


def expect(text: str) -> str:
    """Return expected acts with their indentation and alignment taken out."""
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def jct_s(engine: Engine) -> list[float]:
    """Return completion minus submission of each job, in seconds."""
    return [
        (record.finish_ms - facts.submit_ms) / 1000
        for record, facts in zip(engine.records, engine.workload.facts, strict=True)
        if record.finish_ms is not None
    ]


def preemptions(engine: Engine) -> int:
    """Return how often a job lost its GPUs, all jobs together."""
    return sum(record.preemptions for record in engine.records)


def _thousandths(text: str) -> int:
    return int(Fraction(text) * 1000)


def _ppm(text: str) -> int:
    return int(Fraction(text) * FULL_SPEED_PPM)
