"""The control loop of a settings file beside the simulated scheduler, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from histories import history
from trimtab.control.adapter import Adapter
from trimtab.control.ledger import Ledger, Versions
from trimtab.control.loop import Loop, at_once
from trimtab.control.service import decided_by, plant_of, searches_of, simulated, told_of
from trimtab.control.settings import Settings, read_settings
from trimtab.traces.trace import Trace

HOUR_MS = 3_600_000

FILE = """
mode = "{mode}"
seed = {seed}
journal = "{url}"

[scheduler]
address = "simulated:none"
policy = "{policy}"
start = "{start}"
nodes = 2
gpus_per_node = 4
restart_cost_s = 30

[search]
line = "{line}"
budget = 6
background = "20m"
futures = 1
arrivals_horizon = "6h"
run_on = "6h"

[guardrails]
gain_min = 1.0
history = "0s"
belief_min = 0.0
dwell = "30m"
return = "0s"
losses = {losses}
loss_below = {loss_below}
"""


def settings(folder: Path, url: str, **changes: str) -> Settings:
    """Write a settings file and read it."""
    usual = {
        "mode": "auto",
        "seed": "3",
        "policy": "tiresias",
        "start": "8h",
        "line": "trimtab",
        "nodes": "2",
    }
    usual |= {"losses": "3", "loss_below": "0.98"}
    path = folder / "trimtab.toml"
    path.write_text(FILE.format(url=url, **{**usual, **changes}))
    return read_settings(path)


class Looped:
    """A loop, its scheduler and its journal; `run` goes on in simulated time.

    Args:
        found: The settings; of the scheduler's address they say nothing that counts here.
        trace: A day of jobs that compete, unless another is given.
        submit: Runs searches; here and now by default.
    """

    def __init__(
        self, found: Settings, ledger: Any = None, trace: Trace | None = None, submit: Any = at_once
    ) -> None:
        self.settings, self.plant = found, plant_of(found.scheduler)
        self.scheduler = simulated(found.scheduler, trace or history(4))
        self.adapter: Adapter = self.scheduler
        self.now_ms = self.scheduler.now_ms()
        self.ledger = ledger or Ledger.open(found.journal)
        self.ledger.versions = Versions(**decided_by(found.scheduler.policy))
        self.starts, self.submit = 0, submit
        self.loop = self.start()

    def start(self) -> Loop:
        """Start the program, again if it ran."""
        self.starts += 1
        self.loop = Loop(
            self.adapter,
            self.ledger,
            self.plant,
            self.settings.orders,
            searches_of(self.settings, self.plant),
            lambda: self.now_ms,
            f"r{self.starts}",
            submit=self.submit,
        )
        self.loop.start(told_of(self.settings))
        return self.loop

    def run(self, until_ms: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Tick when the loop wants to."""
        while self.now_ms < until_ms:
            self.now_ms = min(max(self.loop.tick(), self.now_ms + 1), until_ms)
            self.scheduler.advance(self.now_ms)
            meanwhile()
