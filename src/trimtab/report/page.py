"""One self-contained html page: the drawing library inside, no network, nothing half-written.

The page forbids itself everything but its own two scripts, by their hashes: text of a trace that got
through as markup could still not run or fetch anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plotly.offline import get_plotlyjs

from trimtab import __version__
from trimtab.report.assets import asset, policy
from trimtab.report.charts import Chart
from trimtab.report.markup import NO_HTML, Html, breakable, document, join, tag
from trimtab.report.tables import swatch
from trimtab.traces import files

_SCRIPT_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": " ", "\u2029": " "})


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: running markup first, then charts."""

    title: str
    lead: str = ""
    body: Html = NO_HTML
    charts: tuple[Chart, ...] = ()
    with_key: bool = False  # shows the key of lines, which stays in view from here on


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says, top to bottom."""

    kind: str
    title: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    terms: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # names of the lines, in the order of their colours


def write_page(path: Path, html: str) -> None:
    """Write a page whole or not at all.

    Raises:
        OutputError: If it cannot be written; an older page of that name stays as it was.
    """
    files.write(path, html.encode())


def render(page: Page) -> str:
    """Return the page as one html document."""
    library, script = get_plotlyjs(), asset("page.js")
    numbered = _numbered(page.sections)
    charts = [chart.jsonable(name) for section in numbered for name, chart in section]
    data = json.dumps(charts, separators=(",", ":"), allow_nan=False).translate(_SCRIPT_UNSAFE)
    body = join(
        _header(page),
        tag(
            "main",
            *(_section(page, one, named) for one, named in zip(page.sections, numbered, strict=True)),
            _terms(page),
        ),
        tag(
            "footer",
            f"Trimtab {__version__}. The page needs no network; "
            "hover over a chart for its numbers, drag to zoom, double-click to see all of it again.",
        ),
        Html(f'<script type="application/json" id="charts">{data}</script>'),
        Html(f"<script>{library}</script><script>{script}</script>"),
    )
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(library, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{page.title} · Trimtab"),
        Html(f"<style>{asset('page.css')}</style>"),
    )
    return document(head, body)


def _numbered(sections: Sequence[Section]) -> list[list[tuple[str, Chart]]]:
    """Return each section's charts with names that are unique on the page."""
    found: list[list[tuple[str, Chart]]] = []
    number = 0
    for section in sections:
        found.append([(f"chart-{number + index}", chart) for index, chart in enumerate(section.charts)])
        number += len(section.charts)
    return found


def _header(page: Page) -> Html:
    facts = (
        tag("div", tag("dt", name), tag("dd", value), class_="wide" if len(value) > 85 else None)
        for name, value in page.facts
        if value
    )
    return tag(
        "header",
        tag("p", page.kind, class_="kicker"),
        tag("h1", breakable(page.title)),
        tag("p", page.summary, class_="summary"),
        *(tag("p", warning, class_="warn") for warning in page.warnings),
        tag("dl", *facts, class_="facts"),
    )


def _section(page: Page, section: Section, charts: Sequence[tuple[str, Chart]]) -> Html:
    return tag(
        "section",
        tag("h2", section.title),
        tag("p", section.lead, class_="lead") if section.lead else "",
        section.body,
        tag("p", "No job ran: there is nothing to draw.") if not (section.body or charts) else "",
        _key(page.key) if section.with_key and charts and len(page.key) > 1 else "",
        tag("div", *(_figure(name, chart) for name, chart in charts), class_="charts") if charts else "",
        tag("noscript", tag("p", "The charts need JavaScript; all tables are there without it."))
        if charts
        else "",
    )


def _figure(name: str, chart: Chart) -> Html:
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title), tag("p", chart.caption)),
        tag(
            "div",
            id=name,
            class_="chart",
            style=f"height:{chart.height}px",
            role="img",
            aria_label=chart.title,
        ),
        class_="wide" if chart.wide else None,
    )


def _key(names: Sequence[str]) -> Html:
    buttons = (
        tag("button", swatch(index), name, type="button", aria_pressed="true", data_line=index, title=name)
        for index, name in enumerate(names)
    )
    hint = tag("span", "the same colours in every chart; click to hide or show", class_="hint")
    return tag("div", *buttons, hint, class_="key", role="group", aria_label="Lines shown in the charts")


def _terms(page: Page) -> Html:
    if not page.terms:
        return Html("")
    items = (tag("div", tag("dt", name), tag("dd", meaning)) for name, meaning in page.terms)
    return tag("section", tag("h2", "Terms and how to read this"), tag("dl", *items, class_="terms"))


def mono(text: str) -> Html:
    """Return text as it is typed."""
    return tag("span", breakable(text), class_="mono")
