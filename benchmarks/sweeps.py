"""What do the settings of trimtab-plus do? One at a time on a window of a trace, all else as by default.

    PYTHONPATH=src python benchmarks/sweeps.py --case philly --days 3

A row a value: mean wait, changes, how long a setting stayed, how much hourly mean waiting swings (its
standard deviation), the share of changes partly undone within three hours, and seconds of CPU. The windows
are those on which settings are chosen, none of those on which results are reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from cases import SHARED
from table import number
from trimtab.cluster import Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import Plan
from trimtab.traces.loader import load
from trimtab.traces.trace import DAY_MS, Trace

HOUR_MS = 3_600_000
POLICY = "tiresias"


@dataclass(frozen=True)
class Case:
    """A trace, the day its windows begin and the nodes of 8 GPUs."""

    source: str
    start: str
    nodes: int


CASES = {
    "philly": Case(f"philly:{SHARED / 'data/philly/philly_until_2017-10-31.csv.gz'}", "2017-09-25", 64),
    "venus": Case(f"{SHARED / 'data/helios/venus_gpu_jobs_until_2020-08-09.csv.gz'}", "2020-06-01", 70),
    "synthetic": Case("synthetic:philly?days=12&seed=3", "7d", 40),
}

Change = Callable[[Plan, float], Plan]


def _plus(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, plus=replace(plan.plus, **changes))


# Setting, in hours but for the gain threshold -> how a plan gets it, and the values that are tried.
SWEEPS: Mapping[str, tuple[Change, tuple[float, ...]]] = {
    "horizon, h": (lambda plan, hours: _plus(plan, arrivals_ms=round(hours * HOUR_MS)), (1, 6, 12, 24)),
    "run-on, h": (lambda plan, hours: _plus(plan, run_on_ms=round(hours * HOUR_MS)), (1, 6, 12, 24, 48)),
    "threshold": (
        lambda plan, gain: replace(plan, rails=replace(plan.rails, gain_min=gain)),
        (1.0, 1.02, 1.05, 1.1, 1.2),
    ),
    "interval, h": (
        lambda plan, hours: replace(plan, interval_ms=round(hours * HOUR_MS)),
        (0.5, 1, 2, 4, 8),
    ),
}
HEADINGS = ("setting", "value", "mean wait, s", "changes", "stayed, h", "swing, s", "undone", "CPU s")


def rows(case: Case, trace: Trace, days: int, budget: int, sweeps: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for fixed-week, which changes nothing, then a row a value."""
    plan = Plan(
        tuning=Tuning(objective=find_objective("wait"), budget=budget), rails=Guardrails(gain_min=1.0)
    )
    yield _row("fixed-week", "", _run(case, trace, days, plan, "fixed-week"))
    for name in sweeps:
        change, values = SWEEPS[name]
        for value in values:
            yield _row(name, value, _run(case, trace, days, change(plan, value), "trimtab-plus"))


def _run(case: Case, trace: Trace, days: int, plan: Plan, line: str) -> Line:
    window = f"{case.start}..{trace.show(trace.instant_ms(case.start) + days * DAY_MS)}"
    base, cluster = find_policy(POLICY).space.defaults, Cluster.pool(case.nodes, 8)
    found = evaluate(trace, window, cluster, POLICY, base, World(), plan, [line], LocalTrials())
    return found.lines[0]


def _row(name: str, value: float | str, line: Line) -> dict[str, Any]:
    stay_s = line.switching["dwell_s_mean"]
    return {
        "setting": name,
        "value": value,
        "mean wait, s": line.metrics["wait_s_mean"],
        "changes": line.switches,
        "stayed, h": None if stay_s is None else stay_s / 3600,
        "swing, s": swing_s(line.jobs),
        "undone": line.switching["flapping_share"],
        "CPU s": line.seconds["cpu"],
    }


def swing_s(jobs: pl.DataFrame) -> float:
    """Return the standard deviation of the mean waits of the hours in which jobs were submitted, s."""
    hours = jobs.drop_nulls("wait_s").group_by((pl.col("submit_s") // 3600).alias("hour"))
    return float(hours.agg(pl.col("wait_s").mean())["wait_s"].std(ddof=0) or 0.0)  # type: ignore[arg-type]


def main() -> None:
    """Print the table, line by line as it is found, or one JSON object a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="synthetic")
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--budget", type=int, default=80)
    parser.add_argument("--sweep", action="append", choices=SWEEPS, help="repeatable; all unless given")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    told = parser.parse_args()
    case = CASES[told.case]
    if told.format == "text":
        print("  ".join(name.rjust(12) for name in HEADINGS))
    for row in rows(case, load(case.source), told.days, told.budget, told.sweep or list(SWEEPS)):
        if told.format == "json":
            print(json.dumps(row), flush=True)
        else:
            shown = (one if isinstance(one, str) else number(one) for one in row.values())
            print("  ".join((text or "-").rjust(12) for text in shown), flush=True)


if __name__ == "__main__":
    main()
