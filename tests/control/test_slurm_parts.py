"""What the adapter to Slurm is made of: tables, host lists, keys, effects, nodes and the lives of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from trimtab.control import slurm_keys as keys
from trimtab.control.adapter import Refused, Unreachable
from trimtab.control.slurm_commands import columns, nodes_of, rows
from trimtab.control.slurm_effect import Factor, has_effect
from trimtab.control.slurm_file import Owned, Record
from trimtab.control.slurm_history import events_of, read_history
from trimtab.control.slurm_jobs import Jobs, Row, gpu_counts, layout_of, span_ms
from trimtab.errors import ConfigError
from trimtab.knobs import Knob
from trimtab.traces.sacct import load

_TEXTS: dict[str, Any] = {"trades": "nothing", "takes_effect": "next pass", "in_flight": "nothing"}

# ---- text ------------------------------------------------------------------------------------------

_NAMES = ("JobArrayID", "State", "Name")
_TABLE = "JOBID|tx|STATE|tx|NAME|tx|\n7|tx|RUNNING|tx|a|b|tx|\n"


def test_columns_are_asked_for_with_separators() -> None:
    assert columns("tx", _NAMES) == "JobArrayID:|tx|,State:|tx|,Name:|tx|"


@pytest.mark.parametrize(
    "text",
    [
        _TABLE,
        "squeue: warning: something is deprecated\n" + _TABLE,
        _TABLE.replace("a|b", "a|b\n9|t0|RUNNING|mine"),  # a job's name with a line break in it
    ],
)
def test_a_table_is_read_past_what_is_no_row(text: str) -> None:
    (found,) = rows("squeue", text, "tx", _NAMES)
    assert (found["JobArrayID"], found["State"]) == ("7", "RUNNING")
    assert found["Name"].startswith("a|b")


@pytest.mark.parametrize(
    "text", ["", "\n", "JOBID STATE NAME\n7 RUNNING a\n", "7|tx|RUNNING|tx|\n", "J|tx|\n7|tx|\n8|tx|\n"]
)
def test_an_answer_that_is_no_table_counts_as_none(text: str) -> None:
    with pytest.raises(Unreachable):
        rows("squeue", text, "tx", _NAMES)


def test_an_empty_table_has_a_heading() -> None:
    assert rows("squeue", _TABLE.splitlines()[0], "tx", _NAMES) == []


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("g1", ["g1"]),
        ("g[1-3,07],login", ["g1", "g2", "g3", "g07", "login"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
    ],
)
def test_host_lists(text: str, hosts: list[str]) -> None:
    assert nodes_of(text) == hosts


@pytest.mark.parametrize("text", ["g[1-", "g[3-1]", "g[a-b]", "g[1-99999999]"])
def test_what_is_no_host_list(text: str) -> None:
    with pytest.raises(Unreachable):
        nodes_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:03", 3), ("5:00", 300), ("1:02:03", 3723), ("1-02:03:04", 93_784), ("UNLIMITED", None), ("", None)],
)
def test_lengths_of_time(text: str, seconds: int | None) -> None:
    assert span_ms(text) == (None if seconds is None else seconds * 1000)


def test_gpus_of_nodes() -> None:
    assert gpu_counts(["gpu:a100:8", "(null)", "gpu:a100:4(S:0-1)", "gpu:a100:4,gpu:t4:2", "shard:8"]) == [
        *(8, 0, 4, 6, 0)
    ]


# ---- keys ------------------------------------------------------------------------------------------


def _knob(name: str, unit: str = "", kind: Any = "int", high: float = 10**9) -> Knob:
    return Knob(name=name, kind=kind, default=False if kind == "bool" else 0, high=high, unit=unit, **_TEXTS)


@pytest.mark.parametrize(
    ("name", "unit", "value", "line", "shown"),
    [
        ("PriorityWeightAge", "", 12, "PriorityWeightAge=12", "12"),
        ("PriorityMaxAge", "min", 90, "PriorityMaxAge=0-01:30:00", "01:30:00"),
        ("PriorityMaxAge", "d", 7, "PriorityMaxAge=7-00:00:00", "7-00:00:00"),
        ("bf_window", "min", 1440, "bf_window=1440", "1440"),
    ],
)
def test_values_are_written_as_slurm_reads_them_and_shows_them(
    name: str, unit: str, value: int, line: str, shown: str
) -> None:
    key, knob = keys.find_key(name), _knob(name, unit)
    assert keys.written(key, knob, value) == line
    assert keys.value_of(key, knob, shown) == value


def test_switches_and_flags() -> None:
    favor, flag = keys.find_key("PriorityFavorSmall"), keys.find_key("bf_continue")
    assert [keys.written(favor, _knob("x", kind="bool"), on) for on in (True, False)] == [
        *("PriorityFavorSmall=YES", "PriorityFavorSmall=NO")
    ]
    assert [keys.written(flag, _knob("x", kind="bool"), on) for on in (True, False)] == ["bf_continue", ""]
    assert keys.value_of(favor, _knob("x", kind="bool"), "Yes") is True
    assert keys.value_of(flag, _knob("x", kind="bool"), None) is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bf_window", 0),
        ("bf_window", 43_201),
        ("bf_interval", -5),
        ("bf_resolution", 99_999),
        ("bf_window", 1.5),
        ("bf_window", float("nan")),
        ("bf_window", "abc"),
        ("PriorityWeightAge", -1),
        ("PriorityMaxAge", 0),
    ],
)
def test_what_slurm_would_not_do_is_not_written(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        keys.written(keys.find_key(name), _knob(name), value)


@pytest.mark.parametrize("text", ["abc", "-1", "", "NONE"])
def test_what_is_shown_and_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        keys.value_of(keys.find_key("bf_window"), _knob("bf_window"), text)


def test_what_the_policy_does_not_know_is_said() -> None:
    with pytest.raises(ConfigError, match=r"the policy knows only 0 \.\. 10"):
        keys.value_of(keys.find_key("bf_window"), _knob("bf_window", high=10), "1440")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7-0", 604_800), ("1-12:30", 131_400), ("00:05:00", 300), ("5:30", 330), ("5", 300), ("soon", None)],
)
def test_times_as_a_file_may_have_them(text: str, seconds: int | None) -> None:
    assert keys.number_of(keys.find_key("PriorityMaxAge"), text) == seconds


def test_parameters_of_others_stay() -> None:
    text = "defer_batch,bf_window=60,sched_min_interval=5"
    assert keys.merged(text, {"bf_window": "bf_window=90", "bf_continue": ""}) == (
        "bf_window=90,defer_batch,sched_min_interval=5"
    )
    assert keys.merged("(null)", {"bf_window": "bf_window=90"}) == "bf_window=90"


@pytest.mark.parametrize(("text", "found"), [("22.05.8", (22, 5)), ("25.11.0-0rc1", (25, 11))])
def test_releases(text: str, found: tuple[int, int]) -> None:
    assert keys.release(text) == found


@pytest.mark.parametrize("text", ["", "22", "twenty"])
def test_what_is_no_release(text: str) -> None:
    with pytest.raises(ConfigError):
        keys.release(text)


# ---- effects ---------------------------------------------------------------------------------------


def _factors(weighted: float, bare: float) -> dict[str, dict[str, Factor]]:
    return {"7": {"partition": Factor(weighted, bare)}}


@pytest.mark.parametrize(
    ("before", "now", "weight", "felt"),
    [
        (_factors(100, 0.1), _factors(300, 0.1), 3000, True),
        (_factors(100, 0.1), _factors(100, 0.0333333), 3000, False),
        (_factors(100, 0.1), _factors(0, 0.0), 0, True),
        (_factors(100, 0.1), _factors(100, 0.0), 0, False),
        (_factors(0, 0.0), _factors(0, 0.0), 1000, True),  # the weight was 0: nothing can be told
        (_factors(100, 0.1), {}, 3000, True),  # nobody waits any more
    ],
)
def test_effects(before: Any, now: Any, weight: int, felt: bool) -> None:
    assert has_effect(before, now, {"partition": weight}) is felt


@pytest.mark.parametrize(
    ("now", "felt"), [(_factors(900, 0.9), True), (_factors(100, 0.1), False), (_factors(900, 0.45), False)]
)
def test_effects_of_a_factor_that_is_turned_round(now: Any, felt: bool) -> None:
    """A tenth becomes nine tenths, also beside another weight: then it is half of that while it is stale."""
    assert has_effect(_factors(100, 0.1), now, {"partition": 1000}, ("partition",)) is felt


# ---- the file --------------------------------------------------------------------------------------


@pytest.fixture
def owned(tmp_path: Path) -> Owned:
    path = tmp_path / "tuned.conf"
    path.write_text("# ours\nPriorityWeightAge=5\nSchedulerType=sched/backfill\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nPriorityWeightQOS=3 # here\nInclude tuned.conf\n")
    return Owned(conf, path)


def test_a_candidate_keeps_the_lines_of_others_and_tells_what_it_is(owned: Owned) -> None:
    record = Record("k", 7, "PriorityWeightAge=9", "PriorityWeightAge=5", 6)
    text = owned.candidate(record, {"PriorityWeightAge": "PriorityWeightAge=9"})
    assert text.splitlines()[1:] == ["# ours", "SchedulerType=sched/backfill", "PriorityWeightAge=9"]
    owned.replace(text)
    assert owned.records() == [record]
    later = record._replace(key='odd "key"\n', version=8)
    owned.replace(owned.candidate(later, {"PriorityWeightAge": "PriorityWeightAge=4"}))
    assert owned.records() == [record, later]
    assert owned.path.read_text().count("PriorityWeightAge=4\n") == 1


def test_where_else_a_key_is_set(owned: Owned) -> None:
    (found,) = owned.elsewhere(["PriorityWeightAge", "PriorityWeightQOS"])
    assert found == f"{owned.conf}:2 sets priorityweightqos"


@pytest.mark.parametrize("line", ["PriorityWeightAge=5 PriorityWeightQOS=4", "PriorityWeightAge=\\"])
def test_lines_that_hold_more_than_a_setting_are_not_taken_apart(owned: Owned, line: str) -> None:
    owned.path.write_text(line + "\n4\n")
    with pytest.raises(Refused, match="more than one setting"):
        owned.candidate(Record("k", 1, "", "", 0), {"PriorityWeightAge": "PriorityWeightAge=9"})


def test_a_file_that_is_edited_is_found(owned: Owned) -> None:
    assert owned.edited({"PriorityWeightAge": "PriorityWeightAge=5"}) == []
    assert owned.edited({"PriorityWeightAge": "PriorityWeightAge=6"}) == ["PriorityWeightAge=5"]
    owned.path.write_text("PriorityMaxAge=7-0\nSchedulerParameters=bf_window=9,bf_max_job_user=0\n")
    same = {
        "PriorityMaxAge": "PriorityMaxAge=7-00:00:00",
        "SchedulerParameters": "SchedulerParameters=bf_window=9",
    }
    assert owned.edited(same) == []


def test_a_file_that_is_gone_is_named_before_slurm_waits_for_it(owned: Owned) -> None:
    owned.path.unlink()
    with pytest.raises(Unreachable, match="is gone"):
        owned.records()


def test_files_that_include_each_other_end(owned: Owned) -> None:
    owned.path.write_text("Include slurm.conf\n")
    with pytest.raises(Unreachable, match="include each other"):
        owned.elsewhere(["x"])


# ---- nodes and jobs --------------------------------------------------------------------------------


def _nodes(*found: tuple[str, str, str, str]) -> list[dict[str, str]]:
    return [dict(zip(("NodeList", "Partition", "StateLong", "Gres"), one, strict=True)) for one in found]


def test_partitions_that_share_nodes_are_one_pool_and_others_are_their_own() -> None:
    layout = layout_of(
        _nodes(
            ("a1", "x*", "idle", "gpu:8"),
            ("a1", "y", "idle", "gpu:8"),
            ("a2", "y", "mixed-", "gpu:8"),
            ("b1", "z", "allocated", "gpu:4"),
            ("c1", "cpu", "idle", "(null)"),
        ),
        (),
    )
    assert [(vc.name, vc.nodes, vc.gpus_per_node) for vc in layout.cluster.vcs] == [
        ("x,y", 2, 8),
        ("z", 1, 4),
    ]
    assert layout.places == {"a1": (0, 0), "a2": (0, 1), "b1": (1, 0)}
    assert layout.homes == {"x": "x,y", "y": "x,y", "z": "z"}


@pytest.mark.parametrize("state", ["idle*", "down", "drained", "draining", "unknown*", "maint"])
def test_nodes_that_do_not_serve_are_no_capacity_unless_jobs_hold_them(state: str) -> None:
    found = _nodes(
        ("a1", "x*", "idle~", "gpu:8"), ("a10", "x*", state, "gpu:8"), ("a9", "x*", "idle", "gpu:8")
    )
    assert layout_of(found, ()).places == {"a1": (0, 0), "a9": (0, 1)}
    assert layout_of(found, ()).away == ("a10",)
    assert layout_of(found, {"a10"}).places == {"a1": (0, 0), "a9": (0, 1), "a10": (0, 2)}


def test_nodes_of_one_pool_with_different_gpus_are_refused() -> None:
    with pytest.raises(ConfigError, match="have 4 or 8 GPUs"):
        layout_of(_nodes(("a1", "x", "idle", "gpu:8"), ("a2", "x", "idle", "gpu:4")), ())


def test_no_node_at_all_is_said() -> None:
    with pytest.raises(Unreachable, match="no node with GPUs"):
        layout_of(_nodes(("a1", "x", "down", "gpu:8")), ())


_LAYOUT = layout_of(_nodes(("a1", "x", "idle", "gpu:8"), ("a2", "x", "idle", "gpu:8")), ())
_WAITS = Row("7", "PENDING", 1000, 1000, None, None, 0, None, "x", "u", "n", 4, (), 0)
_RUNS = replace(_WAITS, state="RUNNING", start_ms=3000, nodes=("a1",))


def _kinds(*looks: tuple[int, Row | None]) -> list[tuple[str, int, int | None]]:
    """Return the events of a job that is looked at several times: kind, time and what it ran."""
    jobs = Jobs()
    for now_ms, row in looks:
        jobs.look([] if row is None else [row], _LAYOUT, now_ms)
    found = jobs.events(0, 100)
    numbers = [event.number for event in found]
    assert numbers == sorted(set(numbers))
    return [(event.kind, event.time_ms, event.ran_ms) for event in found]


def test_a_life() -> None:
    ended = replace(_RUNS, state="COMPLETED", end_ms=8000)
    assert _kinds(
        (2000, _WAITS), (4000, _RUNS), (5000, _RUNS), (9000, ended), (9500, ended), (10_000, None)
    ) == [
        ("submit", 1000, None),
        ("start", 3000, None),
        ("finish", 8000, 5000),
    ]


def test_a_life_that_was_over_when_first_looked_at() -> None:
    ended = replace(_RUNS, state="TIMEOUT", end_ms=8000)
    assert [kind for kind, _, _ in _kinds((9000, ended))] == ["submit", "start", "finish"]


def test_a_requeue_between_two_looks() -> None:
    again = replace(_RUNS, submit_ms=6000, start_ms=7000, restarts=1)
    ended = replace(again, state="COMPLETED", end_ms=9000)
    assert _kinds((4000, _RUNS), (8000, again), (9500, ended)) == [
        ("submit", 1000, None),
        ("start", 3000, None),
        ("preempt", 6000, None),
        ("start", 7000, None),
        ("finish", 9000, 5000),
    ]


def test_cancelled_before_it_ran_and_gone_without_a_word() -> None:
    assert _kinds((2000, _WAITS), (4000, replace(_WAITS, state="CANCELLED", end_ms=3500)))[1:] == [
        ("cancel", 3500, None)
    ]
    assert _kinds((2000, _WAITS), (4000, None))[1:] == [("cancel", 4000, None)]


def test_who_is_held_or_depends_on_another_has_not_come_yet() -> None:
    held = replace(_WAITS, eligible_ms=None)
    assert _kinds((2000, held)) == []
    assert _kinds((2000, held), (5000, replace(_WAITS, eligible_ms=4000))) == [("submit", 4000, None)]


def test_jobs_that_nobody_could_hold_are_left_out_and_named() -> None:
    jobs = Jobs()
    jobs.look([replace(_WAITS, gpus=17), replace(_WAITS, label="8", gpus=0)], _LAYOUT, 2000)
    assert (jobs.events(0, 10), jobs.left_out) == ([], ("7",))


def test_uneven_gangs() -> None:
    assert _LAYOUT.held(9, ("a1", "a2"), {"a1": 1, "a2": 8}) == ((0, 1), (1, 8))
    assert _LAYOUT.held(9, ("a1", "a2"), {}) == ((0, 5), (1, 4))
    assert _LAYOUT.held(9, ("a1", "a2"), {"a1": 3, "a2": 3}) == ((0, 5), (1, 4))


# ---- what was before the first look ----------------------------------------------------------------

_HISTORY = """JobIDRaw|State|Submit|Start|End|ElapsedRaw|AllocTRES|Partition
5|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu=2|x
6|RUNNING|2024-01-01T00:00:00|2024-01-01T00:01:00|Unknown|60|gres/gpu=2|x
7|COMPLETED|2024-01-01T00:00:30|2024-01-01T00:01:00|2024-01-01T00:01:30|30|gres/gpu=99|x
"""


def test_jobs_of_the_past_are_told_once(tmp_path: Path) -> None:
    """Job 5 has ended and is still shown; 6 runs; 7 would not fit; each is told once or not at all."""
    path = tmp_path / "sacct.txt"
    path.write_text(_HISTORY)
    now_ms = 1_704_067_500_000  # five minutes later
    ended = replace(
        _RUNS, label="5", state="COMPLETED", submit_ms=now_ms - 300_000, start_ms=now_ms - 240_000
    )
    runs = replace(_RUNS, label="6", submit_ms=now_ms - 300_000, start_ms=now_ms - 240_000)
    jobs = Jobs()
    jobs.remember(events_of(load(path)), _LAYOUT)
    for _ in range(2):
        jobs.look([replace(ended, end_ms=now_ms - 180_000), runs], _LAYOUT, now_ms)
    assert [(event.kind, event.label) for event in jobs.events(0, 100)] == [
        *(("submit", "5"), ("start", "5"), ("finish", "5"), ("submit", "6"), ("start", "6"))
    ]
    assert jobs.events(0, 100)[2].ran_ms == 60_000


@dataclass
class _Slow:
    """Slurm's commands, of which sacct takes no more than so much at once."""

    most_ms: int
    asked: list[int] = field(default_factory=list)

    def ask(self, program: str, *words: str) -> str:
        begin, end = (datetime.fromisoformat(words[words.index(flag) + 1]) for flag in ("-S", "-E"))
        self.asked.append(round((end - begin).total_seconds() * 1000))
        if self.asked[-1] > self.most_ms:
            raise Unreachable("sacct: no answer in time.")
        return _HISTORY


def test_slices_that_take_too_long_are_halved() -> None:
    hour_ms = 3_600_000
    slow: Any = _Slow(2 * hour_ms)
    assert len(read_history(slow, 0, 8 * hour_ms, 8 * hour_ms)) == 2  # one job over and over, and 7
    assert [span // hour_ms for span in slow.asked] == [8, 4, 2, 2, 2, 2]
    with pytest.raises(Unreachable):
        read_history(_Slow(1), 0, 8 * hour_ms, 8 * hour_ms)  # type: ignore[arg-type]
