"""The loop for minutes of wall time beside a scheduler with a hundred events a second.

`python benchmarks/soak.py --minutes 10`: the engine as the scheduler, in a process of its own, sixty times as
fast as the wall; gRPC to it, a journal on SQLite, a main round every ten seconds. When the loop begins, as
many jobs have ended as it remembers. Prints one row a minute: events, the loop's memory, how long ticks and
decisions took.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from trimtab.cluster import Cluster
from trimtab.control.adapter import Adapter
from trimtab.control.advising import Searches, Searching
from trimtab.control.authority import Tokens
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.control.grpc_server import serve
from trimtab.control.guardrails import Guardrails
from trimtab.control.ledger import Ledger
from trimtab.control.loop import Loop
from trimtab.control.orders import Orders, Plant
from trimtab.control.register import ENDED_MAX, Register
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
TOKEN = "a-token-of-the-benchmark"


def every_ms(events_a_s: float) -> float:
    """Return the time between jobs that makes so many events in each second of wall time."""
    return 1000 * PACE * EVENTS_A_JOB / events_a_s


def jobs(minutes: float, apart_ms: float, before: int) -> Workload:
    """Return short jobs for so long, and so many that come before."""
    dice = np.random.default_rng(0)
    count = before + round((minutes + 2) * 60_000 * PACE / apart_ms)
    run_ms = np.exp(dice.normal(np.log(80_000), 0.8, count)).astype(int).tolist()
    gpus = dice.choice([1, 1, 2], count).tolist()
    facts = [JobFacts(f"j{n}", round(n * apart_ms), wide, user=f"u{n % 50}") for n, wide in enumerate(gpus)]
    return Workload(facts, run_ms)


def schedule(minutes: float, apart_ms: float, before: int, tell: Connection) -> None:
    """Be the scheduler of these jobs from where so many have come, and tell the port it answers at."""
    workload, policy = jobs(minutes, apart_ms, before), find_policy(POLICY)
    environment = World(estimates="predicted").environment(workload)
    cluster, knobs = Cluster.pool(10, 8), policy.space.defaults
    start_ms = round(before * apart_ms)
    scheduler = Simulated(workload, cluster, POLICY, knobs, environment, start_ms=start_ms, speedup=PACE)
    server = serve(scheduler, "127.0.0.1:0", Tokens(write=TOKEN))
    tell.send(server.port)
    server.wait()


@contextmanager
def scheduling(minutes: float, apart_ms: float, before: int) -> Iterator[int]:
    """Run the scheduler, and yield its port."""
    method = multiprocessing.get_context("spawn")
    heard, tell = method.Pipe()
    process = method.Process(target=schedule, args=(minutes, apart_ms, before, tell), daemon=True)
    process.start()
    try:
        yield int(heard.recv())
    finally:
        process.kill()
        process.join()


def make(adapter: Adapter, ledger: Ledger) -> Loop:
    """Return the loop beside its scheduler."""
    policy = find_policy(POLICY)
    environment = World(estimates="predicted").environment(Workload([], []))
    plant = Plant(POLICY, search_space(policy, policy.space.defaults, "consolidated"), environment)
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
    return Loop(adapter, ledger, plant, orders, Searches(how, LocalTrials()), Clock(PACE), "soak")


def main() -> int:
    """Soak, and print a row a minute."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of wall time")
    parser.add_argument("--events", type=float, default=100.0, help="a second of wall time")
    parser.add_argument("--ended", type=int, default=ENDED_MAX, help="jobs that it remembers")
    asked = parser.parse_args()
    with (
        scheduling(asked.minutes, every_ms(asked.events), asked.ended) as port,
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(f"sqlite:///{folder}/journal.db") as ledger,
    ):
        loop = make(GrpcAdapter(f"127.0.0.1:{port}", TOKEN, POLICY), ledger)
        loop.register = Register(asked.ended)
        loop.start({})
        print(
            "minute  events/s   jobs known  memory MiB  journal MiB  rounds"
            "  tick ms p50     p95  decision ms p50     p95"
        )
        for minute in range(1, max(1, round(asked.minutes)) + 1):
            print(_minute(loop, minute, min(60.0, asked.minutes * 60), Path(folder)), flush=True)
        states, size = ledger.state_bytes()
        each = size // max(1, states)
        print(f"\n{states} states, {each:,} bytes a state; jobs let go: {loop.register.let_go:,}")
        print(f"trouble: {loop.trouble or 'none'}")
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
        f"{_at(plain, 50):>13.0f}{_at(plain, 95):>8.0f}{_at(deciding, 50):>17.0f}{_at(deciding, 95):>8.0f}"
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
