"""Themis and Lucid tuned hour by hour on the closed-loop cases: how fair, and how fast, beside their targets.

    python benchmarks/schedulers.py [--policy themis|lucid] [--cases CASES] [--lines LINES] [--seeds 1]
                                    [--budget 80] [--estimates oracle|predicted] [--ablate]

Reads the real traces, and the measured pairs that Lucid packs by, in the folder named by TRIMTAB_SHARED
(default ../shared); which model a job trains is drawn. Baseline of what is gained: the oracle. A target that
not even the true future reaches is left out, and so is what a line would be compared with that is not run.

Both schedulers order by estimates of run times: by the true ones in every line, or with --estimates predicted
by what is learned from completed jobs. What lines forecast is another matter and never the truth but for the
oracle. --ablate adds trimtab without its causal model, with as many simulations and with as many seconds, and
trimtab-plus without guardrails.
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
from closed_loop import FREE, Case, Outcome, Runs, Way
from forecast import shown
from machine import machine, processor
from trimtab.simulate.trials import open_trials
from verdicts import HEADINGS, Target, Verdict

PAIRS = SHARED / "data" / "lucid" / "colocate_info.csv.gz"
CASES = {case.name: case for case in closed_loop.CASES}
QUICK = {case.name: case for case in closed_loop.QUICK}
QUICK_BUDGET = 6
ESTIMATES = ("oracle", "predicted")
LINES = ("fixed", "fixed-week", "selftune", "trimtab", "trimtab-plus", "oracle")
COMPARED = ("trimtab-plus", "fixed", "selftune", "oracle")

FAIRER, FAIRER_POINTS = 1.07, 4.0  # Themis: times fixed, and points over selftune
FASTER, NO_SLOWER = 1.15, 1 / 1.01  # Lucid: times selftune, and times fixed


def themis(runs: Runs, case: Case, lines: Sequence[str], ablate: bool) -> Iterator[Verdict]:
    """Yield the share of jobs with rho <= 1 and the mean JCT of each line, then what is gained."""
    found = _found(runs, replace(case, policy="themis", objective="rho"), lines, ablate)
    for line, outcomes in found.items():
        shares = [100 * one.fair_share for one in outcomes]
        yield Verdict.of(shares, what=f"themis, rho <= 1, {line}", case=case.name, unit="%")
        yield _jct("themis", case, line, outcomes)
    if not found.keys() >= set(COMPARED):
        return
    plus, fixed, tuned, best = (100 * np.array([one.fair_share for one in found[line]]) for line in COMPARED)
    yield _gain("themis, trimtab-plus over fixed", case, plus / fixed, "x", FAIRER, best / fixed)
    yield _gain(
        "themis, trimtab-plus over selftune", case, plus - tuned, "points", FAIRER_POINTS, best - tuned
    )


def lucid(runs: Runs, case: Case, lines: Sequence[str], ablate: bool) -> Iterator[Verdict]:
    """Yield the mean JCT of each line, then what is gained."""
    case = replace(case, policy="lucid", objective="jct", speeds=str(PAIRS), models="draw")
    found = _found(runs, case, lines, ablate)
    for line, outcomes in found.items():
        yield _jct("lucid", case, line, outcomes)
    if not found.keys() >= set(COMPARED):
        return
    plus, fixed, tuned, best = (np.array([one.jct_s for one in found[line]]) for line in COMPARED)
    yield _gain("lucid, selftune over trimtab-plus", case, tuned / plus, "x", FASTER, tuned / best)
    floor = {"what": "lucid, fixed over trimtab-plus", "case": case.name, "unit": "x"}
    yield Verdict.of((fixed / plus).tolist(), target=Target(low=NO_SLOWER), **floor)


POLICIES = {"themis": themis, "lucid": lucid}


def _found(runs: Runs, case: Case, lines: Sequence[str], ablate: bool) -> Mapping[str, Sequence[Outcome]]:
    found = {line: runs.all(case, Way(line)) for line in lines}
    if ablate:
        blind = Way("trimtab", blind=True)
        timed = replace(blind, seconds=float(np.mean([one.search_s for one in found["trimtab"]])))
        found |= {way.name: runs.all(case, way) for way in (blind, timed, FREE)}
    return found


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
    options.add_argument("--lines", default=",".join(LINES), help="default %(default)s")
    options.add_argument("--seeds", type=int, default=1, help="runs of a line (default 1)")
    options.add_argument("--budget", type=int, default=80, help="settings tried an hour (default 80)")
    options.add_argument("--estimates", choices=ESTIMATES, default="oracle", help="default %(default)s")
    options.add_argument("--ablate", action="store_true", help="the searching lines without a part as well")
    options.add_argument("--quick", action="store_true", help="one invented day: does it run at all?")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: the cores")
    given = options.parse_args()
    given.cases = names(options, "cases", given.cases, CASES)
    given.lines = names(options, "lines", given.lines, LINES)
    if given.ablate and "trimtab" not in given.lines:
        options.error(
            "--ablate takes parts out of the line trimtab: name it in --lines; nothing was measured."
        )
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
            for row in POLICIES[name](
                runs, replace(case, estimates=given.estimates), given.lines, given.ablate
            )
        ]
    print("{cpu}, {cores} cores, load {load}; Python {python}; commit {commit}".format(**told))
    print(f"estimates: {given.estimates}\n")
    print(shown([HEADINGS, *(row.cells() for row in rows)]))


if __name__ == "__main__":
    main()
