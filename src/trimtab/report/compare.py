"""The page of `compare --report`: runs over one trace side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.errors import ConfigError
from trimtab.report import numbers, tables, texts, views
from trimtab.report.charts import Clock
from trimtab.report.markup import Html, escape, join, tag
from trimtab.report.page import Page, Section, mono, render
from trimtab.report.slack import slack_over_time
from trimtab.report.tables import DEADLINES, GROUP_TITLES, JCTS, OTHERS, WAITS, Measure, of_group
from trimtab.report.views import View
from trimtab.simulate.metrics import Metrics
from trimtab.simulate.run import NO_CURVES, RunResult, World

_SAME_S = 60.0  # completion times this close count as the same


def compare_page(results: Sequence[RunResult], first_day: str = "") -> str:
    """Return the page for several runs; the first one is what the others are compared with.

    Args:
        results: The runs, over the same trace and cluster.
        first_day: What second 0 of the output clock is, where it has a date.

    Raises:
        ConfigError: If there is no run.
    """
    if not results:
        raise ConfigError("a comparison needs at least one run; no page was written.")
    names = tuple(result.title for result in results)
    lines = [View(index, names[index], one.jobs, one.timeline) for index, one in enumerate(results)]
    clock = Clock.read(first_day)
    page = Page(
        kind="Comparison of simulated schedulers",
        title=f"{numbers.many(len(results), 'run')} over {results[0].provenance.source}",
        summary=_summary(results),
        warnings=tuple(_warnings(results)),
        facts=_facts(results, first_day),
        key=names,
        sections=(
            Section(title="Results", lead=_results_lead(results), body=_table(results)),
            *((_winners(lines),) if len(lines) > 1 else ()),
            Section(
                title="Waiting and completion",
                with_key=True,
                charts=(*views.distributions(lines), *views.by_class(lines)),
            ),
            *_deadlines(results, lines, clock),
            Section(
                title="Load over time",
                lead=_tail_note(lines, clock),
                charts=tuple(views.load_over_time(lines, results[0].cluster, clock)),
            ),
        ),
        terms=_terms(results),
    )
    return render(page)


def _summary(results: Sequence[RunResult]) -> str:
    waits = [result.metrics["wait_s_mean"] for result in results]
    known = [(wait, index) for index, wait in enumerate(waits) if wait is not None]
    first = results[0]
    over = f"{numbers.many(first.kept, 'job')} on {numbers.count(first.cluster.gpus)} GPUs"
    if not known:
        return f"Of {over}, no job finished in any run."
    wait, best = min(known)
    base = waits[0]
    if len(results) == 1 or base is None:
        return (
            f"{results[best].title}: {over} wait {numbers.duration(wait)} on average and take "
            f"{numbers.duration(results[best].metrics['jct_s_mean'])} from submission to completion."
        )
    if best == 0 or wait == base:
        return (
            f"No run waits less than the first: with {first.title}, {over} wait "
            f"{numbers.duration(base)} on average."
        )
    return f"{_cut(results, best, over, wait, base)} {_tail(results[best].metrics, first.metrics)}".strip()


def _cut(results: Sequence[RunResult], best: int, over: str, wait: float, base: float) -> str:
    unit = numbers.common_unit([wait, base])
    said = (
        f"{results[best].title} has the shortest waiting: {over} wait {numbers.duration(wait, unit)} on "
        f"average instead of {numbers.duration(base, unit)} with {results[0].title} "
        f"({numbers.change(base, wait)})."
    )
    if 1 - wait / base < texts.NOISE and not results[best].spread:
        said += f" {texts.NOISE_WARNING}"
    return said


def _tail(metrics: Metrics, base: Metrics) -> str:
    p99, before = metrics["wait_s_p99"], base["wait_s_p99"]
    if not p99 or not before:
        return ""
    way = "falls" if p99 < before else "rises" if p99 > before else "stays"
    unit = numbers.common_unit([p99, before])
    if way == "stays":
        return f"The longest waits (p99) stay at {numbers.duration(p99, unit)}."
    return (
        f"The wait that one job in a hundred exceeds (p99) {way} from {numbers.duration(before, unit)} to "
        f"{numbers.duration(p99, unit)}."
    )


def _warnings(results: Sequence[RunResult]) -> list[str]:
    found = []
    if len({(one.provenance.sha256, one.kept, one.cluster) for one in results}) > 1:
        found.append("The runs are not over the same jobs and cluster: compare their numbers with care.")
    if len({one.metrics["finished"] for one in results}) > 1:
        found.append(
            "The runs did not finish the same number of jobs, and means are over finished jobs only: a run "
            "that leaves out the hard ones looks better than it is."
        )
    rejected = max(one.metrics["rejected"] or 0 for one in results)
    if rejected:
        found.append(
            f"Up to {numbers.many(int(rejected), 'job')} ask for more than the cluster has and were "
            "rejected; they are in no mean."
        )
    return found


def _facts(results: Sequence[RunResult], first_day: str) -> tuple[tuple[str, str], ...]:
    worlds = [result.world for result in results]
    cost = {
        f"{one.restart_cost_s:g} s" if not isinstance(one.restart_cost_s, str) else one.restart_cost_s
        for one in worlds
    }
    first = results[0]
    return (
        *texts.provenance_facts(first.provenance, first.kept),
        ("Cluster", texts.cluster_text(first.cluster)),
        ("Placement", _all(one.placement for one in worlds)),
        ("Restart of a preempted job", _all(cost)),
        ("Run-time estimates", _all(one.estimates for one in worlds)),
        *_curve_facts(worlds),
        ("Measured speeds", _all(filter(None, (_measured(one) for one in worlds)))),
        ("Policies", _all(one.policy for one in results)),
        ("Second 0", first_day),
        ("Seed", _all(str(one.seed) for one in worlds)),
        texts.version_fact(),
        texts.digest_fact(first.provenance),
    )


def _curve_facts(worlds: Sequence[World]) -> list[tuple[str, str]]:
    """Return what is known of speed by CPU and memory; nothing where these do not matter."""
    texts = {
        f"{one.curves}, models drawn by {one.mix}, up to {one.curve_noise:.0%} off, "
        f"{one.adjust_cost_s:g} s a change"
        for one in worlds
        if one.curves != NO_CURVES
    }
    return [("Speed by CPU and memory", _all(sorted(texts)))] if texts else []


def _measured(world: World) -> str:
    return ", ".join(f"{name} {value}" for name, value in world.measured.items())


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _results_lead(results: Sequence[RunResult]) -> str:
    if len(results) == 1:
        return ""
    tail = " The range under it is over the orders of simultaneous jobs." if results[0].spread else ""
    return f"Under each value its ratio to the first run.{tail}"


def _table(results: Sequence[RunResult]) -> Html:
    metrics = [_with_more(index, result) for index, result in enumerate(results)]
    measures = (*WAITS, *JCTS, *OTHERS, *DEADLINES)
    return join(
        _compared(results, metrics, measures, "Metrics of each run; all times are simulated"),
        _settings(results),
    )


def _compared(
    results: Sequence[RunResult], metrics: Sequence[Metrics], measures: Iterable[Measure], caption: str
) -> Html:
    """Return a table of the measures that any run has."""
    spreads = [result.spread for result in results] if any(one.spread for one in results) else ()
    heads = [tables.name_head(index, result.title) for index, result in enumerate(results)]
    rows = [
        (escape(one.title), tables.cells(one, [found.get(one.name) for found in metrics], spreads))
        for one in measures
        if any(found.get(one.name) is not None for found in metrics)
    ]
    return tables.measure_table(heads, rows, caption, "Measure")


def _with_more(index: int, result: RunResult) -> Metrics:
    """Return the metrics and two numbers that only the page has."""
    waits = result.jobs["wait_s"].drop_nulls().to_numpy()
    line = View(index, result.title, result.jobs, result.timeline)
    p95 = float(np.percentile(waits, 95)) if len(waits) else None
    return {**result.metrics, "wait_s_p95": p95, "busy_share": views.busy_share(line, result.cluster)}


def _settings(results: Sequence[RunResult]) -> Html:
    rows = [
        (tables.name_head(index, result.title), mono(result.knobs.text() or "no knobs"))
        for index, result in enumerate(results)
    ]
    return tag(
        "details",
        tag("summary", "Every knob of every run"),
        tables.plain_table(("Run", "Knobs"), rows, "Settings, as the command line takes them"),
    )


def _winners(lines: Sequence[View]) -> Section:
    rows = [_gains(lines[0], line) for line in lines[1:]]
    head = ("Run", "Better · same · worse", "Finish earlier", "Within a minute", "Finish later")
    return Section(
        title="Who gains, who loses",
        lead=f"Each job's completion compared with the same job's in the first run, {lines[0].name}.",
        body=tables.plain_table(head, rows, "Share of jobs, and the mean time gained or lost by them"),
    )


def _gains(base: View, line: View) -> tuple[str, ...]:
    before, after = base.jobs["jct_s"].to_numpy(), line.jobs["jct_s"].to_numpy()
    if len(before) != len(after):
        return (tables.name_head(line.index, line.name), "not the same jobs", "", "", "")
    delta = (after - before)[~np.isnan(after - before)]
    if not len(delta):
        return (tables.name_head(line.index, line.name), "no job finished in both", "", "", "")
    sooner, later = delta[delta < -_SAME_S], delta[delta > _SAME_S]
    up, down = len(sooner) / len(delta), len(later) / len(delta)
    return (
        tables.name_head(line.index, line.name),
        _split(up, 1 - up - down, down),
        _moved(up, sooner, "earlier"),
        numbers.percent(max(0.0, 1 - up - down)),
        _moved(down, later, "later"),
    )


def _split(up: float, same: float, down: float) -> Html:
    parts = (
        tag("i", class_=name, style=f"width:{100 * share:.2f}%")
        for name, share in (("up", up), ("same", same), ("down", down))
    )
    words = f"{numbers.percent(up)} earlier, {numbers.percent(down)} later"
    return tag("div", *parts, class_="split", role="img", aria_label=words)


def _moved(share: float, by_s: np.ndarray, way: str) -> Html:
    if not len(by_s):
        return join("none")
    mean = numbers.duration(float(np.abs(by_s).mean()))
    return join(tag("b", numbers.percent(share)), tag("small", f"by {mean} on average {way}"))


def _tail_note(lines: Sequence[View], clock: Clock) -> str:
    last = views.span_s(lines)[1]
    beyond = max(
        (float(found) for line in lines if isinstance(found := line.jobs["finish_s"].max(), float)),
        default=last,
    )
    if beyond <= last:
        return ""
    return f"Shown to a day after the last submission; the last job completes at {clock.show(beyond)}."


def _deadlines(results: Sequence[RunResult], lines: Sequence[View], clock: Clock) -> tuple[Section, ...]:
    """Return the part on deadlines, if any job has one."""
    groups = [name for name in GROUP_TITLES if any(f"jobs_{name}" in one.metrics for one in results)]
    if not groups:
        return ()
    lead = "Each table below tells of one group of jobs; times are those of its finished jobs."
    return (
        Section(
            title="Deadlines",
            lead=lead,
            body=join(*(_group(results, name) for name in groups)),
            charts=tuple(slack_over_time(lines, clock)),
        ),
    )


def _group(results: Sequence[RunResult], group: str) -> Html:
    metrics = [result.metrics for result in results]
    count = max(int(found.get(f"jobs_{group}") or 0) for found in metrics)
    return tag(
        "details",
        tag("summary", f"{GROUP_TITLES[group]} ({numbers.many(count, 'job')})"),
        _compared(results, metrics, of_group(group), GROUP_TITLES[group]),
    )


def _terms(results: Sequence[RunResult]) -> tuple[tuple[str, str], ...]:
    names = ["Wait", "Queue", "JCT", "Median, p95, p99", "Slowdown", "GPU utilisation", "Makespan", "ρ ≤ 1"]
    if any("slo_jobs" in result.metrics for result in results):
        names += ["Deadlines missed", "Value lost", "Tardiness", "To the first start"]
    return texts.terms(*names, "Ratio", "Best", "Ties")
