"""The tables of the pages on SensaScale and on Chronus: what each part is worth; the jobs of the artifact.

    python benchmarks/deadline_tables.py [--only variants|chronus] [--seeds 3] [--kept 0.1] [--selector S]

Reads Chronus's traces in the folder named by TRIMTAB_SHARED (default ../shared). `variants`: a tenth of the
jobs, another one for each seed, on 12 nodes of 8 GPUs, models drawn for their speed by CPU and memory; means
over the seeds. `chronus`: the tenth that the authors' simulator was run on. Run times are known, and resuming
costs 0.5 (1 + log2 g) min. Times are minutes; queue is all time without GPUs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from asked import at_least_one
from cases import SHARED
from forecast import shown
from machine import machine, processor
from trimtab.cli.options import read_policy, with_models
from trimtab.cluster import Cluster
from trimtab.simulate.metrics import Metrics
from trimtab.simulate.run import World, simulate
from trimtab.traces.deadlines import load_of, thinned_by_job
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

TRACES = ("SLO", "MIX1")
NODES, GPUS_PER_NODE = 12, 8
ARTIFACT_SEED = 7  # of the tenth that the authors' simulator was run on
ARTIFACT = (("SLO", 12), ("SLO", 16), ("MIX1", 12))  # trace and nodes
SELECTORS = ("greedy", "milp")
_PLAIN = "pair_scope=off,adjust=false,free_pool=false"
VARIANTS = {
    "arrival, easy backfill": f"sensascale:order=fifo,backfill=easy,{_PLAIN}",
    "earliest deadline, easy backfill": f"sensascale:order=edf,hopeless=keep,backfill=easy,{_PLAIN}",
    "latest start, hopeless last, safe backfill": f"sensascale:{_PLAIN}",
    "+ sharing on nodes": "sensascale:adjust=false,free_pool=false",
    "+ loans and free CPU and memory = sensascale": "sensascale",
    "sensascale, hopeless kept in the order": "sensascale:hopeless=keep",
    "sensascale, explicit pairs": "sensascale:unit_mode=explicit",
    "+ rescues": "sensascale:preempt=rescue",
    "+ promises": "sensascale-plus:order=lst,preempt=rescue,max_evictions=3",
}


def source(trace: str) -> Path:
    """Return where a trace of Chronus is."""
    return SHARED / "data" / "chronus" / f"trace_job_Philly_{trace}.csv.gz"


def run(trace: Trace, nodes: int, text: str, world: World) -> Metrics:
    """Return the numbers of a policy, as the command line takes it."""
    name, knobs = read_policy(text, None)
    return simulate(with_models(trace, world), Cluster.pool(nodes, GPUS_PER_NODE), name, knobs, world).metrics


def variants(seeds: int, kept: float) -> Iterator[tuple[str, ...]]:
    """Yield a head, then what each variant does on each trace."""
    yield "variant", "trace", "missed", "sd", "JCT", "queue", "promised", "kept"
    for name in TRACES:
        whole = load(f"chronus:{source(name)}")
        traces = [thinned_by_job(whole, kept, Seeds(seed)) for seed in range(seeds)]
        for variant, text in VARIANTS.items():
            print(f"{name}: {variant}", file=sys.stderr, flush=True)
            found = [
                run(
                    trace,
                    NODES,
                    text,
                    World(restart_cost_s="chronus", curves="builtin", models="draw", seed=seed),
                )
                for seed, trace in enumerate(traces)
            ]
            missed = [one["slo_violation_rate"] or 0 for one in found]
            promised = [(one.get("promised") or 0) / (one["slo_jobs"] or 1) for one in found]
            yield (
                variant,
                name,
                f"{100 * np.mean(missed):.1f} %",
                f"{100 * np.std(missed, ddof=1):.1f}" if seeds > 1 else "-",
                *(_minutes(found, metric) for metric in ("jct_s_mean", "queue_s_mean")),
                f"{100 * np.mean(promised):.0f} %" if any(promised) else "-",
                _percent(found, "promise_kept_rate"),
            )


def chronus(selectors: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a head, then what Chronus does with the jobs of the artifact."""
    yield (
        *("trace", "GPUs", "load", "selector", "late", "JCT", "queue", "preempted"),
        *("promised", "kept", "refused, late", "solves", "limited", "largest gap"),
    )
    for name, nodes in ARTIFACT:
        trace = tenth(name)
        for selector in selectors:
            print(f"{name}, {nodes} nodes: {selector}", file=sys.stderr, flush=True)
            found = run(trace, nodes, f"chronus:selector={selector}", World(restart_cost_s="chronus"))
            yield (
                *(name, str(GPUS_PER_NODE * nodes), f"{load_of(trace, GPUS_PER_NODE * nodes):.2f}", selector),
                _percent([found], "slo_violation_rate"),
                *(_minutes([found], metric) for metric in ("jct_s_mean", "queue_s_mean")),
                f"{found['preemptions_per_job']:.1f}",
                f"{found['promised']:,} of {found['slo_jobs']:,}",
                _percent([found], "promise_kept_rate"),
                _percent([found], "slo_violation_rate_refused"),
                *(f"{found.get(metric, 0):,}" for metric in ("solves", "solves_limited")),
                f"{100 * (found.get('solver_gap_max') or 0):.2f} %",
            )


def tenth(name: str) -> Trace:
    """Return the tenth of a trace that the authors' simulator was run on."""
    rows = pl.read_csv(source(name)).filter(pl.col("num_gpu") > 0)
    chosen = np.random.RandomState(ARTIFACT_SEED).choice(len(rows), round(len(rows) / 10), replace=False)
    labels = rows["job_id"].cast(pl.String).gather(chosen)
    trace = load(f"chronus:{source(name)}")
    return trace.select(trace.jobs["job_id"].is_in(labels.to_list()).to_numpy(), "thinned")


def _minutes(found: Sequence[Metrics], metric: str) -> str:
    return f"{np.mean([one[metric] or 0 for one in found]) / 60:,.0f}"


def _percent(found: Sequence[Metrics], metric: str) -> str:
    known = [value for one in found if (value := one.get(metric)) is not None]
    return f"{100 * np.mean(known):.1f} %" if known else "-"


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="The tables of the pages on SensaScale and on Chronus.")
    options.add_argument("--only", choices=("variants", "chronus"), help="one of the two tables")
    options.add_argument("--seeds", type=int, default=3, help="draws of jobs and models (default 3)")
    options.add_argument(
        "--kept", type=float, default=0.1, help="share of the jobs of variants (default 0.1)"
    )
    options.add_argument("--selector", action="append", choices=SELECTORS, help="of Chronus; may be repeated")
    given = options.parse_args()
    at_least_one(options, given, "seeds")
    if not 0 < given.kept <= 1:
        options.error(f"--kept {given.kept:g}: it must be above 0, at most 1; nothing was measured.")
    for name in TRACES:
        if not source(name).is_file():
            options.error(f"there is no {source(name)} (set TRIMTAB_SHARED); nothing was measured.")
    return given


def main() -> None:
    """Measure and print."""
    given = _options()
    print("{cpu}, {cores} cores; Python {python}; commit {commit}".format(**machine(processor())))
    if given.only != "chronus":
        print(f"\n{shown([*variants(given.seeds, given.kept)])}")
    if given.only != "variants":
        print(f"\n{shown([*chronus(given.selector or SELECTORS)])}")


if __name__ == "__main__":
    main()
