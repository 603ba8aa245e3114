"""A day of `trimtab serve` beside the example scheduler, each in its own process, at a hundredfold pace.

`python benchmarks/day.py --screens FOLDER`: it observes, shadows, proposes and is approved on its page,
verifies, goes back on command, changes by itself; then searches that are wrong on purpose make it lose, and
the breaker opens and goes back. It takes a quarter of an hour. With a folder, the page is open in headless
Chromium and is photographed as things happen: light, dark, and at a phone's width.

The program is that of `trimtab serve`, but that its searches become wrong when a file says so. The settings
are changed, and everything is asked for, by the commands a person would use.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib import request

from trimtab.control import service
from trimtab.control.advising import Searches, SearchKind
from trimtab.control.guardrails import Apply, Keep, Tenure
from trimtab.control.ledger import Entry, Ledger
from trimtab.control.rounds import Round
from trimtab.control.safety import Mode
from trimtab.knobs import Knobs
from trimtab.report.live import live_page
from trimtab.search.scene import Scene

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "grpc" / "small_scheduler.py"
TOKEN = "a-token-of-the-benchmark"
READ, WRITE = "a-token-that-reads", "a-token-that-writes"
SPEEDUP = 100
HOUR_S = 3600

# Until which hour of its clock the loop works by which mode.
PHASES: tuple[tuple[float, Mode], ...] = ((3, "observe"), (7, "shadow"), (12, "approve"), (24, "auto"))
WRONG_FROM = 15  # from this hour on, what searches say is wrong
LOOKS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (390, "light")}

FILE = """
mode = "{mode}"
journal = "sqlite:///{folder}/journal.db"

[scheduler]
address = "grpc://127.0.0.1:{port}"
policy = "fifo"
token_file = "scheduler.token"
pace = {speedup}

[server]
listen = "127.0.0.1:{page}"
read_token_file = "read.token"
write_token_file = "write.token"

[search]
line = "trimtab"
budget = 4
futures = 1
arrivals = "last-hour"
arrivals_horizon = "2h"
run_on = "2h"
interval = "30m"
background = "off"
poll = "2m"

[guardrails]
gain_min = 1.0
belief_min = 0.0
dwell = "30m"
confirm = "10m"
history = "0s"
return = "0s"
losses = 1
"""


class Misled(Searches):
    """Searches that, as soon as there is a file `wrong`, promise a gain of what is worse."""

    sign = Path("wrong")

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        one = super().advise(scene, tenure, search)
        if not self.sign.exists():
            return one
        if scene.running["backfill"] == "strict":
            return replace(one, verdict=Keep("wrong on purpose: what is worse runs"))
        knobs = Knobs({"backfill": "strict"})
        return replace(one, best=knobs, verdict=Apply(knobs, "wrong on purpose"), gain=1.5, record={})


def serve_misled(path: Path) -> None:
    """Be `trimtab serve` with these searches."""
    Misled.sign = path.parent / "wrong"
    service.Searches = Misled
    service.serve(path, live_page())


def main() -> int:
    """Play the day, and print what was seen of it; 1 if anything of a day is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speedup", type=float, default=SPEEDUP)
    parser.add_argument("--screens", type=Path, help="folder for pictures of the page; needs Chromium")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve_misled(asked.serve)
        return 0
    with tempfile.TemporaryDirectory() as name, _scheduler(asked.speedup) as port:
        folder = Path(name)
        day = Day(folder, port, asked.speedup)
        with day.serving(), _page(day.address, asked.screens) as day.page:
            day.play()
        with Ledger.open(f"sqlite:///{folder}/journal.db", write=False) as ledger:
            return _report(ledger.entries(), day.seen)


@contextmanager
def _process(command: list[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *command], **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _scheduler(speedup: float) -> Iterator[int]:
    """Run the example, and yield its port."""
    port = _free_port()
    command = [str(EXAMPLE), "--port", str(port), "--speedup", str(speedup)]
    environment = {**os.environ, "SCHEDULER_TOKEN": TOKEN}
    with _process(command, env=environment, stdout=subprocess.PIPE) as example:
        assert example.stdout is not None
        example.stdout.readline()
        yield port


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Page:
    """The page, open in a browser in several looks at once.

    Args:
        folder: Where pictures go.
    """

    def __init__(self, browser: Any, address: str, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._open = {look: self._opened(browser, address, *how) for look, how in LOOKS.items()}

    def _opened(self, browser: Any, address: str, width: int, scheme: str) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(f"http://{address}/")
        page.fill("#token", WRITE)
        page.keyboard.press("Enter")
        page.wait_for_selector("#data:not([hidden])")
        return page

    def shoot(self, name: str) -> str:
        """Take its pictures, and return its headline."""
        self._count += 1
        for look, page in self._open.items():
            page.screenshot(path=self._folder / f"{self._count:02}-{name}-{look}.png", full_page=True)
        return str(self._open["light"].inner_text("#headline"))

    def approve(self) -> None:
        """Click what a person would, if it can be clicked."""
        button = self._open["light"].locator("[data-act=approve]")
        if button.is_enabled():
            button.click()


@contextmanager
def _page(address: str, folder: Path | None) -> Iterator[Page | None]:
    """Open the page, if there is a folder for its pictures."""
    if folder is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("TRIMTAB_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield Page(browser, address, folder)
        browser.close()


@dataclass
class Day:
    """The day: who does what when, and what was seen meanwhile.

    Attributes:
        seen: Hour, what, and why.
    """

    folder: Path
    port: int
    speedup: float
    page: Page | None = None
    seen: list[tuple[float, str, str]] = field(default_factory=list)
    _shown: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._began_s, self.address = time.monotonic(), f"127.0.0.1:{_free_port()}"
        for name, token in (("scheduler", TOKEN), ("read", READ), ("write", WRITE)):
            path = self.folder / f"{name}.token"
            path.write_text(token)
            path.chmod(0o600)

    @property
    def hour(self) -> float:
        return (time.monotonic() - self._began_s) * self.speedup / HOUR_S

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run `trimtab serve` until the end, its log in a file."""
        self._write(PHASES[0][1])
        with (self.folder / "log").open("wb") as log:
            command = [str(Path(__file__).resolve()), "--serve", str(self.folder / "trimtab.toml")]
            with _process(command, stderr=log) as process:
                while not self._answers():
                    if process.poll() is not None:
                        sys.exit((self.folder / "log").read_text())
                    time.sleep(0.2)
                yield

    def _write(self, mode: Mode) -> None:
        page = self.address.rpartition(":")[2]
        told = FILE.format(mode=mode, folder=self.folder, port=self.port, page=page, speedup=self.speedup)
        (self.folder / "trimtab.toml").write_text(told)

    def _answers(self) -> bool:
        try:
            return bool(self._status())
        except OSError:
            return False

    def _status(self) -> dict[str, Any]:
        asking = request.Request(f"http://{self.address}/status", headers={"Authorization": f"Bearer {READ}"})
        with request.urlopen(asking, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def _command(self, name: str) -> None:
        """Ask by the command line, and note what it answers."""
        line = [sys.executable, "-m", "trimtab", name, "--config", str(self.folder / "trimtab.toml")]
        done = subprocess.run(line, capture_output=True, text=True)
        self.seen.append((self.hour, f"trimtab {name}", " ".join((done.stdout or done.stderr).split())))

    def play(self) -> None:
        """Live through all phases."""
        for until_h, mode in PHASES:
            if mode != PHASES[0][1]:
                self._write(mode)
                self._command("reload")
            while self.hour < until_h:
                status = self._status()
                self._shoot(status)
                if mode == "approve":
                    self._be_the_person(status, until_h)
                if self.hour >= WRONG_FROM:
                    (self.folder / "wrong").touch()
                time.sleep(max(0.05, 200 / self.speedup))
        self._shoot_once("the end of the day")

    def _be_the_person(self, status: Mapping[str, Any], until_h: float) -> None:
        """Approve until a proposal is in force, and go back two hours before the phase ends."""
        if status["in_force"] == {"backfill": "skip"}:
            self._shown.add("approved")
        elif status["proposal"] and "approved" not in self._shown:
            if self.page is None:
                self._command("approve")
            else:
                self.page.approve()
                self.seen.append((self.hour, "button", "Approve"))
        if self.hour >= until_h - 2 and "went back" not in self._shown:
            self._shown.add("went back")
            self._command("rollback")

    def _shoot(self, status: Mapping[str, Any]) -> None:
        """Take the pictures of whatever is there for the first time."""
        mode = status["mode"]
        if status["last_round"]:
            self._shoot_once(f"a round in mode {mode}")
        if status["proposal"]:
            self._shoot_once("a proposal")
        if status["change"]:
            self._shoot_once(f"a {status['change']['purpose']} in flight")
        if status["in_force"] == {"backfill": "skip"} and not status["change"]:
            self._shoot_once(f"another setting in force, mode {mode}")
        if status["gains"]["scored"]:
            self._shoot_once("a score")
        if status["breaker"]:
            self._shoot_once("the breaker open")

    def _shoot_once(self, what: str) -> None:
        if self.page is None or what in self._shown:
            return
        self._shown.add(what)
        self.seen.append(
            (self.hour, f"page: {what}", self.page.shoot(what.replace(", ", " ").replace(" ", "-")))
        )


def _report(entries: tuple[Entry, ...], seen: list[tuple[float, str, str]]) -> int:
    """Print the day in order, from the journal and as it was seen, and what is missing; 1 if anything is."""
    purposes = {entry.key: entry.body["purpose"] for entry in entries if entry.kind == "intent"}
    told = [(entry.at_ms / 1000 / HOUR_S, one) for entry in entries if (one := _told(entry, purposes))]
    rows = [(hour, what, _text(knobs), why) for hour, (what, knobs, why) in told]
    rows += [(hour, what, "", why) for hour, what, why in seen]
    print(f"hour   {'what':<43}  {'setting':<15}  why, or what came of it")
    for hour, what, setting, why in sorted(rows, key=lambda row: row[0]):
        print(f"{hour:>5.2f}  {what:<43}  {setting:<15}  {why}")
    found = {what for _, what, _, _ in rows}
    missing = [one for one in _NEEDED if one not in found]
    print(f"\n{len(entries)} entries; missing: {', '.join(missing) or 'nothing'}")
    return 1 if missing else 0


def _text(knobs: Mapping[str, str] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in (knobs or {}).items())


_NEEDED = (
    *("mode observe", "shadow", "proposed", "applied", "change confirmed", "rollback confirmed"),
    *("rollback wanted", "breaker goes back", "scored"),
)


def _told(entry: Entry, purposes: Mapping[str | None, str]) -> tuple[str, dict[str, str] | None, str] | None:
    body = entry.body
    match entry.kind:
        case "start" | "settings":
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
