"""How well does the performance model predict windows it has not seen? On real traces, split by time.

    PYTHONPATH=src python benchmarks/model.py --situations 36 --settings 50

Situations are hours of a real window in a running cluster, each with its true future; settings are those a
search would scatter. The last third of the hours is the test.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from cases import SHARED
from trimtab.cluster import Cluster
from trimtab.knobs import Knobs
from trimtab.objective import Measured, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.model import HERE_WEIGHT, Model, fit
from trimtab.search.sampler import design
from trimtab.search.samples import Encoding, Samples, Summary, Table
from trimtab.search.spaces import search_space
from trimtab.simulate.engines import make_engine
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import oracle_future
from trimtab.traces.loader import load
from trimtab.world import Seeds, cpu_s
from verdicts import Target, Verdict

HOUR_MS = 3_600_000
# Trace, window, nodes of 8 GPUs.
CASES = {
    "philly": ("philly/philly_until_2017-10-31.csv.gz", "2017-09-25..2017-10-05", 64),
    "venus": ("helios/venus_gpu_jobs_until_2020-08-09.csv.gz", "2020-06-01..2020-06-15", 70),
}
NEAR_BEST = 0.95
BUSY_S = 60.0  # mean overhead a job under the first setting from which a situation counts as busy
MEASURES = ("jct_error", "overhead_error", "rank_correlation", "near_best_kept", "gain_lost_by_its_best")
POLICY = "tiresias"
# Measure -> how it is told, and what it is to reach; errors in %.
TARGETS = {
    "jct_error": ("error of the mean JCT", 100, "%", Target(high=5)),
    "overhead_error": ("error of the overhead", 100, "%", Target(high=25)),
    "rank_correlation": ("rank correlation", 1, "", Target(low=0.9)),
}

Measure = Callable[[Situation, Sequence[Knobs]], list[Measured]]


@dataclass(frozen=True)
class Collected:
    """The rows of one objective, and the summary of each situation."""

    samples: Samples
    summaries: list[Summary]


def situations(
    case: tuple[str, str, int], count: int, arrivals_ms: int, run_on_ms: int
) -> Iterator[Situation]:
    """Yield evenly spaced hours of a window that runs under the default settings, with their true futures."""
    file, window, nodes = case
    trace = load(str(SHARED / "data" / file))
    inside = trace.window(window)
    world = World()
    workload = Workload.of(inside, world.spread_ppm)
    environment, policy = world.environment(workload), find_policy(POLICY)
    engine = make_engine("auto", workload, Cluster.pool(nodes, 8), policy, policy.space.defaults, environment)
    start_ms, end_ms = (bound - inside.zero_ms for bound in trace.window_ms(window))
    first_ms = start_ms + 24 * HOUR_MS  # until then the cluster fills
    for place in range(count):
        now_ms = first_ms + place * (end_ms - first_ms) // count // HOUR_MS * HOUR_MS
        engine.run(now_ms)
        yield oracle_future(engine, now_ms, workload, POLICY, environment, arrivals_ms, run_on_ms)


def collect(case: str, count: int, settings: int, horizon_h: tuple[int, int], measure: Measure) -> Collected:
    """Measure scattered settings on each situation."""
    policy = find_policy(POLICY)
    space = search_space(policy, policy.space.defaults, "consolidated")
    found = Collected(Samples(Encoding(space)), [])
    arrivals_ms, run_on_ms = (hours * HOUR_MS for hours in horizon_h)
    for situation in situations(CASES[case], count, arrivals_ms, run_on_ms):
        summary = Summary.of(situation)
        number = found.samples.open(summary)
        found.summaries.append(summary)
        points = design(space, settings, Seeds(number))
        tried = [space.base, *(space.knobs(point) for point in points)]
        for knobs, one in zip(tried, measure(situation, tried), strict=True):
            found.samples.add(number, knobs, one, designed=True)
    return found


def judge(model: Model, table: Table, summaries: Sequence[Summary], objective: str) -> dict[str, list[float]]:
    """Return, a situation each: mean relative errors, rank correlation, near-best kept and gain lost.

    Where jobs hardly wait under the first setting there is nothing to rank: only the error of the JCT counts.
    """
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for number in np.unique(table.situation):
        rows = table.take(table.situation == number)
        predicted = model.predict(rows.knobs, summaries[number]).cost
        known = rows.run_s + rows.age_s if objective == "wait" else np.zeros(len(rows))
        off, overhead = np.abs(predicted - rows.cost), rows.mediators[:, :3].sum(axis=1)
        found["jct_error"].append(float(np.mean(off / (rows.cost + known))))
        if overhead[0] < BUSY_S or not np.ptp(rows.cost) or not np.ptp(predicted):
            continue
        gains, guessed = ((costs[0] + 1) / (costs + 1) for costs in (rows.cost, predicted))
        near = gains >= NEAR_BEST * gains.max()
        kept = guessed[near] >= NEAR_BEST * guessed.max()
        found["overhead_error"].append(float(np.mean(off[overhead > 0] / overhead[overhead > 0])))
        found["rank_correlation"].append(float(spearmanr(predicted, rows.cost).statistic))
        found["near_best_kept"].append(float(kept.mean()))
        found["gain_lost_by_its_best"].append(float(1 - gains[guessed.argmax()] / gains.max()))
    return found


def mean(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the means over situations, and how many of them were busy."""
    joined = {name: [value for part in parts for value in part[name]] for name in MEASURES}
    means = {name: round(float(np.mean(values)), 4) for name, values in joined.items() if values}
    return {**means, "situations": len(joined["jct_error"]), "busy": len(joined["rank_correlation"])}


def report(found: Collected, objective: str, own: int) -> dict[str, Any]:
    """Fit on the first two thirds of the hours, judge on the rest; then with a few rows of each hour."""
    everything = found.samples.table(len(found.summaries))
    first = len(found.summaries) * 2 // 3
    before = everything.situation < first
    train, test = everything.take(before), everything.take(~before)
    began = cpu_s()
    model = fit(train, objective, None)
    fit_s = cpu_s() - began
    began = cpu_s()
    model.predict(np.tile(test.knobs, (1 + 1000 // len(test), 1))[:1000], found.summaries[-1])
    predict_s = cpu_s() - began
    tuned = []
    for number in np.unique(test.situation):
        rows = test.take(test.situation == number)
        place = np.arange(len(rows))
        few = np.flatnonzero(everything.situation == number)[:own]
        few = np.concatenate([np.flatnonzero(before), few])
        refit = fit(everything.take(few), objective, None, here=int(number))
        tuned.append(judge(refit, rows.take((place == 0) | (place >= own)), found.summaries, objective))
    return {
        "rows": len(train),
        "unseen": mean([judge(model, test, found.summaries, objective)]),
        rows_of_each(own): mean(tuned),
        "backtested_rank_correlation": model.spearman,
        "fit_cpu_s": fit_s,
        "predict_1000_cpu_s": predict_s,
    }


def rows_of_each(own: int) -> str:
    """Return what the figures of a model are called that knows some rows of the hour."""
    return f"with {own} rows of each (weight {HERE_WEIGHT:g})"


def verdicts(
    cases: Sequence[str], count: int, settings: int, own: int, horizon_h: tuple[int, int]
) -> Iterator[Verdict]:
    """Yield how well the model of waiting predicts hours it has seen nothing of, and some settings of."""
    trials, wait = LocalTrials(), find_objective("wait")

    def measure(situation: Situation, tried: Sequence[Knobs]) -> list[Measured]:
        return trials.measure(situation, tried, wait)

    for case in cases:
        collected = collect(case, count, settings, horizon_h, measure)
        told = report(collected, "wait", own)
        for seen, means in (("unseen hours", "unseen"), (f"{own} settings known", rows_of_each(own))):
            for name, (what, scale, unit, target) in TARGETS.items():
                yield Verdict.of(
                    [scale * told[means][name]] if name in told[means] else [],
                    what=f"model, {seen}: {what}",
                    case=case,
                    unit=unit,
                    target=target,
                    note="no hour busy",
                )
        yield Verdict(
            what="model, 1,000 predictions",
            case=case,
            measured=told["predict_1000_cpu_s"],
            unit="s",
            target=Target(high=0.09),
        )


def main() -> None:
    """Print one object a case and objective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--situations", type=int, default=36)
    parser.add_argument("--settings", type=int, default=50)
    parser.add_argument("--own", type=int, default=20)
    parser.add_argument("--arrivals-h", type=int, default=24)
    parser.add_argument("--run-on-h", type=int, default=48)
    told = parser.parse_args()
    trials = LocalTrials()
    for case in CASES:
        for name in ("jct", "wait"):
            objective = find_objective(name)
            found = collect(
                case,
                told.situations,
                told.settings,
                (told.arrivals_h, told.run_on_h),
                lambda situation, tried, one=objective: trials.measure(situation, tried, one),
            )
            print(json.dumps({"case": case, "objective": name, **report(found, name, told.own)}, indent=1))


if __name__ == "__main__":
    main()
