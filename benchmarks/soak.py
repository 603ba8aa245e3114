"""The loop for minutes of wall time beside a scheduler with a hundred events a second.

`python benchmarks/soak.py --minutes 10`: the engine as the scheduler, sixty times as fast as the wall, a
journal on SQLite, a main round every ten seconds. Prints one row a minute: events, memory, how long ticks and
decisions took.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from trimtab.cluster import Cluster
from trimtab.control.advising import Searches, Searching
from trimtab.control.guardrails import Guardrails
from trimtab.control.ledger import Ledger
from trimtab.control.loop import Loop
from trimtab.control.orders import Orders, Plant
from trimtab.control.safety import Safety
from trimtab.control.service import Clock
from trimtab.control.simulated import Simulated
from trimtab.job import JobFacts
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.generation import Forecasting
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.workload import Workload

PACE = 60
EVENTS_A_JOB = 3  # submitted, started, finished
MINUTE_MS = 60_000
POLICY = "tiresias"


def jobs(minutes: float, events_a_s: float) -> Workload:
    """Return short jobs that make so many events in each second of wall time."""
    dice = np.random.default_rng(0)
    every_ms = 1000 * PACE * EVENTS_A_JOB / events_a_s
    count = round((minutes + 1) * 60_000 * PACE / every_ms)
    run_ms = np.exp(dice.normal(np.log(80_000), 0.8, count)).astype(int).tolist()
    gpus = dice.choice([1, 1, 2], count).tolist()
    facts = [JobFacts(f"j{n}", round(n * every_ms), wide, user=f"u{n % 50}") for n, wide in enumerate(gpus)]
    return Workload(facts, run_ms)


def make(workload: Workload, ledger: Ledger) -> Loop:
    """Return the loop beside its scheduler."""
    policy, world = find_policy(POLICY), World(estimates="predicted")
    knobs, cluster = policy.space.defaults, Cluster.pool(10, 8)
    scheduler = Simulated(workload, cluster, POLICY, knobs, world.environment(workload), speedup=PACE)
    environment = world.environment(Workload([], []))
    plant = Plant(POLICY, search_space(policy, knobs, "consolidated"), environment)
    rails = Guardrails(gain_min=1.0, dwell_ms=5 * MINUTE_MS)
    how = Searching(
        line="trimtab-plus",
        tuning=Tuning(objective=find_objective("wait"), budget=10),
        rails=rails,
        forecasting=Forecasting(
            arrivals="last-hour",
            remaining="kaplan-meier",
            futures=1,
            arrivals_ms=10 * MINUTE_MS,
            run_on_ms=10 * MINUTE_MS,
        ),
    )
    orders = Orders(
        mode="auto",
        rails=rails,
        safety=Safety(history_min_ms=0, confirm_ms=2 * MINUTE_MS),
        interval_ms=10 * MINUTE_MS,
        background_ms=None,
        poll_ms=MINUTE_MS,
    )
    return Loop(scheduler, ledger, plant, orders, Searches(how, LocalTrials()), Clock(PACE), "soak")


def main() -> int:
    """Soak, and print a row a minute."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of wall time")
    parser.add_argument("--events", type=float, default=100.0, help="a second of wall time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"sqlite:///{folder}/journal.db") as ledger:
        loop = make(jobs(asked.minutes, asked.events), ledger)
        loop.start({})
        print(
            "minute  events/s   jobs known  memory MiB  journal MiB  rounds"
            "  tick ms p50  p95  decision ms p50  p95"
        )
        for minute in range(1, max(1, round(asked.minutes)) + 1):
            print(_minute(loop, minute, min(60.0, asked.minutes * 60), Path(folder)), flush=True)
        states, size = ledger.state_bytes()
        print(
            f"\n{states} states, {size // max(1, states):,} bytes a state; trouble: {loop.trouble or 'none'}"
        )
    return 1 if loop.trouble else 0


def _minute(loop: Loop, minute: int, seconds: float, folder: Path) -> str:
    """Tick for a minute of wall time."""
    events, rounds = loop.register.events, sum(loop.counts.rounds.values())
    plain, deciding = list[float](), list[float]()
    until_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < until_s:
        before = sum(loop.counts.rounds.values())
        loop.tick()
        took_ms = 1000 * (time.monotonic() - now_s)
        (deciding if sum(loop.counts.rounds.values()) > before else plain).append(took_ms)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - now_s)))
    rate = (loop.register.events - events) / seconds
    rounds = sum(loop.counts.rounds.values()) - rounds
    size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    return (
        f"{minute:>6}{rate:>10.1f}{len(loop.register):>13,}{_memory_mib():>12.1f}{size:>13.1f}{rounds:>8}"
        f"{_at(plain, 50):>13.0f}{_at(plain, 95):>5.0f}{_at(deciding, 50):>17.0f}{_at(deciding, 95):>5.0f}"
    )


def _at(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")


def _memory_mib() -> float:
    """Return the memory in use now, where the system tells; else the most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
