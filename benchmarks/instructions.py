"""How many instructions the compiled core executes per event, compared with the recorded counts.

    python benchmarks/instructions.py [--record]

Counts under valgrind, in the engine's run alone, so that neither the machine's speed nor its load matters.
Fails where a case takes more than the recorded count and the tolerance; `--record` writes what was counted,
for the compiler that built this core, in place of what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.fast import FastEngine, FastSituation
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload

RECORDS = Path(__file__).with_name("instructions.json")

# Minor versions of one compiler, of the C++ library and of its memory allocator move the counts by 1 or 2 %;
# on one machine they repeat to the instruction, nearly.
TOLERANCE = 0.05

# What callgrind counts, all that is called from it included; written as it writes them.
RUN = "trimtab::Engine::run(long)"
BATCH = (
    "trimtab::Situation::stays(std::vector<trimtab::Plan, std::allocator<trimtab::Plan> > const&, int) const"
)

CLUSTER = Cluster.pool(24, 8)
JOBS = 3000


@dataclass(frozen=True)
class Case:
    """A policy on the workload: one run, or a batch of candidates where settings are given.

    A run enters `Engine::run` once, a batch `Situation::stays`: one count a case, in order.
    """

    name: str
    policy: str
    settings: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """The function that callgrind counts."""
        return BATCH if self.settings else RUN

    @property
    def candidates(self) -> list[Knobs]:
        """The knobs of a batch."""
        space = find_policy(self.policy).space
        return [space.parse({"queue_thresholds": text}) for text in self.settings]

    def engine(self, workload: Workload) -> FastEngine:
        """Return an engine that has not run."""
        policy = find_policy(self.policy)
        return FastEngine(
            workload, CLUSTER, policy, policy.space.defaults, environment_of(workload), timeline=True
        )

    def run(self, workload: Workload) -> None:
        """Do what is counted."""
        engine = self.engine(workload)
        if not self.settings:
            engine.run()
            return
        situation = FastSituation(
            engine.snapshot(), workload, CLUSTER, engine.policy, engine.environment, None
        )
        situation.stays(self.candidates, threads=1)

    def events(self, workload: Workload) -> int:
        """Return how many events happen in what is counted."""
        total = 0
        for knobs in self.candidates or [None]:
            engine = self.engine(workload)
            if knobs is not None:
                engine.update(engine.now_ms, knobs)
            engine.run()
            total += engine.events
        return total


CASES = (
    Case("FIFO", "fifo"),
    Case("SRTF", "srtf"),
    Case("SRSF", "srsf"),
    Case("Tiresias", "tiresias"),
    Case("Tiresias, 6 candidates", "tiresias", ("60", "600", "3600", "60/3600", "600/36000", "36000")),
)


def busy_workload() -> Workload:
    """Return jobs of 1 to 16 GPUs that keep the cluster's queue long, the same on every machine."""
    dice = random.Random(7)
    facts, durations_ms, now_ms = [], [], 0
    for number in range(JOBS):
        now_ms += int(60_000 * dice.random())
        facts.append(JobFacts(f"j{number}", now_ms, (1, 1, 1, 1, 2, 4, 8, 16)[int(8 * dice.random())]))
        durations_ms.append(int(10 ** (4 + 3 * dice.random())))
    return Workload(facts, durations_ms)


def environment_of(workload: Workload) -> Environment:
    """Return the usual environment, run times known."""
    return Environment(restart_ms=flat_restart(62_000), estimator=OracleEstimator(workload.duration_ms))


def counted(cases: Sequence[Case]) -> dict[str, float]:
    """Return instructions per event by case.

    Raises:
        SystemExit: If valgrind is not there or does not find the functions.
    """
    workload = busy_workload()
    found = {}
    for symbol, group in groupby(cases, lambda case: case.symbol):
        together = list(group)
        for case, instructions in zip(together, _callgrind(symbol, together), strict=True):
            found[case.name] = round(instructions / case.events(workload), 1)
    return found


def _callgrind(symbol: str, cases: Sequence[Case]) -> list[int]:
    """Run cases in a process under callgrind; return the instructions of each call of a function."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        words += [f"--toggle-collect={symbol}", f"--dump-after={symbol}"]
        words += [sys.executable, __file__, "--inside", *[case.name for case in cases]]
        fixed = {**os.environ, "PYTHONHASHSEED": "0"}
        try:
            ran = subprocess.run(words, env=fixed, capture_output=True, text=True)
        except FileNotFoundError:
            sys.exit("instructions: valgrind is not on the path; nothing was counted.")
        if ran.returncode:
            print(ran.stderr, file=sys.stderr)
            sys.exit(f"instructions: valgrind ended with {ran.returncode}; nothing was counted.")
        dumps = [Path(f"{out}.{number}") for number in range(1, len(cases) + 1)]
        totals = [_total(dump) for dump in dumps if dump.exists()]
    if len(totals) != len(cases) or not all(totals):
        sys.exit(f"instructions: counted {totals}, not one run a case, in {symbol}; is the core stripped?")
    return totals


def _total(dump: Path) -> int:
    found = re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def compiler() -> str:
    """Return the compiler that built this core, with its major version."""
    from trimtab import _core

    name, version = _core.built.split()[:2]
    return f"{name} {version.split('.')[0]}"


def slower(counts: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Print old, new and ratio by case; return the cases that are above the tolerance or not recorded."""
    print(f"{'instructions per event':28}{'recorded':>10}{'now':>10}{'ratio':>8}")
    bad = []
    for name, new in counts.items():
        old = recorded.get(name)
        ratio = new / old if old else None
        print(f"{name:28}{_cell(old, 1):>10}{new:10.1f}{_cell(ratio, 3):>8}")
        if ratio is None or ratio > 1 + TOLERANCE:
            bad.append(name)
    return bad


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Count, print the table, and record or compare."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--record", action="store_true", help="write what was counted as the record")
    options.add_argument("--records", type=Path, default=RECORDS, help="the file of recorded counts")
    options.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only this")
    options.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    given = options.parse_args()
    wanted = given.inside or given.case
    cases = [case for case in CASES if not wanted or case.name in wanted]
    if given.inside:
        workload = busy_workload()
        for case in cases:
            case.run(workload)
        return
    records: dict[str, Any] = json.loads(given.records.read_text()) if given.records.exists() else {}
    mine = records.setdefault(compiler(), {})
    counts = counted(cases)
    bad = slower(counts, mine)
    if given.record:
        mine.update(counts)
        given.records.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
        print(f"recorded for {compiler()} in {given.records}")
    elif bad:
        sys.exit(
            f"instructions: {', '.join(bad)}: above the record for {compiler()} by over {TOLERANCE:.0%}, "
            "or not recorded; make it faster, or run --record and let the commit say why."
        )


if __name__ == "__main__":
    main()
