"""The page at the address of `serve` in a real browser: what it shows, what it does, and what it refuses."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from serving import READ, WRITE, running, write_tokens
from trimtab.control.console import Console
from trimtab.control.service import Service
from trimtab.control.settings import ServerSettings
from trimtab.errors import ConfigError
from trimtab.report.live import live_page

HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=2">'

STATUS: dict[str, Any] = {
    "mode": "approve",
    "desired": {"num_queues": 3, "queue_thresholds": [600, 9000]},
    "written": {"num_queues": 3, "queue_thresholds": [600, 9000]},
    "in_force": {"num_queues": 2, "queue_thresholds": [600]},
    "in_force_for_s": 7300.0,
    "change": None,
    "torn": None,
    "rollback": None,
    "proposal": {
        "key": "run-7",
        "knobs": {"num_queues": 4, "queue_thresholds": [300]},
        "gain": 1.234,
        "reason": "gain 1.234 reaches 1.02",
        "proposed_for_s": 120.0,
    },
    "before": {"num_queues": 1},
    "paused": None,
    "breaker": None,
    "trouble": {},
    "last_round": {"decision": "proposed", "reason": "gain 1.234 reaches 1.02"},
    "gains": {"scored": 2, "last": [1.2, 1.1], "believed_of_1.1": 1.05, "losses_in_a_row": 0},
    "jobs_known": 12,
    "events": 34,
    "settings": {"settings": "x", "digest": "abc", "refused": None},
}
DECISION = {
    "number": 9,
    "wall_ms": 1_790_000_000_000,
    "key": None,
    "what": "kept",
    "reason": "gain 1.010 is under 1.02",
    "knobs": None,
    "gain": None,
}
SCORED = [
    {"wall_ms": 1_790_000_000_000, "predicted": 1.5, "realised": 0.9, "made": True},
    {"wall_ms": 1_789_000_000_000, "predicted": 1.2, "realised": 1.1, "made": False},
]


FORECASTS = [
    {"wall_ms": 1_790_003_600_000, "jobs": [9, 14], "gpu_h": [20.5, 31.0], "came": None},
    {
        "wall_ms": 1_790_000_000_000,
        "jobs": [10, 12, 17],
        "gpu_h": [11.25, 40.0, 26.5],
        "came": {"jobs": 21, "gpu_h": 18.75, "left": 3},
    },
]


class Told:
    """Stands in for the loop: says what it is told to say, and remembers what it is asked."""

    def __init__(self) -> None:
        self.status = dict(STATUS)
        self.decisions: list[dict[str, Any]] = [DECISION]
        self.scored: list[dict[str, Any]] = SCORED
        self.forecasts: list[dict[str, Any]] = FORECASTS
        self.recent = self
        self.metrics, self.told, self.age_s, self.old_s = "", 0, 0.0, 60.0
        self.asked: list[tuple[str, str, Any]] = []

    def say(self, **values: Any) -> None:
        self.status = {**self.status, **values}
        self.told += 1

    def ask(self, name: str, by: str, body: Any = None) -> Future[str]:
        self.asked.append((name, by, body))
        answer: Future[str] = Future()
        if name == "rollback":
            answer.set_exception(ConfigError(f"refused {HOSTILE}"))
        else:
            answer.set_result(f"done {HOSTILE}")
        return answer


class Open:
    """A page that was opened from its server, with all that it fetched and complained about."""

    def __init__(self, browser: Any, address: str, width: int = 1200, scheme: str = "light") -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda one: self.requests.append(one.url))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.on("console", self._hear)
        self.page.goto(f"http://{address}/")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def enter(self, token: str) -> None:
        self.page.fill("#token", token)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#data:not([hidden])")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def see(self, selector: str, text: str) -> None:
        """Wait until a part of the page says something."""
        self.page.wait_for_selector(f"{selector}:has-text('{text}')")

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def _console(folder: Path, told: Told) -> Iterator[str]:
    write_tokens(folder)
    server = ServerSettings(
        listen="127.0.0.1:0",
        read_token_file=folder / "read.token",
        write_token_file=folder / "write.token",
    )
    console = Console(cast(Service, told), server, live_page())
    console.start()
    try:
        yield console.address
    finally:
        console.stop()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def address(tmp_path: Path, told: Told) -> Iterator[str]:
    with _console(tmp_path, told) as found:
        yield found


def test_shell_holds_no_data_and_may_fetch_from_its_own_server_only(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/")
    answer = connection.getresponse()
    html, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    connection.close()
    assert answer.status == 200
    assert "num_queues" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert "unsafe" not in rules["script-src"]


@pytest.mark.parametrize(("token", "code"), [("", 401), ("another-token-of-the-right-length", 401)])
def test_news_need_a_token(address: str, token: str, code: int) -> None:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.status == code
    assert "no token" in json.loads(answer.read())["error"]
    connection.close()


def test_so_many_pages_and_no_more(address: str) -> None:
    opened = []
    for _ in range(32):
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/events", headers={"Authorization": f"Bearer {READ}"})
        answer = connection.getresponse()
        assert answer.read(5) == b"data:"
        opened.append((connection, answer))
    one_more = http.client.HTTPConnection(address, timeout=30)
    one_more.request("GET", "/events", headers={"Authorization": f"Bearer {READ}"})
    assert one_more.getresponse().status == 503
    for connection in (*(one for one, _ in opened), one_more):
        connection.close()


def test_what_is_shown(chromium: Any, address: str) -> None:
    visit = Open(chromium, address)
    visit.enter(READ)
    assert visit.text("h1") == "A change is proposed"
    rows = visit.ask(
        "[...document.querySelectorAll('#setting tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert rows == [
        ["knob", "in force", "written", "desired", "proposed"],
        ["num_queues", "2", "3", "3", "4"],
        ["queue_thresholds", "600", "600/9000", "600/9000", "300"],
    ]
    assert "Predicted gain 1.234. Why: gain 1.234 reaches 1.02." in visit.text("#proposal")
    assert "gain 1.010 is under 1.02" in visit.text("#decisions")
    assert "predicted 1.500, came 0.900" in visit.text("#gains")
    assert visit.ask("document.querySelectorAll('#gains circle').length") == 4
    assert "10 to 17 jobs were expected and 21 came" in visit.text("#forecasts")
    assert "11.3 to 40.0 GPU hours were expected, 18.8 have been run, and 3 of the jobs" in visit.text(
        "#forecasts"
    )
    titles = "[...document.querySelectorAll('#forecasts title')].map(one => one.textContent.split(': ')[1])"
    assert visit.ask(titles) == [
        "expected 10 to 17, came 21",
        "expected 9 to 14, came not over yet",
        "expected 11.3 to 40.0, came 18.8",
        "expected 20.5 to 31.0, came not over yet",
    ]
    assert visit.ask("document.querySelectorAll('#forecasts rect').length") == 4
    assert visit.ask("document.querySelectorAll('#forecasts circle').length") == 2
    assert visit.ask("document.querySelectorAll('[data-act]:enabled').length") == 0
    assert visit.text("#said") == "This token may only read."
    assert visit.complaints == []
    assert set(visit.requests) - {"data:,"} == {f"http://{address}/", f"http://{address}/events"}
    assert visit.ask("[localStorage.length, document.cookie]") == [0, ""]
    assert READ not in visit.page.url
    visit.page.close()


def test_one_future_is_a_number_and_no_range(chromium: Any, address: str, told: Told) -> None:
    came = {"jobs": 9, "gpu_h": 3.2, "left": 0}
    told.forecasts = [{"wall_ms": 1_790_000_000_000, "jobs": [9], "gpu_h": [14.7], "came": came}]
    visit = Open(chromium, address)
    visit.enter(READ)
    assert "9 jobs were expected and 9 came; 14.7 GPU hours were expected" in visit.text("#forecasts")
    titles = "[...document.querySelectorAll('#forecasts title')].map(one => one.textContent.split(': ')[1])"
    assert visit.ask(titles) == ["expected 9, came 9", "expected 14.7, came 3.2"]
    visit.page.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_letters_in_pictures_are_as_large_at_any_width(chromium: Any, address: str, width: int) -> None:
    visit = Open(chromium, address, width)
    visit.enter(READ)
    heights = "[...document.querySelectorAll('svg text')].map(one => one.getBoundingClientRect().height)"
    assert all(11 <= height <= 18 for height in visit.ask(heights))
    assert visit.ask("document.documentElement.scrollWidth") <= width
    visit.page.close()


def test_a_wrong_token_is_refused_and_forgotten(chromium: Any, address: str) -> None:
    visit = Open(chromium, address)
    visit.page.fill("#token", "another-token-of-the-right-length")
    visit.page.keyboard.press("Enter")
    visit.see("#refused", "not one of ours")
    assert visit.ask("sessionStorage.length") == 0
    visit.enter(READ)
    visit.page.reload()
    visit.page.wait_for_selector("#data:not([hidden])")  # the tab remembers
    visit.page.click("#forget")
    assert visit.ask("sessionStorage.length") == 0
    assert not visit.page.is_visible("#data")
    visit.page.close()


def test_commands_by_keyboard_say_what_came_of_them(chromium: Any, address: str, told: Told) -> None:
    visit = Open(chromium, address)
    visit.enter(WRITE)
    visit.page.wait_for_selector("[data-act=approve]:enabled")
    visit.page.focus("[data-act=approve]")
    visit.page.keyboard.press("Enter")
    visit.see("#said", "approve: done")
    assert told.asked == [("approve", "page", {"key": "run-7"})]
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    visit.see("#said", "rollback: refused")
    assert told.asked[1:] == [("rollback", "page", {})]
    told.say(paused="paused by ann: nothing is changed until resume", proposal=None)
    visit.page.wait_for_selector("[data-act=resume]:enabled")
    assert "paused by ann" in visit.text("#warnings")
    assert visit.ask("document.querySelector('[data-act=approve]').disabled")
    assert visit.ask("window.hacked") is None
    visit.page.close()


def test_html_in_names_and_reasons_stays_text(chromium: Any, address: str, told: Told) -> None:
    knobs = {HOSTILE: HOSTILE}
    told.decisions = [{**DECISION, "what": HOSTILE, "reason": HOSTILE, "knobs": knobs}]
    told.say(
        mode=HOSTILE,
        in_force=knobs,
        written=knobs,
        desired=None,
        proposal={
            **STATUS["proposal"],
            "knobs": knobs,
            "reason": HOSTILE + "\n\ndata: {}\n\n",
            "key": HOSTILE,
        },
        paused=HOSTILE,
        breaker=HOSTILE,
        trouble={HOSTILE: HOSTILE},
        last_round={"decision": HOSTILE, "reason": HOSTILE},
        settings={"digest": HOSTILE, "refused": HOSTILE},
    )
    visit = Open(chromium, address)
    visit.enter(WRITE)
    for part in ("#warnings", "#facts", "#setting", "#proposal", "#decisions"):
        assert "<script>window.hacked=1</script>" in visit.text(part), part
    assert visit.ask("document.querySelectorAll('img, #data script').length") == 0
    assert visit.ask("window.hacked") is None
    assert visit.complaints == []
    set_markup = (
        "try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch (error) { return error.name }"
    )
    assert visit.ask(f"(() => {{ {set_markup} }})()") == "TypeError"  # not even by mistake
    visit.page.close()


def test_old_data_are_said_to_be_old_and_nothing_can_be_asked(
    chromium: Any, address: str, told: Told
) -> None:
    visit = Open(chromium, address)
    visit.enter(WRITE)
    visit.page.wait_for_selector("[data-act=approve]:enabled")
    assert not visit.page.is_visible("#old")
    told.age_s = 400.0
    visit.page.wait_for_selector("#old:not([hidden])")
    assert visit.text("#old").startswith("What is shown is 6 min old")
    assert visit.ask("document.querySelectorAll('[data-act]:enabled').length") == 0
    told.age_s = 0.0
    told.say()
    visit.page.wait_for_selector("#old", state="hidden")
    visit.page.wait_for_selector("[data-act=approve]:enabled")
    visit.page.close()


def test_a_server_that_is_gone_leaves_data_that_grow_old(chromium: Any, tmp_path: Path, told: Told) -> None:
    told.old_s = 2.0
    with _console(tmp_path, told) as address:
        visit = Open(chromium, address)
        visit.enter(WRITE)
    visit.page.wait_for_selector("#old:not([hidden])")
    assert "stands still" in visit.text("#old")
    visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_at_home_on_every_screen(chromium: Any, address: str, told: Told, width: int, scheme: str) -> None:
    told.decisions = [{**DECISION, "knobs": {"queue_thresholds": list(range(40))}, "gain": 1.5}] * 12
    visit = Open(chromium, address, width, scheme)
    visit.enter(WRITE)
    visit.page.wait_for_selector("[data-act=approve]:enabled")
    assert visit.ask("document.documentElement.scrollWidth") <= width
    paper = "rgb(20, 24, 28)" if scheme == "dark" else "rgb(255, 255, 255)"
    assert visit.ask("getComputedStyle(document.body).backgroundColor") == paper
    small = "[...document.querySelectorAll('.acts button')].filter(b => b.offsetHeight < 40).length"
    assert visit.ask(small) == 0
    visit.page.close()


def test_a_change_is_approved_and_rolled_back_on_the_page(chromium: Any, tmp_path: Path) -> None:
    with running(tmp_path, "approve") as server:
        server.wait(lambda status: status["proposal"])
        visit = Open(chromium, f"127.0.0.1:{server.port}")
        visit.enter(WRITE)
        visit.page.click("[data-act=approve]")
        server.wait(lambda status: status["in_force"] == {"backfill": "skip"} and not status["change"])
        in_force = "#setting tbody td:nth-child(2)"
        visit.see(in_force, "skip")
        visit.page.click("[data-act=pause]")
        visit.see("h1", "Paused")
        visit.page.click("[data-act=rollback]")
        server.wait(lambda status: status["in_force"] == {"backfill": "strict"})
        visit.see(in_force, "strict")
        shown = visit.text("#decisions")
        for said in ("approved by page", "rollback wanted", "asked for by page", "confirmed", "paused"):
            assert said in shown, said
        assert visit.complaints == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0  # a page that is open does not hold it up
        visit.page.close()
