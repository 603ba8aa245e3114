"""A day of the loop against the example scheduler in its own process, a hundred times as fast as the wall.

`python benchmarks/day.py`: it observes, shadows, proposes and is approved, verifies, goes back on command,
changes by itself; then searches that are wrong on purpose make it lose, and the breaker opens and goes back.
It takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from trimtab.control.advising import Searches, Searching, SearchKind
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.control.guardrails import Apply, Guardrails, Keep, Tenure
from trimtab.control.ledger import Entry, Ledger
from trimtab.control.loop import Loop
from trimtab.control.orders import Orders, Plant
from trimtab.control.rounds import Round
from trimtab.control.safety import Mode, Safety
from trimtab.control.service import Clock
from trimtab.errors import TrimtabError
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.generation import Forecasting
from trimtab.search.scene import Scene
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Tuning
from trimtab.simulate.state import Environment
from trimtab.simulate.trials import LocalTrials

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "grpc" / "small_scheduler.py"
TOKEN = "a-token-of-the-benchmark"
SPEEDUP = 100
HOUR_MS = 3_600_000

# Until which hour of its clock the loop works by which mode.
PHASES: tuple[tuple[float, Mode], ...] = ((3, "observe"), (7, "shadow"), (12, "approve"), (24, "auto"))
WRONG_FROM = 15  # from this hour on, what searches say is wrong


class Misled(Searches):
    """Searches that, once they are told to be wrong, promise a gain of what is worse."""

    wrong = False

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        one = super().advise(scene, tenure, search)
        if not self.wrong:
            return one
        if scene.running["backfill"] == "strict":
            return replace(one, verdict=Keep("wrong on purpose: what is worse runs"))
        knobs = Knobs({"backfill": "strict"})
        return replace(one, best=knobs, verdict=Apply(knobs, "wrong on purpose"), gain=1.5, record={})


def main() -> int:
    """Play the day, and print what the journal says of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speedup", type=float, default=SPEEDUP)
    asked = parser.parse_args()
    port = _free_port()
    command = [sys.executable, str(EXAMPLE), "--port", str(port), "--speedup", str(asked.speedup)]
    example = subprocess.Popen(command, env={**os.environ, "SCHEDULER_TOKEN": TOKEN}, stdout=subprocess.PIPE)
    try:
        assert example.stdout is not None
        example.stdout.readline()
        with (
            tempfile.TemporaryDirectory() as folder,
            Ledger.open(f"sqlite:///{folder}/journal.db") as ledger,
        ):
            _play(ledger, port, asked.speedup)
            return _report(ledger.entries())
    finally:
        example.kill()
        example.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _play(ledger: Ledger, port: int, speedup: float) -> None:
    adapter = GrpcAdapter(f"127.0.0.1:{port}", TOKEN, "fifo")
    policy, rails = find_policy("fifo"), Guardrails(gain_min=1.0, dwell_ms=HOUR_MS // 2)
    plant = Plant("fifo", search_space(policy, policy.space.defaults, "consolidated"), Environment())
    safety = Safety(history_min_ms=0, confirm_ms=HOUR_MS // 6, losses_max=1)
    orders = Orders(
        mode="observe",
        rails=rails,
        safety=safety,
        interval_ms=HOUR_MS // 2,
        background_ms=None,
        poll_ms=120_000,
    )
    searches = Misled(_how(rails), LocalTrials())
    clock = Clock(speedup)
    began_ms = clock()
    loop = Loop(adapter, ledger, plant, orders, searches, clock, "day")
    loop.start({})
    asked_back = False
    for until_h, mode in PHASES:
        loop.adopt(replace(orders, mode=mode), None, mode)
        while (hour := (clock() - began_ms) / HOUR_MS) < until_h:
            searches.wrong = hour >= WRONG_FROM
            due_ms = loop.tick()
            if mode == "approve" and not asked_back:
                _tried(lambda: loop.approve("the benchmark"), loop.standing.proposal is not None)
                asked_back = _tried(lambda: loop.rollback("the benchmark"), hour >= until_h - 2)
            time.sleep(min(5.0, max(0.05, (due_ms - clock()) / 1000 / speedup)))
    loop.stop()


def _how(rails: Guardrails) -> Searching:
    ahead = Forecasting(
        arrivals="last-hour",
        remaining="kaplan-meier",
        futures=1,
        arrivals_ms=2 * HOUR_MS,
        run_on_ms=2 * HOUR_MS,
    )
    tuning = Tuning(objective=find_objective("wait"), budget=4)
    return Searching(line="trimtab", tuning=tuning, rails=rails, forecasting=ahead)


def _tried(ask: Callable[[], str], is_time: bool) -> bool:
    """Ask if it is time to; return whether it was done."""
    try:
        return is_time and bool(ask())
    except TrimtabError:
        return False


def _report(entries: tuple[Entry, ...]) -> int:
    """Print what happened, and what of a day is missing; 1 if anything is."""
    print("hour   what                  setting           why or what came of it")
    purposes = {entry.key: entry.body["purpose"] for entry in entries if entry.kind == "intent"}
    found = set()
    for entry in entries:
        if (told := _told(entry, purposes)) is not None:
            what, knobs, why = told
            found.add(what)
            setting = ",".join(f"{name}={value}" for name, value in (knobs or {}).items())
            print(f"{entry.at_ms / HOUR_MS:>5.2f}  {what:<21} {setting:<17} {why}")
    missing = [one for one in _NEEDED if one not in found]
    print(f"\n{len(entries)} entries; missing: {', '.join(missing) or 'nothing'}")
    return 1 if missing else 0


_NEEDED = (
    *("mode observe", "shadow", "proposed", "applied", "change confirmed", "rollback confirmed"),
    *("rollback wanted", "breaker goes back", "scored"),
)


def _told(entry: Entry, purposes: Mapping[str | None, str]) -> tuple[str, dict[str, str] | None, str] | None:
    body = entry.body
    match entry.kind:
        case "settings":
            return f"mode {body['mode']}", None, ""
        case "verdict" if body["decision"] != "kept":
            told = body.get("proposed") or body.get("shadowed") or {}
            return body["decision"], told.get("knobs"), body["reason"]
        case "read_back" if entry.key is not None:
            return f"{purposes[entry.key]} {body['outcome']}", body["knobs"], body.get("why", "")
        case "intent":
            return f"{body['purpose']} begun", body["knobs"], body["reason"]
        case "rollback":
            return "rollback wanted", body["knobs"], body["reason"]
        case "breaker":
            return "breaker goes back" if body["back"] else "breaker opened", body["back"], body["reason"]
        case "trial":
            return "scored", body["knobs"], f"predicted {body['predicted']:.3f}, came {body['realised']}"
    return None


if __name__ == "__main__":
    sys.exit(main())
