"""How fast the engines are, against targets: one table with the machine, the commit and the spread.

    python benchmarks/speed.py [--only NAME] [--runs 5] [--no-reference] [--evaluate] [--format json]

Reads the real traces in the folder named by TRIMTAB_SHARED (default ../shared). pytest-benchmark takes the
times; memory is measured in processes of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import memory
import table
from cases import SHARED, Inputs
from machine import machine
from rows import TOPICS, Figure, rows_of
from trimtab.simulate.fast import compiled_available

MEASURE = Path(__file__).with_name("measure.py")


class Settings:
    """What the measurements are told, as a pytest plugin."""

    def __init__(self, inputs: Inputs, runs: int) -> None:
        self._inputs = inputs
        self._runs = runs

    @pytest.fixture(scope="session")
    def inputs(self) -> Inputs:
        return self._inputs

    @pytest.fixture(scope="session")
    def runs(self) -> int:
        return self._runs

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say what is measured now."""
        print(nodeid.rpartition("::")[2], file=sys.stderr, flush=True)


def needed(topics: Sequence[str], reference: bool) -> list[str]:
    """Return the names of the measurements that topics need, each once."""
    names = [
        name
        for topic in topics
        for name in (*TOPICS[topic].needs, *(TOPICS[topic].on_reference if reference else ()))
    ]
    return list(dict.fromkeys(names))


def measured(names: Sequence[str], settings: Settings) -> tuple[str, dict[str, Figure]]:
    """Return the processor's name and the figures by measurement; what pytest prints goes to stderr.

    Raises:
        SystemExit: If a measurement fails.
    """
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder, contextlib.redirect_stdout(sys.stderr):
        path = Path(folder) / "measured.json"
        options = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--benchmark-quiet"]
        wanted = [f"{MEASURE}::{name}" for name in names]
        if pytest.main([*options, "--tb=short", f"--benchmark-json={path}", *wanted], [settings]):
            sys.exit("speed: a measurement failed, as told above; there is no table.")
        found = json.loads(path.read_text())
    return found["machine_info"]["cpu"].get("brand_raw", "unknown"), {
        one["name"]: _figure(one["stats"], one["extra_info"]) for one in found["benchmarks"]
    }


def _figure(stats: dict[str, float], notes: dict[str, Any]) -> Figure:
    return Figure(stats["median"], stats["min"], stats["max"], notes)


def memories(topics: Sequence[str], tiny: bool, runs: int) -> dict[str, Figure]:
    """Return the bytes a job of the topics' cases, where this system tells them."""
    found = {}
    for case, timeline in dict.fromkeys(one for topic in topics for one in TOPICS[topic].memory):
        name = f"memory[{case}{', timeline' if timeline else ''}]"
        if memory.available():
            print(name, file=sys.stderr, flush=True)
            bytes_a_job = memory.measured(case, timeline, tiny, runs)
            found[name] = Figure(statistics.median(bytes_a_job), min(bytes_a_job), max(bytes_a_job))
    return found


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="Both engines against their targets, as one table.")
    options.add_argument("--only", action="append", choices=list(TOPICS), help="may be repeated")
    options.add_argument("--runs", type=int, default=5, help="runs of each measurement (default 5)")
    options.add_argument("--no-reference", action="store_true", help="leave the reference engine out")
    options.add_argument("--evaluate", action="store_true", help="time the evaluate command as well: slow")
    options.add_argument("--format", choices=["text", "json"], default="text")
    options.add_argument("--tiny", action="store_true", help="300 synthetic jobs: does it run at all?")
    given = options.parse_args()
    if given.runs < 1:
        options.error(f"--runs {given.runs}: it must be at least 1; nothing was measured.")
    if not compiled_available():
        options.error("this installation has no compiled core to measure; nothing was measured.")
    if not given.tiny and not (SHARED / "data").is_dir():
        options.error(f"{SHARED} has no data/ (set TRIMTAB_SHARED); nothing was measured.")
    return given


def main() -> None:
    """Measure and print."""
    given = _options()
    topics = given.only or [name for name in TOPICS if name != "evaluate"]
    if given.evaluate and "evaluate" not in topics:
        topics.append("evaluate")
    names = needed(topics, reference=not given.no_reference)
    cpu, figures = measured(names, Settings(Inputs(given.tiny), given.runs))
    rows = rows_of(topics, {**figures, **memories(topics, given.tiny, given.runs)})
    if given.format == "json":
        print(json.dumps(table.jsonable(machine(cpu), given.runs, rows), indent=2))
    else:
        print(table.text(machine(cpu), given.runs, rows, given.tiny))


if __name__ == "__main__":
    main()
