"""`--speeds` and `--models`: what they change, what is said of it, and that a journal keeps them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from commands import Trimtab
from trimtab.simulate.speed_files import open_speeds
from trimtab.studies.request import Request

# Two gangs that leave one GPU on each of two nodes, and one for which only these two are left.
JOBS = """job_id,submit_s,duration_s,gpus,model
x,0,1000,2,R
y,0,1000,2,R
z,1,10,2,R
"""
THROUGHPUTS = {
    "v100": {"('R', 1)": {"null": 5.0}, "('R', 2)": {"null": 10.0}},
    "v100_unconsolidated": {"('R', 2)": {"null": 8.0}},
}
SIMULATE = "simulate gangs.csv --policy fifo --nodes 2 --gpus-per-node 3 --placement relaxed"
SPEEDS = "--speeds speeds.json"


@pytest.fixture
def gangs(folder: Path) -> Path:
    (folder / "gangs.csv").write_text(JOBS)
    _write_speeds(folder, THROUGHPUTS)
    return folder


def _write_speeds(folder: Path, throughputs: dict[str, dict[str, dict[str, float]]]) -> None:
    """Write the file; a process reads one of a name only once, and all tests are in one."""
    (folder / "speeds.json").write_text(json.dumps(throughputs))
    open_speeds.cache_clear()


def _jct_s(folder: Path, trimtab: Trimtab, options: str) -> float:
    assert trimtab(f"{SIMULATE} --quiet --jobs-out out.csv {options}").code == 0
    with (folder / "out.csv").open() as lines:
        return {row["job_id"]: float(row["jct_s"]) for row in csv.DictReader(lines)}["z"]


def test_a_models_spread_speed_replaces_the_constant(gangs: Path, trimtab: Trimtab) -> None:
    """10 s at .5, at .25, and at 8 of 10 steps a second."""
    assert _jct_s(gangs, trimtab, "") == 20
    assert _jct_s(gangs, trimtab, "--spread-speed .25") == 40
    assert _jct_s(gangs, trimtab, f"--spread-speed .25 {SPEEDS}") == 12.5
    assert _jct_s(gangs, trimtab, f"{SPEEDS}@v100 --models draw") == 12.5


def test_what_is_known_is_said(gangs: Path, trimtab: Trimtab) -> None:
    (gangs / "gangs.csv").write_text(JOBS.replace("x,0,1000,2,R", "x,0,1000,2,r-50"))
    ran = trimtab(f"{SIMULATE} {SPEEDS} --format json")
    assert {name: ran.json()[name] for name in ("speeds", "models")} == {
        "speeds": "speeds.json",
        "models": "column",
    }
    said = "of 3 jobs 2 are known by their model, 0 by what they use, 1 not at all; it has 0 pairs"
    assert f"speeds speeds.json: {said} and the spread speed of 2 gangs.\n" in ran.err
    assert "1 models of the trace were not measured, most often 'r-50' (1 jobs).\n" in ran.err
    assert trimtab(f"{SIMULATE} {SPEEDS} --quiet --format json").err == ""
    assert trimtab(SIMULATE).err == ""


def test_compare_and_tune_take_them(gangs: Path, trimtab: Trimtab) -> None:
    compare = trimtab(f"compare {SIMULATE.split(maxsplit=1)[1]} {SPEEDS} --format json --quiet").json()
    simulate = trimtab(f"{SIMULATE} {SPEEDS} --format json --quiet").json()
    assert compare["runs"][0]["digest"] == simulate["digest"]
    tune = f"tune {SIMULATE.split(maxsplit=1)[1]} --at 1s --budget 2 --executor local --format json --quiet"
    costs = [trimtab(f"{tune} {more}").json()["verdict"]["cost_running"] for more in ("", SPEEDS)]
    assert costs[0] > costs[1]


EVALUATE = (
    "evaluate gangs.csv --policy fifo --window 0s..1h --nodes 2 --gpus-per-node 3 --placement relaxed "
    f"--budget 2 --lines fixed,selftune --executor local --quiet {SPEEDS} --models draw --seed 5 "
    "--journal out.jsonl"
)


def _two_models(folder: Path) -> None:
    several = {**THROUGHPUTS["v100"], "('S', 1)": {"null": 1.0}, "('S', 2)": {"null": 1.0}}
    apart = {**THROUGHPUTS["v100_unconsolidated"], "('S', 2)": {"null": 0.125}}
    _write_speeds(folder, {"v100": several, "v100_unconsolidated": apart})


def test_texts_and_pages_name_them_where_they_are_asked_for(gangs: Path, trimtab: Trimtab) -> None:
    asked = f"{SPEEDS} --models draw"
    assert "; speeds: speeds.json; models: draw; engine: " in trimtab(f"{SIMULATE} {asked}").out
    assert "speeds" not in trimtab(SIMULATE).out
    compare = f"compare {SIMULATE.split(maxsplit=1)[1]} --quiet --report page.html"
    for more, is_named in ((asked, True), ("", False)):
        assert trimtab(f"{compare} {more}").code == 0
        assert ("speeds speeds.json, models draw" in (gangs / "page.html").read_text()) == is_named
    ran = trimtab(EVALUATE.replace("--journal out.jsonl", "--report page.html"))
    assert ran.out.splitlines()[0].endswith("fifo; speeds: speeds.json; models: draw")
    assert "speeds speeds.json, models draw" in (gangs / "page.html").read_text().replace("<wbr>", "")


def test_each_seed_draws_its_models(gangs: Path, trimtab: Trimtab) -> None:
    """The gang that is spread runs at .8 or .125 of its speed, by its model: 12.5 s or 80."""
    _two_models(gangs)
    evaluate = EVALUATE.replace("fixed,selftune", "fixed").replace("--journal out.jsonl", "--format json")
    found = trimtab(f"{evaluate} --seeds 6").json()["lines"][0]["spread"]["jct_s_mean"]
    assert [round(3 * found[end] - 2000, 3) for end in ("min", "max")] == [12.5, 80]


def test_a_replay_draws_the_same_models(gangs: Path, trimtab: Trimtab) -> None:
    _two_models(gangs)
    assert trimtab(EVALUATE).code == 0
    assert trimtab("replay out.jsonl --executor local --quiet").code == 0


def test_a_replay_refuses_other_speeds(gangs: Path, trimtab: Trimtab) -> None:
    assert trimtab(EVALUATE).code == 0
    moved = (gangs / "out.jsonl").read_text().replace('"speeds.json"', '"other.json"')
    (gangs / "out.jsonl").write_text(moved)
    (gangs / "other.json").write_text(json.dumps(THROUGHPUTS | {"v100_unconsolidated": {}}))
    ran = trimtab("replay out.jsonl --executor local --quiet")
    assert ran.code == 1
    assert "speeds other.json: has changed since" in ran.err


def test_a_replay_refuses_a_way_to_find_models_that_there_is_not(gangs: Path, trimtab: Trimtab) -> None:
    """Before it looks at the trace."""
    assert trimtab(EVALUATE).code == 0
    wrong = (gangs / "out.jsonl").read_text().replace('"models":"draw"', '"models":"drawn"')
    (gangs / "out.jsonl").write_text(wrong)
    (gangs / "gangs.csv").unlink()
    ran = trimtab("replay out.jsonl --executor local --quiet")
    assert ran.code == 1
    assert "way to find models 'drawn'; did you mean 'draw'" in ran.err


def test_lucid_says_when_nobody_can_share(gangs: Path, trimtab: Trimtab) -> None:
    """The built-in speeds know no model, and without what jobs use there is nothing to go by."""
    lucid = SIMULATE.replace("fifo", "lucid")
    assert trimtab(f"{lucid}").err.endswith("none of them shares its GPUs; draw models with --models draw.\n")
    assert "shares" not in trimtab(f"{lucid} --models draw").err
    assert trimtab(f"{lucid} --quiet").err == ""


def test_a_journal_from_before_there_were_speeds_is_read(gangs: Path, trimtab: Trimtab) -> None:
    assert trimtab(EVALUATE).code == 0
    header = json.loads((gangs / "out.jsonl").read_text().splitlines()[0])
    for name in ("speeds", "speeds_sha256", "models"):
        del header["world"][name]
    world = Request.of(header).world
    assert (world.speeds, world.models) == ("builtin", "column")
