"""What a user tells of a job: its comment says it and nothing else does; nonsense is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import Trimtab
from trimtab.control.slurm_submit import make_ticket, sbatch_line
from trimtab.control.slurm_ticket import Foreign, Record, Ticket, make_service, read_comment, write_comment
from trimtab.errors import ConfigError

_NOW_MS = 1_796_000_000_000
_MS = st.integers(1, 4_000_000_000_000)
_INSTANTS = st.lists(st.integers(1, 4_000_000_000), min_size=1, max_size=3, unique=True).map(
    lambda found: tuple(1000 * one for one in sorted(found))
)


@st.composite
def _tickets(draw: st.DrawFn) -> Ticket:
    deadlines_ms = draw(st.one_of(st.just(()), _INSTANTS))
    worth = st.lists(st.integers(1, 1000), min_size=len(deadlines_ms), max_size=len(deadlines_ms))
    values = draw(st.one_of(st.just(()), worth.map(lambda found: tuple(sorted(found, reverse=True)))))
    kind = draw(st.sampled_from([None, "soft"])) if deadlines_ms else None
    return Ticket(
        make_service(kind, deadlines_ms, values),
        draw(st.one_of(st.none(), st.integers(1, 10**6).map(lambda seconds: 1000 * seconds))),
        draw(st.booleans()),
        draw(st.one_of(st.none(), st.sampled_from(["resnet50", "gpt-2.1_x"]))),
    )


_RECORDS = st.builds(
    Record,
    submit=st.one_of(st.none(), _MS),
    held=_MS,
    work=_MS,
    run=st.one_of(st.none(), _MS),
    ran=_MS,
    speed=st.integers(1, 3_000_000),
    first=st.one_of(st.none(), _MS),
    stopped=st.one_of(st.none(), _MS),
    losses=st.integers(0, 100),
    forgiven=_MS,
    share=st.one_of(st.just(()), st.tuples(st.integers(1, 500), st.integers(1, 10**6))),
    lease=st.one_of(st.just(()), st.tuples(_MS, _MS, _MS)),
    note=st.lists(st.integers(-(1 << 62), 1 << 62), max_size=3).map(tuple),
    promise=st.one_of(st.none(), _MS),
)


@given(ticket=_tickets(), record=_RECORDS)
def test_a_comment_tells_all_of_it(ticket: Ticket, record: Record) -> None:
    assert read_comment(write_comment(ticket, record)) == (ticket, record)


@given(ticket=_tickets(), record=_RECORDS, place=st.integers(0, 400), letter=st.characters(codec="utf-8"))
def test_a_changed_comment_tells_what_it_says_or_nothing(
    ticket: Ticket, record: Record, place: int, letter: str
) -> None:
    """One more letter anywhere: another comment that says exactly that, one of somebody else, or none."""
    text = write_comment(ticket, record)
    changed = text[: place % (len(text) + 1)] + letter + text[place % (len(text) + 1) :]
    try:
        found = read_comment(changed)
    except Foreign:
        return
    assert found is None or write_comment(*found) == changed


@pytest.mark.parametrize("text", ["", "trimtab", "nightly run", "Trimtab:1", "(null)", " trimtab:1"])
def test_comments_of_others(text: str) -> None:
    assert read_comment(text) is None


@pytest.mark.parametrize(
    "rest",
    [
        "2",
        "1;",
        "1;class=hard;deadline=2026-11-30T18:00:00Z",
        "1;class=best",
        "1;class=strict",
        "1;deadline=2026-11-30T18:00:00Z",
        "1;class=strict;deadline=2026-11-30 18:00",
        "1;class=strict;deadline=2026-11-31T18:00:00Z",
        "1;class=strict;deadline=2026-11-30T18:00:00Z/2026-12-01T18:00:00Z",
        "1;estimate=0",
        "1;estimate=1e3",
        "1;estimate=007",
        "1;estimate=5;estimate=6",
        "1;preempt=no",
        "1;model=a b",
        "1;losses=-1",
        "1;share=0/5",
        "1;share=5",
        "1;lease=1/2",
        "1;held=0",
        "1;colour=red",
        "1;preempt=yes;estimate=5",
        "1;note=" + "1/" * 3000 + "1",
    ],
)
def test_what_begins_like_a_comment_of_ours_and_is_none(rest: str) -> None:
    with pytest.raises(Foreign) as said:
        read_comment(f"trimtab:{rest}")
    assert "\n" not in str(said.value)


def test_a_run_that_is_told_twice_counts_once() -> None:
    once = Record().stop(1000, 500, 2_000_000)
    assert once.before(None) == (500, 1000)
    assert once.before(1000) == (0, 0)
    assert once.stop(1000, 700, 2_000_000).before(None) == (700, 1400)
    again = once.stop(9000, 50, 1_000_000)
    assert again.before(None) == (550, 1050)
    assert (again.losses, again.first) == (2, 1000)


# ---- the command -------------------------------------------------------------------------------------


def test_times_count_from_now() -> None:
    ticket = make_ticket(_NOW_MS, None, "2h/2026-12-01T00:00:00+01:00", "10/5", "40m", True, "vgg")
    assert write_comment(ticket, Record()) == (
        "trimtab:1;class=soft;deadline=2026-11-30T02:53:20Z/2026-11-30T23:00:00Z;value=10/5;estimate=2400;"
        "preempt=yes;model=vgg"
    )


_USUAL = {
    "kind": None,
    "deadline": None,
    "value": None,
    "estimate": None,
    "preemptable": False,
    "model": None,
}


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        ({"deadline": "soon"}, "must be a time such as"),
        ({"deadline": "2026-11-30"}, "with its zone"),
        ({"deadline": "2026-11-30T18:00:00"}, "with its zone"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "has passed"),
        ({"deadline": "0s"}, "1 s or longer"),
        ({"deadline": "2h/1h"}, "must be in order"),
        ({"deadline": "1h/2h", "kind": "strict"}, "has one deadline"),
        ({"deadline": "1h", "kind": "best"}, "has no deadlines"),
        ({"kind": "soft"}, "needs a deadline"),
        ({"kind": "hard", "deadline": "1h"}, "strict, soft or best"),
        ({"deadline": "1h", "value": "10/5"}, "one for each"),
        ({"deadline": "1h/2h", "value": "5/10"}, "must not rise"),
        ({"deadline": "1h", "value": "ten"}, "whole numbers"),
        ({"deadline": "1h", "estimate": "2h"}, "cannot meet"),
        ({"estimate": "-5s"}, "must be a time"),
        ({"estimate": "0"}, "1 s or longer"),
        ({"model": "a;b"}, "letters, digits"),
    ],
)
def test_what_cannot_be_wanted(told: dict[str, str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as said:
        make_ticket(_NOW_MS, **{**_USUAL, **told})  # type: ignore[arg-type]
    assert str(said.value).endswith("nothing was submitted.")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--comment=mine", "job.sh"],
        ["--comment", "mine", "job.sh"],
        ["-c4", "job.sh"],
        ["--cpus-per-gpu=4", "job.sh"],
        ["--wait", "job.sh"],
        ["--gpus=2", "--deadline=2h", "job.sh"],
        ["--gpus=2", ":", "--gpus=1", "job.sh"],
        [],
    ],
)
def test_what_sbatch_may_not_be_told(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="nothing was submitted"):
        sbatch_line(Ticket(), words)


def test_what_is_the_scripts_own_is_not_looked_at(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.touch()
    words = ["--gpus=2", str(script), "--comment", "mine", "-c", "4", "--wait"]
    assert sbatch_line(Ticket(preemptable=True), words) == [
        *("sbatch", "--hold", "--comment=trimtab:1;preempt=yes", "--requeue"),
        *words,
    ]
    with pytest.raises(ConfigError, match="preemptable"):
        sbatch_line(Ticket(preemptable=True), ["--no-requeue", str(script)])


def _sbatch(folder: Path, script: str) -> None:
    path = folder / "sbatch"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_submit_says_what_sbatch_says(
    tmp_path: Path, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    _sbatch(tmp_path, 'echo "Submitted batch job 7"; echo "$SLURM_CONF $@" > ' + str(tmp_path / "asked"))
    ran = trimtab("slurm submit --class soft --deadline 2h --conf /x/slurm.conf --gpus=2 --wrap 'sleep 3'")
    assert (ran.code, ran.out, ran.err) == (0, "Submitted batch job 7\n", "")
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("/x/slurm.conf --hold --comment=trimtab:1;class=soft;deadline=20")
    assert asked.endswith("Z --gpus=2 --wrap sleep 3\n")
    assert trimtab("slurm submit --format json --gpus=2 job.sh").json() == {
        "said": "Submitted batch job 7",
        "comment": "trimtab:1",
    }


def test_what_sbatch_refuses_is_one_line(
    tmp_path: Path, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    _sbatch(tmp_path, 'echo "a warning" >&2; echo "sbatch: error: no such partition" >&2; exit 1')
    ran = trimtab("slurm submit --gpus=2 job.sh")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "trimtab: sbatch: error: no such partition; nothing was submitted.\n"
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "sbatch: cannot be run" in trimtab("slurm submit --gpus=2 job.sh").err
