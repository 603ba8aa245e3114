"""Themis and Lucid tuned hour by hour on the closed-loop cases: how fair, and how fast, beside their targets.

    python benchmarks/schedulers.py [--policy themis|lucid] [--cases CASES] [--seeds 1] [--budget 80]

Reads the real traces, and the measured pairs that Lucid packs by, in the folder named by TRIMTAB_SHARED
(default ../shared); which model a job trains is drawn. Baseline of what is gained: the oracle. A target that
not even the true future reaches is left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

import closed_loop
from asked import at_least_one, names
from cases import SHARED
from closed_loop import FIVE, Case, Outcome, Runs, Way
from forecast import shown
from machine import machine, processor
from trimtab.simulate.trials import open_trials
from verdicts import HEADINGS, Target, Verdict

PAIRS = SHARED / "data" / "lucid" / "colocate_info.csv.gz"
CASES = {case.name: case for case in closed_loop.CASES}
QUICK = {case.name: case for case in closed_loop.QUICK}
QUICK_BUDGET = 6

FAIRER, FAIRER_POINTS = 1.07, 4.0  # Themis: times fixed, and points over selftune
FASTER, NO_SLOWER = 1.15, 1 / 1.01  # Lucid: times selftune, and times fixed


def themis(runs: Runs, case: Case) -> Iterator[Verdict]:
    """Yield the share of jobs with rho <= 1 and the mean JCT of each line, then what is gained."""
    found = _found(runs, replace(case, policy="themis", objective="rho"))
    for line, outcomes in found.items():
        shares = [100 * one.fair_share for one in outcomes]
        yield Verdict.of(shares, what=f"themis, rho <= 1, {line}", case=case.name, unit="%")
        yield _jct("themis", case, line, outcomes)
    plus, fixed, tuned, best = (
        100 * np.array([one.fair_share for one in found[line]])
        for line in ("trimtab-plus", "fixed", "selftune", "oracle")
    )
    yield _gain("themis, trimtab-plus over fixed", case, plus / fixed, "x", FAIRER, best / fixed)
    yield _gain(
        "themis, trimtab-plus over selftune", case, plus - tuned, "points", FAIRER_POINTS, best - tuned
    )


def lucid(runs: Runs, case: Case) -> Iterator[Verdict]:
    """Yield the mean JCT of each line, then what is gained."""
    found = _found(runs, replace(case, policy="lucid", objective="jct", speeds=str(PAIRS), models="draw"))
    for line, outcomes in found.items():
        yield _jct("lucid", case, line, outcomes)
    plus, fixed, tuned, best = (
        np.array([one.jct_s for one in found[line]])
        for line in ("trimtab-plus", "fixed", "selftune", "oracle")
    )
    yield _gain("lucid, selftune over trimtab-plus", case, tuned / plus, "x", FASTER, tuned / best)
    floor = {"what": "lucid, fixed over trimtab-plus", "case": case.name, "unit": "x"}
    yield Verdict.of((fixed / plus).tolist(), target=Target(low=NO_SLOWER), **floor)


POLICIES = {"themis": themis, "lucid": lucid}


def _found(runs: Runs, case: Case) -> Mapping[str, Sequence[Outcome]]:
    return {line: runs.all(case, Way(line)) for line in FIVE}


def _jct(policy: str, case: Case, line: str, outcomes: Sequence[Outcome]) -> Verdict:
    values = [one.jct_s for one in outcomes]
    return Verdict.of(values, what=f"{policy}, mean JCT, {line}", case=case.name, unit="s")


def _gain(
    what: str, case: Case, values: np.ndarray, unit: str, least: float, possible: np.ndarray
) -> Verdict:
    """Return what is gained, with its target where the oracle reaches it."""
    target = Target(low=least) if possible.mean() >= least else None
    told = {"what": what, "case": case.name, "unit": unit, "target": target}
    return Verdict.of(values.tolist(), baseline=float(possible.mean()), **told)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="Themis and Lucid, tuned hour by hour.")
    options.add_argument("--policy", action="append", choices=list(POLICIES), help="may be repeated")
    options.add_argument("--cases", default=",".join(CASES), help="default %(default)s")
    options.add_argument("--seeds", type=int, default=1, help="runs of a line (default 1)")
    options.add_argument("--budget", type=int, default=80, help="settings tried an hour (default 80)")
    options.add_argument("--quick", action="store_true", help="one invented day: does it run at all?")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: the cores")
    given = options.parse_args()
    given.cases = names(options, "cases", given.cases, CASES)
    at_least_one(options, given, "seeds", "budget", "workers")
    if not PAIRS.is_file():
        options.error(f"there is no {PAIRS} (set TRIMTAB_SHARED); nothing was measured.")
    return given


def main() -> None:
    """Measure and print."""
    given = _options()
    cases = QUICK if given.quick else {name: CASES[name] for name in given.cases}
    told = machine(processor())
    with open_trials("processes", given.workers) as trials:
        runs = Runs(trials, QUICK_BUDGET if given.quick else given.budget, given.seeds)
        rows = [
            row
            for name in given.policy or POLICIES
            for case in cases.values()
            for row in POLICIES[name](runs, case)
        ]
    print("{cpu}, {cores} cores, load {load}; Python {python}; commit {commit}\n".format(**told))
    print(shown([HEADINGS, *(row.cells() for row in rows)]))


if __name__ == "__main__":
    main()
