"""The journal of an evaluation: what it holds, that it comes out again, and how a damaged one is met."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Trimtab
from histories import WINDOW, history
from trimtab import __version__
from trimtab.cli import main

LINES = "fixed,selftune,trimtab,trimtab-plus,oracle"
EVALUATE = (
    f"evaluate day.csv --policy tiresias --window {WINDOW} --nodes 2 --gpus-per-node 4 --budget 12 "
    f"--interval 2h --background off --lines {LINES} --executor local --quiet"
)
REPLAY = "replay day.jsonl --executor local --quiet"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A day of jobs, and the journal of an evaluation of it."""
    folder = tmp_path_factory.mktemp("day")
    jobs = history(2).jobs
    rows = [
        f"{job['job_id']},{job['submit_ms'] / 1000},{job['duration_ms'] / 1000},{job['gpus']}"
        for job in jobs.iter_rows(named=True)
    ]
    (folder / "day.csv").write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["trimtab", *f"{EVALUATE} --journal day.jsonl".split()])
        with pytest.raises(SystemExit, match="0"):
            main()
    return {name: (folder / name).read_bytes() for name in ("day.csv", "day.jsonl")}


@pytest.fixture
def day(folder: Path, written: dict[str, bytes]) -> Path:
    """A working folder with both."""
    for name, data in written.items():
        (folder / name).write_bytes(data)
    return folder


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _change(path: Path, number: int, how: Callable[[dict[str, Any]], None]) -> None:
    """Change one record of a journal."""
    records = _records(path)
    how(records[number])
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


# ---- what is in it -------------------------------------------------------------------------------

GOLDEN = {
    "schema": 1,
    "kind": "header",
    "trimtab": __version__,
    "trace": {
        "source": "jobs.csv",
        "zone": None,
        "thin": 1.0,
        "sha256": "165a73ef40d8b5b4ee15c1ccc01f11d8f1abb5c0c4a1f6b45c2f5f1a9e8ad1f7",
        "kept": 6,
    },
    "window": "0s..90m",
    "cluster": {
        "nodes": 1,
        "gpus": 8,
        "pooled": False,
        "vcs": [
            {"name": "x", "nodes": 1, "gpus_per_node": 8, "cores_per_node": 24, "memory_mib_per_node": 512000}
        ],
    },
    "policy": "fifo",
    "knobs": "backfill=skip",
    "world": {
        "placement": "relaxed",
        "restart_cost_s": "chronus",
        "estimates": "none",
        "spread_speed": 0.25,
        "seed": 7,
        "engine": "reference",
        "speeds": "builtin",
        "speeds_sha256": "",
        "models": "column",
        "curves": "off",
        "curves_sha256": "",
        "mix": "20/70/10",
        "curve_noise": 0.0,
        "adjust_cost_s": 0.0,
        "site": "",
        "site_sha256": "",
    },
    "lines": ["selftune"],
    "ablate": [],
}
GOLDEN_ROUND = {
    "kind": "round",
    "line": "selftune",
    "time_s": 0.0,
    "search": "main",
    "verdict": "keep",
    "reason": "the running setting costs nothing: there is nothing to gain",
    "knobs": {"backfill": "skip"},
    "gain": 1.0,
    "cost_running": 0.0,
    "cost_best": 0.0,
    "pending": 0,
    "running": 0,
    "arrivals": 0,
    "knobs_before": {"backfill": "skip"},
    "best": {"backfill": "skip"},
    "simulations": 1,
    "futures": "00000000",
    "guards": {
        "gain": 1.0,
        "gain_min": 1.5,
        "running_for_s": 0.0,
        "dwell_s": 60.0,
        "belief": 1.0,
        "belief_min": 0.0,
    },
    "stopped": "nothing to gain",
    "trials": [
        {
            "knobs": {"backfill": "skip"},
            "fate": "simulated",
            "purpose": "incumbent",
            "cost": 0.0,
            "gain": 1.0,
        }
    ],
}


def test_a_header_and_a_round_as_they_are_written(folder: Path, trimtab: Trimtab) -> None:
    command = (
        "evaluate jobs.csv --policy fifo:backfill=skip --window 0s..90m --lines selftune --cluster good.toml "
        "--placement relaxed --restart-cost-s chronus --estimates none --spread-speed 0.25 --seed 7 --thin 1 "
        "--engine reference --threshold 1.5 --dwell 60s --budget 3 --executor local --journal out.jsonl"
    )
    assert trimtab(command).code == 0
    header, start, first, *rest = _records(folder / "out.jsonl")
    assert header.pop("plan")["rails"] == {
        "gain_min": 1.5,
        "dwell_ms": 60_000,
        "return_ms": 0,
        "belief_min": 0.0,
    }
    header["trace"]["sha256"] = GOLDEN["trace"]["sha256"]  # type: ignore[index]
    assert header == GOLDEN
    assert start == {"kind": "start", "line": "selftune", "knobs": {"backfill": "skip"}, "notes": []}
    assert first.pop("search_s") >= 0
    assert first == GOLDEN_ROUND
    assert [record["kind"] for record in rest] == ["round", "end"]
    assert trimtab("replay out.jsonl --executor local").code == 0


def test_every_line_starts_is_told_round_by_round_and_ends(day: Path, trimtab: Trimtab) -> None:
    records = _records(day / "day.jsonl")[1:]
    for line in LINES.split(","):
        kinds = [record["kind"] for record in records if record["line"] == line]
        assert kinds == ["start", *(0 if line == "fixed" else 5) * ["round"], "end"]
    found = trimtab(f"{EVALUATE} --format json").json()
    for line in found["lines"]:
        mine = [record for record in records if record["line"] == line["line"]]
        assert mine[-1]["digest"] == line["digest"]
        for hour, record in zip(line["hours"], mine[1:-1], strict=True):
            same = set(hour) - {"search_s", "trials"}
            assert {name: hour[name] for name in same} == {name: record[name] for name in same}
            assert record["simulations"] == hour["trials"]


def test_a_forecast_round_says_what_was_proposed_and_what_every_future_gave(day: Path) -> None:
    rounds = [record for record in _records(day / "day.jsonl") if record["kind"] == "round"]
    busy = [one for one in rounds if one["line"] in ("trimtab", "trimtab-plus") and one["simulations"] > 2]
    assert {one["line"] for one in busy} == {"trimtab", "trimtab-plus"}
    for one in busy:
        futures = 1 if one["line"] == "trimtab" else 3
        assert all(len(row) == futures for row in one["measured"].values())
        assert futures * len(one["measured"]) + len(one.get("last_week", ())) == one["simulations"]
        assert {"forecast", "search", "simulate"} <= set(one["seconds"])
        assert one["seconds"]["simulate"] <= one["seconds"]["search"]
    proposed = [trial for one in busy for trial in one["trials"] if "point" in trial]
    assert proposed
    for trial in proposed:
        assert trial["projected"].keys() <= trial["point"].keys()
    assert any(trial["projected"] for trial in proposed)
    assert not any(trial["purpose"] == "incumbent" for trial in proposed)


# ---- it comes out again --------------------------------------------------------------------------


def test_a_replay_is_identical_round_by_round(day: Path, trimtab: Trimtab) -> None:
    ran = trimtab(REPLAY)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[:2] == ["selftune: 5 rounds identical", "trimtab: 5 rounds identical"]
    assert "identical to the end" in ran.out
    found = trimtab(f"{REPLAY} --format json").json()
    assert (found["identical"], found["rounds"], found["whole"]) == (True, 20, True)


def test_clocks_are_not_compared(day: Path, trimtab: Trimtab) -> None:
    for number in range(2, len(_records(day / "day.jsonl"))):
        _change(day / "day.jsonl", number, lambda record: record.update(seconds={}, search_s=1e9))
    assert trimtab(REPLAY).code == 0


def _round_of(line: str, day: Path) -> int:
    """Return the place of a line's last round that tried several settings."""
    places = [
        place
        for place, record in enumerate(_records(day / "day.jsonl"))
        if record["kind"] == "round" and record["line"] == line and record["simulations"] > 2
    ]
    return places[-1]


def _nudge_measured(record: dict[str, Any]) -> None:
    row = next(reversed(record["measured"].values()))
    row[-1][2] += 1e-9


def _swap_trials(record: dict[str, Any]) -> None:
    record["trials"][0], record["trials"][1] = record["trials"][1], record["trials"][0]


ALTERED: dict[str, Callable[[dict[str, Any]], None]] = {
    "gain": lambda record: record.update(gain=record["gain"] + 1e-12),
    "guards.dwell_s": lambda record: record["guards"].update(dwell_s=1),
    "knobs.num_queues": lambda record: record["knobs"].update(num_queues=9),
    "futures": lambda record: record.update(futures="01234567"),
    "measured.": _nudge_measured,
    "trials.0.": _swap_trials,
    "trials.1": lambda record: record["trials"].__delitem__(slice(1, None)),
    "stopped": lambda record: record.pop("stopped"),
    "extra": lambda record: record.update(extra=None),
}


@pytest.mark.parametrize("field", ALTERED)
def test_one_altered_value_is_found(field: str, day: Path, trimtab: Trimtab) -> None:
    place = _round_of("trimtab-plus", day)
    _change(day / "day.jsonl", place, ALTERED[field])
    ran = trimtab(REPLAY)
    assert ran.code == 1
    assert "identical to the end" not in ran.out
    assert ran.err.startswith("trimtab: day.jsonl: trimtab-plus, hour ")
    assert ran.err.count("\n") == 1
    told = trimtab(f"{REPLAY} --format json")
    assert told.code == 1
    difference = json.loads(told.out)["difference"]
    assert difference["field"].startswith(field)
    assert difference["time_s"] == _records(day / "day.jsonl")[place]["time_s"]


def test_an_altered_result_or_start_is_found_too(day: Path, trimtab: Trimtab) -> None:
    untouched = (day / "day.jsonl").read_text()
    for number, how, said in (
        (1, lambda record: record["knobs"].update(num_queues=3), "fixed, start: knobs.num_queues was 3"),
        (2, lambda record: record.update(digest="0"), 'fixed, end: digest was "0" and is '),
    ):
        (day / "day.jsonl").write_text(untouched)
        _change(day / "day.jsonl", number, how)
        ran = trimtab(REPLAY)
        assert ran.code == 1
        assert said in ran.err


def test_ablations_are_replayed_to_their_end(day: Path, trimtab: Trimtab) -> None:
    short = "--window 12h..16h --lines fixed,trimtab-plus --ablate global --ablate common-futures"
    assert trimtab(f"{EVALUATE} {short} --journal parts.jsonl").code == 0
    found = trimtab("replay parts.jsonl --executor local --quiet --format json").json()
    assert (found["identical"], found["whole"]) == (True, True)
    assert list(found["lines"]) == [
        "trimtab-plus",
        "trimtab-plus without global",
        "trimtab-plus without common-futures",
    ]


@pytest.mark.parametrize("number", [1, 4, -1])
def test_a_record_beyond_the_end_is_a_difference(number: int, day: Path, trimtab: Trimtab) -> None:
    lines = (day / "day.jsonl").read_bytes().splitlines(keepends=True)
    (day / "day.jsonl").write_bytes(b"".join([*lines, lines[number]]))
    ran = trimtab(REPLAY)
    assert ran.code == 1
    assert "identical to the end" not in ran.out
    kind, line = (json.loads(lines[number])[name] for name in ("kind", "line"))
    assert ran.err == f'trimtab: day.jsonl: {line}, {kind}: kind was "{kind}" and is nothing.\n'


# ---- damaged, cut short, of another kind ---------------------------------------------------------


def test_a_journal_of_a_killed_run_is_used_as_far_as_it_reaches(day: Path, trimtab: Trimtab) -> None:
    lines = (day / "day.jsonl").read_bytes().splitlines(keepends=True)
    (day / "day.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][: len(lines[6]) // 2])
    ran = trimtab("replay day.jsonl --executor local")
    assert ran.code == 0
    assert "day.jsonl: its last line is cut short and left out.\n" in ran.err
    assert "selftune: 2 rounds identical" in ran.out
    assert "the journal ends before the evaluation did" in ran.out
    (day / "day.jsonl").write_bytes(lines[0])
    assert trimtab(f"{REPLAY} --format json").json()["rounds"] == 0


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_text(""), "is empty"),
    "missing": (lambda path: path.unlink(), "no such file"),
    "torn header": (lambda path: path.write_text('{"schema": 1, "ki'), "its only line is cut short"),
    "no journal": (lambda path: path.write_text('{"a": 1}\n'), "its first line is no header"),
    "no JSON": (lambda path: path.write_text("hello\nyou\n"), "line 1 is not a JSON object"),
    "schema": (lambda path: _change(path, 0, lambda one: one.update(schema=2)), "of schema 2, this Trimtab"),
    "a bad line": (
        lambda path: path.write_text(path.read_text().replace('{"kind":"round"', '{"kind" "round"', 1)),
        "line 5 is not a JSON object",
    ),
    "schema of another type": (
        lambda path: _change(path, 0, lambda one: one.update(schema=True)),
        "of schema True, this Trimtab",
    ),
    "too deep": (lambda path: path.write_text("[" * 100_000 + "\n"), "line 1 is not a JSON object"),
    "another kind": (lambda path: _change(path, 3, lambda one: one.update(kind="x")), "line 4 is no record"),
    "no window": (lambda path: _change(path, 0, lambda one: one.pop("window")), "KeyError: 'window'"),
    "odd plan": (
        lambda path: _change(path, 0, lambda one: one.update(plan={"a": 1})),
        "header cannot be used",
    ),
    "trace gone": (lambda path: (path.parent / "day.csv").unlink(), "day.csv: there is no such file"),
    "trace changed": (
        lambda path: (path.parent / "day.csv").write_text("job_id,submit_s,duration_s,gpus\na,1,1,1\n"),
        "day.csv: has changed since the journal was written (130 jobs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_replayed_is_refused_in_one_line(case: str, day: Path, trimtab: Trimtab) -> None:
    spoil, said = REFUSED[case]
    spoil(day / "day.jsonl")
    ran = trimtab(REPLAY)
    assert ran.code == 1
    assert ran.out == ""
    assert said in ran.err
    assert ran.err.count("\n") == 1


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for name, item in inside for place in _places(item, (*path, name))]


def _put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    for name in place[:-1]:
        value = value[name]
    value[place[-1]] = new


# They follow from `vcs`.
NOT_READ = {("cluster", "nodes"), ("cluster", "gpus")}
OF_ANOTHER_TYPE: tuple[Any, ...] = ([[1]], {"a": []}, float("inf"))


def test_a_header_with_a_value_of_another_type_is_refused(day: Path, trimtab: Trimtab) -> None:
    header = _records(day / "day.jsonl")[0]
    places = [place for place in _places(header) if place not in NOT_READ]
    assert len(places) > 50
    for place in places:
        for new in OF_ANOTHER_TYPE:
            spoiled = json.loads(json.dumps(header))
            _put(spoiled, place, new)
            (day / "odd.jsonl").write_text(f"{json.dumps(spoiled)}\n")
            ran = trimtab("replay odd.jsonl --executor local --quiet")
            assert ran.err.count("\n") == (ran.code == 1), (place, new, ran.err)
            if isinstance(new, list | dict):
                assert (ran.code, ran.out) == (1, ""), (place, new)


OUT_OF_RANGE: dict[str, tuple[tuple[Any, ...], Any]] = {
    "seed = -1": (("world", "seed"), -1),
    "unknown engine 'x'": (("world", "engine"), "x"),
    "unknown placement 'x'": (("world", "placement"), "x"),
    "restart-cost-s = 'x'": (("world", "restart_cost_s"), "x"),
    "nodes = 1,000,000,000": (("cluster", "vcs", 0, "nodes"), 10**30),
    "1 .. 1,000 for each of 1,000,000,000": (("cluster", "vcs", 0, "gpus_per_node"), 10**30),
    "no line is named": (("lines",), []),
    "unknown line 'x'": (("lines", 0), "x"),
    "futures = 0": (("plan", "paper", "futures"), 0),
    "arrivals = 1000000000000000000000000000000 ms": (("plan", "plus", "arrivals_ms"), 10**30),
    "run-on = 1000000000000000000000000000000 ms": (("plan", "run_on_ms"), 10**30),
    "budget = 1000000000000000000000000000000": (("plan", "tuning", "budget"), 10**30),
    "None is no float": (("plan", "rails", "gain_min"), None),
    "True is no int": (("trace", "kept"), True),
}


@pytest.mark.parametrize("said", OUT_OF_RANGE)
def test_a_header_keeps_the_rules_of_options(said: str, day: Path, trimtab: Trimtab) -> None:
    place, new = OUT_OF_RANGE[said]
    _change(day / "day.jsonl", 0, lambda header: _put(header, place, new))
    ran = trimtab(REPLAY)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_another_version_is_said(day: Path, trimtab: Trimtab) -> None:
    _change(day / "day.jsonl", 0, lambda header: header.update(trimtab="0.0.1"))
    ran = trimtab("replay day.jsonl --executor local")
    assert ran.code == 0
    assert f"was written by Trimtab 0.0.1, this is {__version__}" in ran.err


def test_a_journal_is_never_overwritten(day: Path, trimtab: Trimtab) -> None:
    before = (day / "day.jsonl").read_bytes()
    ran = trimtab(f"{EVALUATE} --journal day.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "trimtab: day.jsonl: is there already, and a journal is never overwritten; nothing was run.\n"
    )
    assert (day / "day.jsonl").read_bytes() == before
    assert trimtab(f"{EVALUATE} --journal nowhere/day.jsonl").code == 1
    assert trimtab(f"{EVALUATE} --window 90d..91d --journal new.jsonl").code == 1
    assert not (day / "new.jsonl").exists()


class Full(io.RawIOBase):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, room: int) -> None:
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = min(len(data), self._room)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= taken
        return taken


@pytest.mark.parametrize("records", [0, 1, 3])
def test_a_full_disk_is_one_line_that_names_the_journal(
    records: int, day: Path, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole records stay; where not even the header fitted, no file does, and the same can be asked again."""
    room = sum(map(len, (day / "day.jsonl").read_bytes().splitlines(keepends=True)[:records])) + 10
    opened = Path.open

    def filling(path: Path, mode: str = "r", **how: Any) -> Any:
        file = opened(path, mode, **how)
        return io.BufferedWriter(Full(room)) if path.name == "full.jsonl" else file

    monkeypatch.setattr(Path, "open", filling)
    ran = trimtab(f"{EVALUATE} --journal full.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "trimtab: full.jsonl: cannot be written (No space left on device); the run ends here.\n"
    )
    assert (day / "full.jsonl").exists() is (records > 0)


# ---- the causal graph ----------------------------------------------------------------------------


def test_the_graph_is_written_and_is_the_journals(day: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{EVALUATE} --graph graph.json")
    assert (ran.code, ran.err) == (0, "")
    graph = json.loads((day / "graph.json").read_text())
    assert {"version", "knobs", "mediators", "objective", "edges", "rows", "bootstraps"} <= set(graph)
    assert {"cause", "effect", "frequency", "rule", "marks"} <= set(graph["edges"][0])
    ends = [record for record in _records(day / "day.jsonl") if record["kind"] == "end"]
    assert [end["graph"] for end in ends] == [graph if end["line"] == "trimtab" else None for end in ends]
    last = [record for record in _records(day / "day.jsonl")[1:] if record["line"] == "trimtab"][-2]
    assert last["graph"] == graph["data_sha256"][:12]


def test_a_graph_that_nobody_learns_is_refused_and_one_not_learned_is_said(
    day: Path, trimtab: Trimtab
) -> None:
    ran = trimtab(f"{EVALUATE} --lines fixed,oracle --graph graph.json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "trimtab: --graph needs the line trimtab, which learns one; nothing was run.\n"
    ran = trimtab(f"{EVALUATE} --lines trimtab --budget 2 --graph graph.json")
    assert ran.code == 0
    assert ran.err.startswith("graph.json: not written, no causal graph was learned")
    assert not (day / "graph.json").exists()


# ---- diagnose ------------------------------------------------------------------------------------

DIAGNOSE = "diagnose day.jsonl --hours 2 --executor local --quiet"


def test_a_diagnosis_is_a_table_of_parts(day: Path, trimtab: Trimtab) -> None:
    ran = trimtab(DIAGNOSE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("trimtab-plus: 2 worst of 5 hours; lost: mean wait, s\n")
    heads = ran.out.splitlines()[2].split()
    assert heads == ["hour", "lost", "gain", "application", "search", "forecast", "horizon"]
    assert ran.out.count("true arrivals alone would have gained") == 2
    assert "simulated" in ran.out
    found = trimtab(f"{DIAGNOSE} --format json").json()
    assert {"line", "objective", "rounds", "hours", "sums"} == set(found)
    for hour in found["hours"]:
        assert sum(hour["parts"].values()) == pytest.approx(hour["lost_s"])
    assert trimtab(f"{DIAGNOSE} --line trimtab --format json").json()["line"] == "trimtab"


def test_a_diagnosis_that_cannot_be_is_one_line(day: Path, trimtab: Trimtab) -> None:
    for command, said in (
        (f"{DIAGNOSE} --hours 0", "hours = 0"),
        (f"{DIAGNOSE} --line oracle", "unknown forecasting line of this journal 'oracle'"),
        ("diagnose day.csv", "line 1 is not a JSON object"),
        ("diagnose nowhere.jsonl", "no such file"),
    ):
        ran = trimtab(command)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
    _change(day / "day.jsonl", _round_of("trimtab-plus", day), lambda record: record.update(futures="0"))
    ran = trimtab(DIAGNOSE)
    assert (ran.code, ran.out) == (1, "")
    assert "trimtab: not as in the journal: trimtab-plus, hour " in ran.err
