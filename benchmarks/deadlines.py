"""Schedulers with deadlines, tuned on one week and judged on the next: what a better setting is worth.

    python benchmarks/deadlines.py [--policy NAME] [--seeds 5] [--budget 80]

Reads Chronus's trace with best effort (MIX1) in the folder named by TRIMTAB_SHARED (default ../shared), and
keeps a tenth of it, another one for each seed, on 12 nodes of 8 GPUs. Models are drawn for their speed by CPU
and memory. The objective is the value lost by late jobs, then mean JCT. Baseline: the default setting.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from asked import at_least_one
from cases import SHARED
from forecast import shown
from machine import machine, processor
from trimtab.cli.options import with_models
from trimtab.cluster import Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import Trials, open_trials
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import Plan
from trimtab.traces.deadlines import thinned_by_job
from trimtab.traces.loader import load
from trimtab.world import Seeds
from verdicts import HEADINGS, Verdict

SOURCE = SHARED / "data" / "chronus" / "trace_job_Philly_MIX1.csv.gz"
KEPT, NODES, WINDOW = 0.1, 12, "7d..14d"
POLICIES = ("chronus", "sensascale", "sensascale-plus")
LINES = ("fixed", "fixed-week")
MEASURES = (
    ("value lost", "slo_violation_rate_weighted", 100, "%"),
    ("mean JCT", "jct_s_mean", 1, "s"),
)


def tuned(trials: Trials, policy: str, budget: int, seed: int) -> tuple[Line, ...]:
    """Return the default setting's week, and that of the setting tuned on the week before."""
    trace = thinned_by_job(load(f"chronus:{SOURCE}"), KEPT, Seeds(seed))
    world = World(seed=seed, curves="builtin", models="draw")
    return evaluate(
        with_models(trace, world),
        WINDOW,
        Cluster.pool(NODES, 8),
        policy,
        find_policy(policy).space.defaults,
        world,
        Plan(tuning=Tuning(objective=find_objective("violations"), budget=budget), rails=Guardrails()),
        LINES,
        trials,
    ).lines


def rows(policy: str, runs: Sequence[Sequence[Line]]) -> Iterator[Verdict]:
    """Yield what each line loses, means over the seeds."""
    for what, metric, times, unit in MEASURES:
        default, better = ([times * (run[place].metrics[metric] or 0) for run in runs] for place in (0, 1))
        told = {"case": "mix1, second week", "unit": unit}
        yield Verdict.of(default, what=f"{policy}, {what}, default", **told)
        baseline = sum(default) / len(default)
        yield Verdict.of(better, what=f"{policy}, {what}, tuned on the first week", baseline=baseline, **told)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="Schedulers with deadlines, tuned on the week before.")
    options.add_argument("--policy", action="append", choices=POLICIES, help="may be repeated")
    options.add_argument("--seeds", type=int, default=5, help="draws of jobs and models (default 5)")
    options.add_argument("--budget", type=int, default=80, help="settings tried (default 80)")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: the cores")
    given = options.parse_args()
    at_least_one(options, given, "seeds", "budget", "workers")
    if not SOURCE.is_file():
        options.error(f"there is no {SOURCE} (set TRIMTAB_SHARED); nothing was measured.")
    return given


def main() -> None:
    """Measure and print."""
    given = _options()
    told = machine(processor())
    found: list[Verdict] = []
    with open_trials("processes", given.workers) as trials:
        for policy in given.policy or POLICIES:
            print(policy, file=sys.stderr, flush=True)
            runs = [tuned(trials, policy, given.budget, seed) for seed in range(given.seeds)]
            found += rows(policy, runs)
    print("{cpu}, {cores} cores, load {load}; Python {python}; commit {commit}\n".format(**told))
    print(shown([HEADINGS, *(row.cells() for row in found)]))


if __name__ == "__main__":
    main()
