"""The rows of the table: from measurements to figures with their targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latency import LATENCIES


@dataclass(frozen=True)
class Figure:
    """The median, least and most of several measurements, and what was noted beside them."""

    median: float
    low: float
    high: float
    notes: Mapping[str, Any] = field(default_factory=dict)

    def scaled(self, scale: Callable[[float], float]) -> Figure:
        """Return the figure in another unit; of a rate, the least time is the most."""
        median, one, other = scale(self.median), scale(self.low), scale(self.high)
        return Figure(median, min(one, other), max(one, other), self.notes)

    def over(self, other: Figure) -> Figure:
        """Return the ratio of two figures, from its least to its most."""
        return Figure(self.median / other.median, self.low / other.high, self.high / other.low)


@dataclass(frozen=True)
class Target:
    """A bound that a median is to keep."""

    bound: float
    least: bool = False

    def met(self, figure: Figure) -> bool:
        return figure.median >= self.bound if self.least else figure.median <= self.bound


@dataclass(frozen=True)
class Row:
    """One line: what was done, how long it took, and what it should take.

    `whole` and `reference` are medians in the same unit: the whole call, and the reference engine.
    `ratio` says how many times faster than the reference. `note` says why there is no figure.
    """

    name: str
    work: str
    unit: str
    figure: Figure | None
    target: Target | None = None
    whole: float | None = None
    reference: float | None = None
    ratio: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None where there is none or no figure."""
        return None if self.figure is None or self.target is None else self.target.met(self.figure)


# By the name of the measurement, e.g. `test_engine[fifo]`; of memory, `memory[x20]`.
Results = Mapping[str, Figure]


@dataclass(frozen=True)
class Topic:
    """What `--only` names: measurements, the cases whose memory is measured, and the rows made of them."""

    needs: tuple[str, ...]
    rows: Callable[[Results], list[Row]]
    on_reference: tuple[str, ...] = ()
    memory: tuple[tuple[str, bool], ...] = ()


def milliseconds(figure: Figure) -> Figure:
    return figure.scaled(lambda spent_s: spent_s * 1e3)


def per_s(figure: Figure, done: int) -> Figure:
    return figure.scaled(lambda spent_s: done / spent_s)


def ns_per_event(figure: Figure, events: int) -> Figure:
    return figure.scaled(lambda spent_s: spent_s * 1e9 / events)


def us_each(figure: Figure) -> Figure:
    return figure.scaled(lambda spent_s: spent_s * 1e6 / figure.notes["candidates"])


def _row(
    name: str,
    work: str,
    unit: str,
    measured: tuple[Figure, Figure | None, Figure | None],
    scale: Callable[[Figure], Figure],
    target: Target | None = None,
) -> Row:
    """Return a row of engine, whole call and reference in one unit."""
    engine, whole, reference = (None if one is None else scale(one) for one in measured)
    assert engine is not None
    ratio = None
    if reference is not None:
        ratio = reference.median / engine.median
        ratio = 1 / ratio if unit.endswith("/s") else ratio
    return Row(
        name,
        work,
        unit,
        engine,
        target,
        whole.median if whole else None,
        reference.median if reference else None,
        ratio,
    )


def _of_case(results: Results, case: str) -> tuple[Figure, Figure | None, Figure | None]:
    return (
        results[f"test_engine[{case}]"],
        results.get(f"test_whole[{case}]"),
        results.get(f"test_reference[{case}]"),
    )


def _measurements(*cases: str) -> tuple[str, ...]:
    return tuple(f"test_{what}[{case}]" for case in cases for what in ("engine", "whole"))


def _on_reference(*cases: str) -> tuple[str, ...]:
    return tuple(f"test_reference[{case}]" for case in cases)


def _window(name: str, work: str, most_ms: float) -> Topic:
    def rows(results: Results) -> list[Row]:
        return [_row(name, work, "ms", _of_case(results, name), milliseconds, Target(most_ms))]

    return Topic(_measurements(name), rows, _on_reference(name))


def _hook_rows(results: Results) -> list[Row]:
    built_in = _of_case(results, "by-submit")
    rows = [_row("hooks-built-in", "Tiresias, order by submission", "ms", built_in, milliseconds)]
    measured = _of_case(results, "hooks")
    return [
        *rows,
        _row("hooks", "the same as hooks in Python", "ms", measured, milliseconds),
        Row("hooks-ratio", "hooks against built-in", "x", measured[0].over(built_in[0]), Target(3)),
    ]


def _fork_rows(results: Results) -> list[Row]:
    one = results["test_fork"]
    running, pending = one.notes["active"]
    work = f"a candidate: {running} run, {pending} wait, 1 h"
    measured = one, results.get("test_fork_whole"), results.get("test_fork_reference")
    return [
        _row("fork", work, "us", measured, us_each, Target(150)),
        Row(
            "fork-event",
            f"the same, an event ({one.notes['events']:.0f} each)",
            "ns/event",
            us_each(one).scaled(lambda us: us * 1e3 / one.notes["events"]),
        ),
    ]


def _batch_rows(results: Results) -> list[Row]:
    one, two = (results[f"test_batch[{threads}]"] for threads in (1, 2))
    rates = [per_s(spent, spent.notes["candidates"]) for spent in (one, two)]
    same = float(two.notes["same"])
    cpu = two.notes["cpu_s"] / one.notes["cpu_s"]
    return [
        Row("batch-1", "candidates a second, 1 thread, wall", "/s", rates[0]),
        Row("batch-2", "the same on 2 threads", "/s", rates[1], Target(10_000, least=True)),
        Row("batch-cpu", "CPU time of 2 threads against 1", "x", Figure(cpu, cpu, cpu)),
        Row("batch-costs", "same costs on both (1: yes)", "", Figure(same, same, same), Target(1, True)),
    ]


def _per_event(results: Results, name: str, case: str, work: str) -> Row:
    measured = _of_case(results, case)
    events = measured[0].notes["events"]
    return _row(name, work, "ns/event", measured, lambda figure: ns_per_event(figure, events))


def _ratio_of(name: str, work: str, many: Row, one: Row, most: float) -> Row:
    assert many.figure is not None
    assert one.figure is not None
    return Row(name, work, "x", many.figure.over(one.figure), Target(most))


def _whole_rows(results: Results) -> list[Row]:
    measured = _of_case(results, "whole")
    jobs = measured[0].notes["jobs"]
    work = f"Tiresias, whole trace ({jobs:,} jobs), 100 x 8"
    target = Target(2_000_000, least=True)
    return [_row("whole", work, "jobs/s", measured, lambda figure: per_s(figure, jobs), target)]


def _growth_rows(results: Results) -> list[Row]:
    rows = [
        _per_event(results, "growth-x1", "whole", "whole trace, 100 x 8"),
        _per_event(results, "growth-x5", "x5", "5 times over"),
        _per_event(results, "growth-x20", "x20", "20 times over"),
    ]
    ratio = _ratio_of("growth-ratio", "an event of x20 against x1", rows[2], rows[0], 1.15)
    kept, target = results.get("memory[x20, timeline]"), Target(400)
    note = "" if kept else "this system does not tell peak memory"
    return [
        *rows,
        ratio,
        Row("growth-memory", "memory of x20", "B/job", results.get("memory[x20]"), target, note=note),
        Row("growth-events", "memory of x20, its events kept", "B/job", kept, note=note),
    ]


def _wide_rows(results: Results) -> list[Row]:
    one = _per_event(results, "wide-x1", "whole", "whole trace, 100 x 8")
    wide = _per_event(results, "wide-x10", "wide", "arrivals x 10, 1,000 x 8")
    return [one, wide, _ratio_of("wide-ratio", "an event of x10 nodes against x1", wide, one, 1.5)]


def _evaluate_rows(results: Results) -> list[Row]:
    figure = results["test_evaluate"]
    cpu_s = figure.notes["cpu_s"]
    return [
        Row("evaluate", "evaluate, a fortnight, 64 x 8, wall", "s", figure, Target(60)),
        Row("evaluate-cpu", "its CPU time", "s", Figure(cpu_s, cpu_s, cpu_s)),
    ]


def _deadline_rows(results: Results) -> list[Row]:
    found = [
        _row(
            name, f"{title}, deadlines, 120 x 8", "ms", _of_case(results, name), milliseconds, Target(10_000)
        )
        for name, title in (
            ("chronus", "Chronus"),
            ("sensascale", "SensaScale"),
            ("sensascale-plus", "the same, plus"),
        )
    ]
    one, four = (
        _per_event(results, f"{name}-event", name, work)
        for name, work in (
            ("sensascale-x1", "an event of SensaScale, 160 x 8"),
            ("sensascale-x4", "4 times over"),
        )
    )
    return [*found, one, four, _ratio_of("sensascale-growth", "an event of x4 against x1", four, one, 1.15)]


def _latency_rows(results: Results) -> list[Row]:
    """Return the 99th percentile of a second's CPU time, of those in which something happens."""
    found = []
    for name in LATENCIES:
        figure = results[f"test_latency[{name}]"]
        first, last = figure.notes["active"]
        p99 = figure.notes["p99_ms"]
        work = f"{name}, p99 of a busy second, {first:,} jobs at first, {last:,} at last"
        found.append(Row(f"latency-{name}", work, "ms", Figure(p99, p99, p99), Target(5)))
    return found


# In an order in which measurements on one input follow one another.
TOPICS: dict[str, Topic] = {
    "tiresias": _window("tiresias", "Tiresias, two weeks, 100 x 8", 6),
    "fifo": _window("fifo", "FIFO strict, two weeks, 100 x 8", 4),
    "srtf": _window("srtf", "SRTF, two weeks, 80 x 8", 25),
    "srsf": _window("srsf", "SRSF, two weeks, 80 x 8", 25),
    "themis": _window("themis", "Themis, two weeks, 80 x 8", 150),
    "lucid": _window("lucid", "Lucid, profiled, two weeks, 100 x 8", 60),
    "deadlines": Topic(
        _measurements("chronus", "sensascale", "sensascale-plus", "sensascale-x1", "sensascale-x4"),
        _deadline_rows,
    ),
    "latency": Topic(tuple(f"test_latency[{name}]" for name in LATENCIES), _latency_rows),
    "hooks": Topic(
        (*_measurements("by-submit", "hooks"), "test_hooks_schedule_as_the_built_in"),
        _hook_rows,
        _on_reference("by-submit", "hooks"),
    ),
    "fork": Topic(("test_fork", "test_fork_whole"), _fork_rows, ("test_fork_reference",)),
    "batch": Topic(("test_batch[1]", "test_batch[2]"), _batch_rows),
    "whole": Topic(_measurements("whole"), _whole_rows, _on_reference("whole")),
    "growth": Topic(
        _measurements("whole", "x5", "x20"),
        _growth_rows,
        _on_reference("whole", "x5", "x20"),
        (("x20", False), ("x20", True)),
    ),
    # The reference engine takes more than five minutes on the wide trace: left out.
    "wide": Topic(_measurements("whole", "wide"), _wide_rows, _on_reference("whole")),
    "evaluate": Topic(("test_evaluate",), _evaluate_rows),
}


def rows_of(topics: Sequence[str], results: Results) -> list[Row]:
    """Return the rows of several topics, in order."""
    return [row for name in topics for row in TOPICS[name].rows(results)]
