"""All that AutoSched is made of against its targets: one table from the forecasts to the closed loop.

    python benchmarks/autosched.py [--only NAME] [--cases CASES] [--lines LINES] [--seeds 3] [--quick]

Reads the real traces in the folder named by TRIMTAB_SHARED (default ../shared). Means where there are
several values; spread: from the least to the most of them. All sections together take hours. `--lines` with
`trimtab` at its end times the paper's line, too; rows that need a line which is left out are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import aggregation
import closed_loop
import forecast
import model
import remaining
import search
from asked import at_least_one, names
from cases import SHARED
from closed_loop import FIVE, Runs
from machine import machine, processor
from trimtab.simulate.fast import compiled_available
from trimtab.simulate.trials import open_trials
from trimtab.studies.lines import LINES
from verdicts import HEADINGS, Verdict

HORIZON_H = (24, 48)  # arrivals and run-on of the sections that search
BUDGET, QUICK_BUDGET = 80, 6
CASES = {case.name: case for case in closed_loop.CASES}


def forecasts(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield periods, then errors of arrivals."""
    cases = ["synthetic-helios"] if given.quick else list(forecast.CASES)
    yield from forecast.period_verdicts(cases)
    yield from forecast.arrival_verdicts(cases, 48 if given.quick else 2)


def predictor(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield the forecasts of remaining service."""
    cases, hours_max = (["venus"], 3) if given.quick else (["philly", "venus"], None)
    yield from remaining.verdicts(cases, SHARED, hours_max)


def models(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield the performance model."""
    cases, sizes = (["philly"], (6, 10, 4)) if given.quick else (list(model.CASES), (36, 50, 20))
    yield from model.verdicts(cases, *sizes, HORIZON_H)


def merged(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield merged jobs."""
    cases, sizes = (["venus"], (2, 6)) if given.quick else (list(aggregation.CASES), (12, 24))
    yield from aggregation.verdicts(cases, *sizes, HORIZON_H)


def searches(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield the regret of searches."""
    cases, sizes = (["philly"], (1, 40, 1, 8)) if given.quick else (list(model.CASES), (3, 2000, 10, 50))
    yield from search.verdicts(cases, *sizes)


def causal(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield what the causal model is worth."""
    yield from closed_loop.causal(runs, closed_loop.QUICK if given.quick else closed_loop.EARLY)


def available(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield what there is to gain."""
    yield from closed_loop.gains(runs, _cases(given))


def loop(given: argparse.Namespace, runs: Runs) -> Iterator[Verdict]:
    """Yield what is gained."""
    yield from closed_loop.end_to_end(runs, _cases(given), given.lines)


def _cases(given: argparse.Namespace) -> Sequence[closed_loop.Case]:
    return closed_loop.QUICK if given.quick else [CASES[name] for name in given.cases]


SECTIONS: Mapping[str, Callable[[argparse.Namespace, Runs], Iterator[Verdict]]] = {
    "forecast": forecasts,
    "remaining": predictor,
    "model": models,
    "aggregation": merged,
    "search": searches,
    "causal": causal,
    "gain": available,
    "loop": loop,
}
INVENTED = ("forecast", "causal", "gain", "loop")  # sections that need no real trace with --quick


def measured(given: argparse.Namespace) -> Iterator[tuple[str, Verdict]]:
    """Yield the rows with the section each belongs to; what is measured now is told on stderr."""
    with open_trials("processes", given.workers) as trials:
        runs = Runs(trials, QUICK_BUDGET if given.quick else BUDGET, given.seeds)
        for name in given.only:
            print(name, file=sys.stderr, flush=True)
            for row in SECTIONS[name](given, runs):
                yield name, row


def text(told: Mapping[str, str | int | float], rows: list[Verdict], given: argparse.Namespace) -> str:
    """Return a head that says what was measured on what, the table, and how many targets are met."""
    head = (
        "{cpu}, {cores} cores, {memory_gib} GiB, load {load}; {system}; Python {python}\n"
        "core by {compiler}; commit {commit}\n"
    ).format(**told)
    how = f"{given.seeds} runs of a line, {given.workers} at once of the settings that a search tries\n"
    if given.quick:
        how += "QUICK: a small part of everything; the targets mean nothing\n"
    verdicts = [row.met for row in rows if row.met is not None]
    table = forecast.shown([HEADINGS, *(row.cells() for row in rows)])
    return f"{head}{how}\n{table}\n\n{sum(verdicts)} of {len(verdicts)} targets met"


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="AutoSched's parts and its whole against their targets.")
    options.add_argument("--only", action="append", choices=list(SECTIONS), help="may be repeated")
    options.add_argument(
        "--quick", action="store_true", help="a small part of everything: does it run at all?"
    )
    options.add_argument(
        "--seeds", type=int, default=3, help="runs of a line in the section loop (default 3)"
    )
    options.add_argument(
        "--lines", default=",".join(FIVE), help="lines of the section loop (default %(default)s)"
    )
    options.add_argument(
        "--cases", default=",".join(CASES), help="cases of the sections gain and loop (default %(default)s)"
    )
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: the cores")
    options.add_argument("--format", choices=["text", "json"], default="text")
    given = options.parse_args()
    given.only = list(dict.fromkeys(given.only or SECTIONS))
    given.lines = names(options, "lines", given.lines, LINES)
    given.cases = names(options, "cases", given.cases, CASES)
    at_least_one(options, given, "seeds", "workers")
    if not compiled_available():
        options.error("this installation has no compiled core to measure; nothing was measured.")
    invented = given.quick and set(given.only) <= set(INVENTED)
    if not invented and not (SHARED / "data").is_dir():
        options.error(f"{SHARED} has no data/ (set TRIMTAB_SHARED); nothing was measured.")
    return given


def main() -> None:
    """Measure and print."""
    given = _options()
    told = machine(processor())
    found = list(measured(given))
    if given.format == "json":
        rows = [{"section": section, **row.jsonable()} for section, row in found]
        print(
            json.dumps({"machine": told, "seeds": given.seeds, "quick": given.quick, "rows": rows}, indent=1)
        )
    else:
        print(text(told, [row for _, row in found], given))


if __name__ == "__main__":
    main()
