"""The pictures of these pages, made from real runs with the product's own charts.

    python docs/concepts/pictures.py [PAGE ...] [--journals FOLDER]

Runs two small evaluations, prints every figure that the pages quote, and writes `pictures/*.svg`. Needs
`trimtab[causal]` and a Chromium (on the path, or named by TRIMTAB_CHROMIUM). With `--journals` the
evaluations' journals are kept in a folder, and used again if they are there already.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from lucid_picture import lucid_picture

from trimtab.cluster import Cluster
from trimtab.control.journal import read_journal
from trimtab.forecast.arrivals import DAYS_AGO, day_again, forecast_arrivals
from trimtab.forecast.history import NEVER_MS, History, Past
from trimtab.forecast.remaining import LocalPredictor
from trimtab.forecast.snapshots import CLASSES, EDGES_MS, HOUR_MS
from trimtab.forecast.survival import RunTimes
from trimtab.job import JobFacts
from trimtab.knobs import Knobs, write
from trimtab.policies.catalog import find_policy
from trimtab.report import charts
from trimtab.report.charts import Chart, Clock, Strip, Trace
from trimtab.report.graph import graph_chart
from trimtab.report.page import Page, Section, render
from trimtab.search.causal import Edge, Graph
from trimtab.search.evidence import Evidence
from trimtab.simulate.engine import Engine
from trimtab.simulate.metrics import jobs_table, rhos
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.studies.request import Request
from trimtab.timeline import Timeline
from trimtab.traces.loader import load
from trimtab.traces.trace import DAY_MS
from trimtab.world import Seeds

HERE = Path(__file__).parent
FORECAST = "synthetic:philly?days=9&seed=3"
FORECAST_MS = (7 * DAY_MS, 9 * DAY_MS)
BUDGET = ("--policy", "tiresias", "--budget", "60")
RUNS: Mapping[str, tuple[str, ...]] = {
    "search": ("synthetic:pai?days=9&seed=3", "--window", "7d..9d", "--nodes", "60", "--lines", "trimtab"),
    "verdict": (
        *("synthetic:philly?days=9&seed=3", "--window", "7d..9d", "--nodes", "30"),
        *("--lines", "fixed,trimtab-plus"),
    ),
}
CAME, FIRST, SECOND, THIRD, FOURTH, FIFTH = range(6)  # colours
CLASS_NAMES = ("under 5 min", "5–30 min", "30–60 min", "1–2 h", "2–4 h", "over 4 h")
RAN = (("under 10 min", 0, 600_000), ("10 min to 2 h", 600_000, 7_200_000), ("over 2 h", 7_200_000, NEVER_MS))
WIDTH = 860

Pictures = dict[str, Chart]
Record = Mapping[str, Any]


# ---- forecast ------------------------------------------------------------------------------------


def forecast_pictures() -> Pictures:
    """Return what was forecast against what came, and how long jobs run on."""
    history = History.of(load(FORECAST))
    return {
        "forecast-arrivals": _arrivals(history),
        "forecast-curves": _curves(history.as_of(FORECAST_MS[0])),
        "forecast-classes": _classes(history),
    }


def _arrivals(history: History) -> Chart:
    hours = range(*FORECAST_MS, HOUR_MS)
    came = np.histogram(history.submit_ms, [*hours, FORECAST_MS[1]])[0]
    pasts = [history.as_of(now_ms) for now_ms in hours]
    ahead = {
        method: np.array([len(forecast_arrivals(past, HOUR_MS, method)) for past in pasts])
        for method in ("nearest", "last-hour")
    }
    for method, forecast in ahead.items():
        missed = np.abs(forecast - came).sum() / came.sum()
        print(f"arrivals, one hour ahead, {method}: off by {missed:.0%} of the jobs that came")
    daily = {ago: np.concatenate(list(_days_again(history, ago))) for ago in DAYS_AGO[:3]}
    for nth in range(2):
        span = slice(24 * nth, 24 * nth + 24)
        told = ", ".join(f"{again[span].sum():,} as {_ago(ago)}" for ago, again in daily.items())
        print(f"arrivals of day {7 + nth}: {came[span].sum():,} came; {told}")
    day = [hour / DAY_MS for hour in hours]
    truth = _steps(CAME, "came", day, came, width=3)
    futures = [
        _steps(place + 1, f"as {_ago(ago)}", day, again, width=1.5)
        for place, (ago, again) in enumerate(daily.items())
    ]
    strips = [
        Strip(
            CAME,
            "trimtab: each hour forecast at its beginning",
            [
                {**truth, "showlegend": False},
                _steps(FOURTH, "the next hour, nearest", day, ahead["nearest"]),
            ],
            {"rangemode": "tozero"},
        ),
        Strip(
            CAME,
            "trimtab-plus: three futures of a day, made at its beginning",
            [truth, *futures],
            {"rangemode": "tozero"},
        ),
    ]
    axis = {**Clock().axis(FORECAST_MS[0] / 1000, FORECAST_MS[1] / 1000), "title": {"text": "day"}}
    return _keyed(charts.stack("Jobs submitted in an hour", "", strips, axis, each=150))


def _ago(days: int) -> str:
    return f"{days} day{'s' * (days > 1)} before"


def _days_again(history: History, ago: int) -> Iterator[np.ndarray]:
    for start_ms in range(*FORECAST_MS, DAY_MS):
        found = day_again(history.as_of(start_ms), DAY_MS, ago).submit_ms
        yield np.histogram(found, range(start_ms, start_ms + DAY_MS + 1, HOUR_MS))[0]


def _curves(past: Past) -> Chart:
    """Return how likely it is that a job of one GPU runs on for so much longer."""
    ran_ms = np.array([60_000, HOUR_MS, 8 * HOUR_MS])
    asked = _jobs_like(past, ran_ms)
    after_ms = np.geomspace(60_000, 4 * DAY_MS, 200).astype(np.int64)
    curves = RunTimes.of(past)
    chance = curves.longer(asked, np.arange(3), after_ms)
    names = ("has run for 1 minute", "has run for 1 hour", "has run for 8 hours")
    for name, share in zip(names, curves.longer(asked, np.arange(3), EDGES_MS[-1:])[:, 0], strict=True):
        print(f"a job of 1 GPU that {name}: {share:.0%} run on for 4 h or more")
    data = [
        charts.curve(place + 1, name, charts.rounded(after_ms / 1000), charts.rounded(row))
        for place, (name, row) in enumerate(zip(names, chance, strict=True))
    ]
    edges = [
        {
            "type": "line",
            "layer": "below",
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "x0": at_s,
            "x1": at_s,
            "line": {"color": "@edge", "width": 1, "dash": "dot"},
        }
        for at_s in (EDGES_MS / 1000).tolist()
    ]
    layout = {
        "xaxis": charts.log_time_axis(60, float(after_ms[-1]) / 1000, "service still to come, logarithmic"),
        "yaxis": {"range": [0, 1.02], "tickformat": ".0%"},
        "annotations": [charts.note("still running after that")],
        "shapes": edges,
    }
    return _keyed(Chart(title="How long it runs on", caption="", data=data, layout=layout, height=330))


def _jobs_like(past: Past, ran_ms: np.ndarray) -> Past:
    """Return jobs of one GPU of which nothing else is known than what they ran."""
    one, none = np.ones_like(ran_ms), np.full_like(ran_ms, -1)
    return Past(past.now_ms, past.now_ms - ran_ms, one, none, none, none, NEVER_MS * one, ran_ms)


def _classes(history: History) -> Chart:
    """Return the shares of the six classes, as forecast and as they came, by what jobs had run."""
    predictors = {mode: LocalPredictor(mode, Seeds(0)) for mode in ("kaplan-meier", "xgboost")}
    ran, came = [], []
    shares: dict[str, list[np.ndarray]] = {mode: [] for mode in predictors}
    for now_ms in range(*FORECAST_MS, 2 * HOUR_MS):
        past = history.as_of(now_ms)
        rows = np.flatnonzero(~past.completed)
        ran.append(past.ran_ms[rows])
        came.append(np.eye(CLASSES)[np.digitize(history.duration_ms[rows] - past.ran_ms[rows], EDGES_MS)])
        for mode, predictor in predictors.items():
            predictor.refresh(past)
            shares[mode].append(predictor.probabilities(past, rows))
    told = {"came": came, "curves": shares["kaplan-meier"], "curves and trees": shares["xgboost"]}
    so_far = np.concatenate(ran)
    strips = []
    for name, least, below in RAN:
        which = (so_far >= least) & (so_far < below)
        means = {who: np.concatenate(found)[which].mean(axis=0) for who, found in told.items()}
        for who, mean in means.items():
            print(f"had run {name}, {who}: {' '.join(f'{share:.0%}' for share in mean)} ({which.sum()} jobs)")
        data = [
            charts.bars(place, who, list(CLASS_NAMES), charts.rounded(mean), showlegend=name == RAN[0][0])
            for place, (who, mean) in enumerate(means.items())
        ]
        strips.append(Strip(CAME, f"had run {name}", data, {"tickformat": ".0%", "rangemode": "tozero"}))
    axis = {"title": {"text": "service still to come"}}
    return _keyed(charts.stack("Six classes", "", strips, axis, each=110))


# ---- search --------------------------------------------------------------------------------------


def search_pictures(journal: Path) -> Pictures:
    """Return the causal graph that was learned, and all that one hour proposed."""
    records = read_journal(journal).records
    end = next(one for one in records if one["kind"] == "end" and one["line"] == "trimtab")
    searched = [one for one in _main(records, "trimtab") if one["events"]]
    print(f"{len(searched)} of {len(_main(records, 'trimtab'))} hours were searched")
    for one in searched:
        print(
            f"hour {one['time_s'] / 3600:g}: {_fates(one)}; {_ranks(one)}; {one['verdict']}: {one['reason']}"
        )
    graph = _graph(end["graph"])
    print(f"graph: {graph.rows} simulations of {graph.situations} situations")
    for edge in graph.edges:
        print(f"  {edge.cause} - {edge.effect}: {edge.frequency:.2f} {edge.rule} {dict(edge.marks)}")
    chosen = max(searched, key=lambda one: (one["verdict"] == "apply", _count(one, "rejected")))
    return {"search-graph": graph_chart(graph), "search-hour": _proposals(chosen)}


def _main(records: Sequence[Record], line: str) -> list[Record]:
    """Return the hourly rounds of a line."""
    return [
        one for one in records if one["kind"] == "round" and one["line"] == line and one["search"] == "main"
    ]


def _graph(plain: Record) -> Graph:
    found = {name: value for name, value in plain.items() if name != "version"}
    lists = {name: tuple(found[name]) for name in ("knobs", "mediators", "inactive")}
    edges = {name: tuple(Edge(**one) for one in found[name]) for name in ("edges", "dropped")}
    return Graph(**{**found, **lists, **edges})


def _count(one: Record, fate: str) -> int:
    return sum(trial["fate"] == fate for trial in one["trials"])


def _fates(one: Record) -> str:
    return ", ".join(f"{many} {fate}" for fate, many in Counter(t["fate"] for t in one["trials"]).items())


def _ranks(one: Record) -> str:
    models = [event for event in one["events"] if event["kind"] == "model"]
    return f"ranks held elsewhere to {models[-1]['spearman']:.2f}"


def _proposals(one: Record) -> Chart:
    """Return every new proposal of a round: measured gains, and predicted ones of what was not simulated."""
    trials = [trial for trial in one["trials"] if trial["fate"] in ("simulated", "explored", "rejected")]
    best = np.maximum.accumulate(
        [trial["gain"] if trial["fate"] != "rejected" else -math.inf for trial in trials]
    )
    explored = [trial for trial in trials if trial["fate"] == "explored"]
    final = max(trial["gain"] for trial in trials if trial["fate"] != "rejected")
    spared = [trial["predicted"] for trial in trials if trial["fate"] == "rejected"]
    above = sum(trial["gain"] > 0.95 * final for trial in explored)
    print(f"hour {one['time_s'] / 3600:g} drawn: best gain {final:.3f}, {len(explored)} explored;")
    print(f"  {above} of these within 5 % of the best")
    print(f"  rejected were predicted {min(spared):.2f} to {max(spared):.2f}; the first one:")
    print(f"  {next(trial['reason'] for trial in trials if trial['fate'] == 'rejected')}")
    for fit in (event for event in one["events"] if event["kind"] == "model"):
        may = "may reject" if fit["ready"] else "may not reject"
        print(f"  model after {fit['simulated']} simulations: ranks hold to {fit['spearman']:.2f}, {may}")
    data = [
        _marks(CAME, "rejected: predicted gain, not simulated", trials, "rejected", "circle-open", 5),
        _marks(FIRST, "simulated", trials, "simulated", "circle", 7),
        _marks(SECOND, "explored: simulated in spite of the model", trials, "explored", "diamond", 8),
        charts.curve(THIRD, "best so far", list(range(1, len(trials) + 1)), charts.rounded(best)),
    ]
    known = [value for trace in data for value in trace["y"] if value]
    layout = {
        "xaxis": {"title": {"text": "proposal, in the order in which they were made"}, "showgrid": False},
        "yaxis": charts.log_axis(known),
        "annotations": [charts.note("gain over the running setting")],
    }
    return _keyed(Chart(title="One hour's proposals", caption="", data=data, layout=layout, height=360))


def _marks(index: int, name: str, trials: Sequence[Record], fate: str, symbol: str, size: int) -> Trace:
    places = [place for place, trial in enumerate(trials, 1) if trial["fate"] == fate]
    marker = {"color": charts.colour(index), "symbol": symbol, "size": size}
    told = "predicted" if fate == "rejected" else "gain"
    y = charts.rounded(trials[place - 1][told] for place in places)
    return {"type": "scatter", "mode": "markers", "name": name, "x": places, "y": y, "marker": marker}


# ---- verdict -------------------------------------------------------------------------------------


def verdict_pictures(journal: Path) -> Pictures:
    """Return what single hours said, what they say together, and what was done about it."""
    recorded = read_journal(journal)
    request = Request.of(recorded.header)
    rounds = [one for one in _main(recorded.records, "trimtab-plus") if len(one["measured"]) > 1]
    hours = [_logs(request, one["measured"]) for one in rounds]
    field, start = list(hours[0]), _setting(request, rounds[0]["knobs_before"])
    evidence = Evidence(request.plan.pooling)
    lucky, final = min(hours[0], key=hours[0].__getitem__), _setting(request, rounds[-1]["knobs"])
    scores, pooled, off = [], [], 0.0
    for one, hour in zip(rounds, hours, strict=True):
        if one["last_week"]:
            last_week = {text: [[cost]] for text, cost in one["last_week"].items()}
            evidence.add(_logs(request, last_week), field, request.plan.pooling.week)
        evidence.add(hour, field)
        scores.append(evidence.scores())
        pooled.append([evidence.gain(lucky, final, sure) for sure in (0.0, request.plan.sure)])
        before, best = (_setting(request, one[name]) for name in ("knobs_before", "best"))
        again = evidence.gain(before, best, 0.0)
        off = max(off, abs(again - one["gain"]))
    print(f"{len(hours)} hours tried {len(field)} settings; recomputed gains are off by {off:.1g} at most")
    _print_changes(rounds)
    shown = {"S": start, "L": lucky, "E": final}
    shown |= zip("AB", sorted(set(field) - {*shown.values()}, key=scores[-1].__getitem__), strict=False)
    for name, knobs in shown.items():
        print(f"{name}: score {math.exp(scores[-1][knobs]):.3f} {_brief(knobs)}")
    alone = [math.exp(hour[lucky] - hour[final]) for hour in hours]
    ahead = sum(gain > 1 for gain in alone)
    print(
        f"E over L: {min(alone):.2f} to {max(alone):.2f} in single hours, above 1 in {ahead} of {len(alone)};"
    )
    (first, _), (last, lower) = pooled[0], pooled[-1]
    print(f"  pooled {first:.3f} at first, {last:.3f} at the end; lower bound then {lower:.3f}")
    time = [one["time_s"] / 86_400 + 7 for one in rounds]
    strips = [_scores(time, scores, shown), _against(time, alone, pooled), _done(time, rounds)]
    axis = {
        **Clock().axis(*(at * 86_400 for at in (time[0] - 0.02, time[-1] + 0.02))),
        "title": {"text": "day"},
    }
    return {"verdict-evidence": _keyed(charts.stack("Evidence", "", strips, axis, each=150))}


def _brief(knobs: Knobs) -> str:
    """Return the knobs in which the shown settings differ."""
    names = ("num_queues", "queue_thresholds", "in_queue_order")
    return " ".join(f"{name}={write(knobs[name])}" for name in names)


def _setting(request: Request, values: Record | str) -> Knobs:
    """Return a setting that a journal has as text, or as plain values."""
    if not isinstance(values, str):
        lists = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        values = ",".join(f"{name}={write(one)}" for name, one in lists.items())
    pairs = (part.partition("=") for part in values.split(","))
    return find_policy(request.policy).space.parse({name: text for name, _, text in pairs})


def _logs(request: Request, measured: Record) -> dict[Knobs, float]:
    """Return the mean log cost of each setting over the futures of an hour; thrashing costs infinity."""
    costs = {
        text: [math.inf if one[0] is None else one[0] for one in rows] for text, rows in measured.items()
    }
    return {_setting(request, text): float(np.mean(np.log1p(row))) for text, row in costs.items()}


def _print_changes(rounds: Sequence[Record]) -> None:
    print(f"{sum(one['verdict'] == 'apply' for one in rounds)} changes in {len(rounds)} rounds; reasons:")
    reasons = Counter(re.sub(r"\d+(\.\d+)?", "…", one["reason"]) for one in rounds)
    for reason, many in reasons.most_common():
        print(f"  {many} x {reason}")


def _scores(time: list[float], scores: list[dict[Knobs, float]], shown: Mapping[str, Knobs]) -> Strip:
    """Return the strip of scores: what settings cost, relative to the field."""
    curves = [
        charts.curve(place, name, time, charts.rounded(math.exp(one[knobs]) for one in scores))
        for place, (name, knobs) in enumerate(shown.items())
    ]
    return Strip(CAME, "score: pooled cost, 1 is the field's mean, less is better", curves, {"nticks": 5})


def _against(time: list[float], alone: list[float], pooled: list[list[float]]) -> Strip:
    """Return the strip that compares two settings: hour by hour, and pooled."""
    mean, lower = (charts.rounded(column) for column in zip(*pooled, strict=True))
    hourly = {
        "type": "scatter",
        "mode": "markers",
        "name": "one hour alone",
        "x": time,
        "y": charts.rounded(alone),
        "marker": {"color": charts.colour(CAME), "size": 6},
    }
    both = [
        charts.curve(FIFTH, "pooled", time, mean),
        charts.curve(FIFTH, "its lower bound", time, lower, line={"dash": "dot"}),
    ]
    return Strip(CAME, "gain of E over L", [hourly, *both], {"nticks": 5})


def _done(time: list[float], rounds: Sequence[Record]) -> Strip:
    """Return the strip of what guardrails saw, and where they let a change pass."""
    tone = charts.colour(CAME)
    marks = []
    for name, verdict, fill in (("changed", "apply", tone), ("kept", "keep", "@paper")):
        some = [place for place, one in enumerate(rounds) if one["verdict"] == verdict]
        marker = {"color": fill, "size": 8, "symbol": "diamond", "line": {"color": tone, "width": 1.5}}
        y = charts.rounded(rounds[place]["guards"]["gain"] for place in some)
        dots = {"type": "scatter", "mode": "markers", "x": [time[place] for place in some], "y": y}
        marks.append({**dots, "name": name, "marker": marker})
    return Strip(CAME, "lower bound of the best one's gain over what runs", marks, {"nticks": 5})


# ---- themis --------------------------------------------------------------------------------------


def themis_pictures() -> Pictures:
    """Return three jobs under Themis, seen by all and by the worst-off alone, and print their fates."""
    rows = [("A", 0, 100), ("B", 5, 100), ("C", 40, 10)]
    workload = Workload([JobFacts(name, 1000 * at, 4) for name, at, _ in rows], [1000 * s for *_, s in rows])
    strips = []
    for f in (0.0, 1.0):
        policy, cluster = find_policy("themis"), Cluster.pool(1, 4)
        knobs = Knobs({**policy.space.defaults, "lease": 50, "fairness_f": f})
        environment = Environment(restart_ms=flat_restart(0), estimator=OracleEstimator(workload.duration_ms))
        engine = Engine(workload, cluster, policy, knobs, environment, timeline=True)
        engine.run()
        assert engine.timeline is not None
        table = jobs_table(workload, engine.outcomes)
        told = zip(table["job_id"], table["jct_s"], rhos(table, cluster), strict=True)
        print(f"f = {f:g}:", "; ".join(f"{name} JCT {jct:g} s, rho {rho:.3f}" for name, jct, rho in told))
        strips.append(_lanes(f"f = {f:g}", engine.timeline, [name for name, *_ in rows]))
    axis = {"title": {"text": "second"}, "range": [-2, 215]}
    return {"themis-timeline": _keyed(charts.stack("Leases", "", strips, axis, each=90))}


def _lanes(name: str, timeline: Timeline, jobs: Sequence[str]) -> Strip:
    """Return a lane a job: thin while it waits, thick while it holds its GPUs."""
    traces = []
    for place, job in enumerate(jobs):
        told = [event for event in timeline.events if event.job == place]
        for begin, end in pairwise(told):
            width = 14 if begin.kind == "start" else 2
            span = [begin.time_ms / 1000, end.time_ms / 1000]
            style = {"width": width, "color": charts.colour(place + 1)}
            first = name == "f = 0" and begin is told[0]
            lane = [len(jobs) - place] * 2
            traces.append(charts.curve(place + 1, job, span, lane, line=style, showlegend=first))
    ticks = {"tickvals": [len(jobs) - place for place in range(len(jobs))], "ticktext": list(jobs)}
    return Strip(CAME, name, traces, {**ticks, "range": [0.4, len(jobs) + 0.6]})


# ---- drawing -------------------------------------------------------------------------------------


def _steps(index: int, name: str, x: list[float], y: np.ndarray, width: float = 2) -> Trace:
    """Return hourly values as steps, the last of which lasts an hour, too; x is in days."""
    ends = [*x, x[-1] + 1 / 24]
    return charts.curve(index, name, ends, [*y.tolist(), int(y[-1])], line={"width": width, "shape": "hv"})


def _keyed(chart: Chart) -> Chart:
    """Return a chart with its key inside, since a picture has no page around it."""
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
    margin = {"l": 48, "r": 16, "t": 30, "b": 84}
    layout = {**chart.layout, "showlegend": True, "legend": legend, "margin": margin}
    return replace(chart, layout=layout, height=chart.height + 56)


def write_pictures(pictures: Pictures) -> None:
    """Draw charts in a headless Chromium as a report page draws them, and write them down as SVG."""
    shown = [replace(one, layout={**one.layout, "paper_bgcolor": "@paper"}) for one in pictures.values()]
    page = render(
        Page(
            kind="",
            title="",
            summary="",
            facts=(),
            terms=(),
            sections=(Section(title="", charts=tuple(shown)),),
        )
    )
    page = re.sub(
        '<meta http-equiv="Content-Security-Policy"[^>]*>', f"<script>{_DICE}</script>", page, count=1
    )
    page = page.replace("</body>", f"<script>{_EXPORT % WIDTH}</script></body>")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pictures.html"
        path.write_text(page)
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom")
        told = subprocess.run(
            [_chromium(), *flags, path.as_uri()], check=True, capture_output=True, text=True
        )
    found = re.search(r"<pre>(.*)</pre>", told.stdout, re.DOTALL)
    if not found:
        raise SystemExit("the browser drew nothing")
    for name, address in zip(pictures, found[1].split(), strict=True):
        svg = unquote(address.partition(",")[2])
        (HERE / "pictures" / f"{name}.svg").write_text(f"{svg}\n")


# Plotly names clip paths by chance: always the same numbers, so that the same pictures are the same bytes.
_DICE = "let seed = 1; Math.random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;"
_EXPORT = """(async () => {
  while (!document.documentElement.dataset.drawn) await new Promise((go) => setTimeout(go, 50));
  const found = [];
  for (const one of document.querySelectorAll(".chart")) {
    const height = one._fullLayout.height;
    found.push(await Plotly.toImage(one, { format: "svg", width: %d, height }));
  }
  const out = document.createElement("pre");
  out.textContent = found.join(" ");
  document.documentElement.replaceChildren(out);
})();"""


def _chromium() -> str:
    found = os.environ.get("TRIMTAB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        raise SystemExit("no Chromium on the path (set TRIMTAB_CHROMIUM)")
    return found


# ---- runs ----------------------------------------------------------------------------------------


def journal_of(page: str, folder: Path) -> Path:
    """Return the journal of a page's run, made by `trimtab evaluate` unless it is in the folder already."""
    path = folder / f"{page}.jsonl"
    if not path.exists():
        words = ["evaluate", *RUNS[page], *BUDGET, "--quiet", "--journal", str(path)]
        subprocess.run([sys.executable, "-m", "trimtab", *words], check=True)
    return path


def main() -> None:
    """Make the pictures of the named pages, or of all."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("pages", nargs="*", metavar="PAGE", help="forecast, search, verdict, themis, lucid")
    asked.add_argument("--journals", type=Path, help="folder to keep the journals in")
    given = asked.parse_args()
    makers: Mapping[str, Callable[[Path], Pictures]] = {
        "forecast": lambda folder: forecast_pictures(),
        "search": lambda folder: search_pictures(journal_of("search", folder)),
        "verdict": lambda folder: verdict_pictures(journal_of("verdict", folder)),
        "themis": lambda folder: themis_pictures(),
        "lucid": lambda folder: {"lucid": _keyed(lucid_picture())},
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.journals or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for page in given.pages or makers:
            print(f"== {page}")
            write_pictures(makers[page](folder))


if __name__ == "__main__":
    main()
