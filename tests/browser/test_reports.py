"""The pages in a real browser: drawn, right, self-contained, at home on a wide screen and on a telephone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from browser_inputs import CLUSTER, evaluation, history, renamed, runs, runs_with_deadlines, study
from trimtab.control.guardrails import Keep
from trimtab.errors import ConfigError, OutputError
from trimtab.knobs import Knobs
from trimtab.report.compare import compare_page
from trimtab.report.evaluate import evaluate_page
from trimtab.report.ladder import ladder_page
from trimtab.report.page import write_page
from trimtab.report.trace import trace_page
from trimtab.simulate.run import World, simulate
from trimtab.traces.describe import Description, describe
from trimtab.traces.trace import LeftOut

CHARTS = {"compare": 6, "deadlines": 7, "evaluate": 14, "study": 2, "trace": 4}
HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=2">&amp;\'"%{x}'


class Visit:
    """A page that was opened from its file, with everything it tried to fetch and complained about."""

    def __init__(self, browser: Any, path: Path, width: int = 1400, scheme: str = "light") -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(120_000)  # a machine that is busy draws late
        self.page.on("request", lambda one: self.requests.append(one.url))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.on("console", self._hear)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "compare": compare_page(runs(ties=1)),
        "deadlines": compare_page(runs_with_deadlines()),
        "evaluate": evaluate_page(evaluation()),
        "study": ladder_page(study(folder / "study")),
        "trace": trace_page(described()),
    }
    for name, html in made.items():
        write_page(folder / f"{name}.html", html)
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def visits(chromium: Any, pages: dict[str, Path]) -> Callable[..., Visit]:
    """Open each page once a width; for looking only."""
    return lru_cache(lambda name, width=1400: Visit(chromium, pages[name], width))


def described() -> Description:
    left_out = (LeftOut("no GPU requested", 12, "job_7,2024-01-01,0"),)
    return replace(describe(history(), CLUSTER.gpus), left_out=left_out, mapping={"gpus": "gpu_num"})


@pytest.mark.parametrize("name", sorted(CHARTS))
def test_page_is_drawn_without_network_or_complaint(
    visits: Callable[..., Visit], pages: dict[str, Path], name: str
) -> None:
    visit = visits(name)
    assert visit.complaints == []
    assert visit.requests == [pages[name].as_uri()]
    drawn = visit.ask(
        "[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('.trace').length)"
    )
    assert len(drawn) == CHARTS[name]
    assert all(count > 0 for count in drawn), drawn
    buttons = "[...new Set([...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title))].length"
    assert visit.ask(buttons) <= 4  # save, zoom, pan, reset: none that sends data away
    shown = visit.ask("[...document.querySelectorAll('td b')].map(b => b.textContent).join(' ')")
    assert not re.search("nan|inf|None|undefined", shown)


@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("name", sorted(CHARTS))
def test_nothing_is_wider_than_the_window(
    chromium: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    visit = Visit(chromium, pages[name], width)
    visit.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert visit.ask("document.documentElement.scrollWidth") <= width


def test_table_shows_the_metrics(visits: Callable[..., Visit]) -> None:
    results = runs(ties=1)
    visit = visits("compare")
    for name in ("wait_s_mean", "wait_s_p99", "jct_s_mean", "preemptions", "gpu_utilisation", "makespan_s"):
        cells = visit.ask(
            f"[...document.querySelectorAll('td[data-metric={name}]')].map(c => c.dataset.value)"
        )
        assert [float(cell) for cell in cells] == [result.metrics[name] for result in results]
    best = visit.ask("document.querySelector('td.best[data-metric=wait_s_mean]').dataset.value")
    assert float(best) == min(result.metrics["wait_s_mean"] or 0 for result in results)


def test_evaluation_table_shows_the_lines(visits: Callable[..., Visit]) -> None:
    shown = evaluation()
    visit = visits("evaluate")
    for name, expected in (
        ("wait_s_p99", [line.metrics["wait_s_p99"] for line in shown.lines]),
        ("switches", [line.switches for line in shown.lines]),
        ("search_s", [sum(one.search_s for one in line.rounds) for line in shown.lines]),
    ):
        cells = visit.ask(
            f"[...document.querySelectorAll('.lines td[data-metric={name}]')].map(c => c.dataset.value)"
        )
        assert [float(cell) for cell in cells] == expected
    rows = visit.ask(
        "[...document.querySelectorAll('table.log')].map(t => t.querySelectorAll('tbody tr').length)"
    )
    assert rows == [len(line.rounds) for line in shown.lines if line.rounds]


def test_deadlines_are_in_the_table_and_drawn_met_above_missed(visits: Callable[..., Visit]) -> None:
    visit = visits("deadlines")
    for name in ("slo_violation_rate", "slo_violation_rate_weighted", "jct_s_mean_soft"):
        cells = visit.ask(
            f"[...document.querySelectorAll('td[data-metric={name}]')].map(c => c.dataset.value)"
        )
        assert [float(cell) for cell in cells] == [one.metrics[name] for one in runs_with_deadlines()]
    drawn = visit.ask(
        "[...document.querySelectorAll('.chart')].flatMap(c => c.data)"
        ".filter(t => / strict$| soft$/.test(t.name))"
        ".map(t => [t.meta.line, t.y.length, t.y.filter(y => y < 0).length])"
    )
    for line, result in enumerate(runs_with_deadlines()):
        ended = result.jobs.filter(pl.col("deadline_met").is_not_null())
        assert sum(count for index, count, _ in drawn if index == line) == ended.height
        missed = ended.filter(~pl.col("deadline_met")).height
        assert sum(below for index, _, below in drawn if index == line) == missed


def test_dark_page_is_dark_and_its_key_hides_a_line_everywhere(chromium: Any, pages: dict[str, Path]) -> None:
    visit = Visit(chromium, pages["compare"], scheme="dark")
    paper = visit.ask("getComputedStyle(document.body).backgroundColor")
    ink = visit.ask("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert (paper, ink) == ("rgb(20, 24, 28)", "rgb(228, 232, 236)")
    count = "document.querySelectorAll('.chart .trace').length"
    before = visit.ask(count)
    visit.page.click(".key button:nth-child(2)")
    visit.page.wait_for_function(f"{count} === {before - CHARTS['compare']}")
    assert (
        visit.ask("document.querySelector('.key button:nth-child(2)').getAttribute('aria-pressed')")
        == "false"
    )


def test_hostile_names_stay_text(chromium: Any, tmp_path: Path) -> None:
    source = f"table:{HOSTILE}\udcff\x00.csv"
    shown = evaluation()
    line = replace(
        shown.lines[3],
        name=HOSTILE,
        meaning=HOSTILE,
        notes=(HOSTILE,),
        segments={HOSTILE: {"jobs": 1, HOSTILE: 2.0}},
        rounds=tuple(replace(one, verdict=Keep(HOSTILE)) for one in shown.lines[3].rounds),
    )
    description = replace(
        described(), source=source, notes=(HOSTILE,), warnings=(HOSTILE,), zone=HOSTILE,
        left_out=(LeftOut(HOSTILE, 1, HOSTILE),), mapping={HOSTILE: HOSTILE},
    )  # fmt: skip
    settings = {HOSTILE: HOSTILE, "objective": HOSTILE}
    made = {
        "compare": compare_page([renamed(one, source) for one in runs()], first_day=HOSTILE),
        "evaluate": evaluate_page(
            replace(shown, lines=(shown.lines[0], line), window=HOSTILE, settings=settings, first_day=HOSTILE)
        ),
        "trace": trace_page(description),
    }
    for name, html in made.items():
        path = tmp_path / f"{name}.html"
        write_page(path, html)
        visit = Visit(chromium, path)
        assert visit.ask("window.hacked") is None
        assert visit.ask("document.querySelectorAll('img[src=x], body script:not([type])').length") == 2
        assert visit.complaints == []
        assert visit.requests == [path.as_uri()]
        assert "<script>window.hacked=1</script>" in visit.ask("document.body.innerText")
        visit.page.close()


def test_page_is_the_same_each_time_and_small_beside_its_library() -> None:
    first, second = compare_page(runs()), compare_page(runs())
    assert first == second
    assert first.count("plotly.js v") == 1
    assert len(evaluate_page(evaluation())) < 6_500_000


def test_one_run_and_no_run() -> None:
    assert "Who gains" not in compare_page(runs()[:1])
    with pytest.raises(ConfigError, match="at least one run"):
        compare_page([])
    with pytest.raises(ConfigError, match="at least one line"):
        evaluate_page(replace(evaluation(), lines=()))


def test_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_page(target, "old")
    with pytest.raises(OutputError, match="nothing was written") as refusal:
        write_page(tmp_path / "missing" / "page.html", "new")
    assert "\n" not in str(refusal.value)
    with pytest.raises(OutputError):
        write_page(target / "below.html", "new")
    assert target.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_is_one_line() -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_page(Path("/dev/full"), "page" * 10_000)


def test_jobs_that_never_ran_are_said_and_not_drawn() -> None:
    asked = history().jobs.with_columns(gpus=pl.lit(CLUSTER.gpus + 1))
    never = simulate(replace(history(), jobs=asked), CLUSTER, "fifo", Knobs({"backfill": "strict"}), World())
    page = compare_page([never, never])
    assert "no job finished in any run" in page
    assert "were rejected" in page
    assert page.count("<figure") == 0
