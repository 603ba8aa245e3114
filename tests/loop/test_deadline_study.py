"""The study of deadlines: its grid, its cells written down and resumed, and what they say together."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import ConfigError, InputError
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.report.ladder import ladder_page
from trimtab.studies.deadline_grid import AS_TOLD, LADDER, THIN_LADDER, Case, Grid, cluster_of
from trimtab.studies.deadline_results import cells_csv, compare, interval, summary_of, worst_of
from trimtab.studies.deadlines import CELLS, Entry, Study, jobs_of, run_study
from trimtab.traces.deadlines import load_of
from trimtab.traces.synthetic import generate
from trimtab.world import Seeds

SOURCE = "synthetic:philly?days=1&load=0.4&seed=3"
GRID = Grid(
    policies={"fifo": "fifo", "srtf": "srtf"},
    thin_policies={},
    baselines=("fifo",),
    loads=(1.2, 0.8),
    classes=("SLO",),
    mixes=("20/70/10",),
    nodes=("4x12x250",),
    gpus=16,
    noises=(0.0, 0.5),
    curve_noises=(0.0, 0.2),
    thin=0.1,
    seeds=2,
)


def study(grid: Grid = GRID, **entries: Entry) -> Study:
    trace = generate(SOURCE.removeprefix("synthetic:"))
    known = {name: Entry(name, find_policy(name).space.defaults) for name in ("fifo", "srtf")}
    return Study(SOURCE, trace.provenance.sha256, grid, {**known, **entries})


def timeless(line: str) -> dict[str, object]:
    return {name: value for name, value in json.loads(line).items() if name != "cpu_s"}


# ---- the grid ------------------------------------------------------------------------------------


def test_the_grid_is_a_product_and_its_centre_is_varied_one_axis_at_a_time() -> None:
    cases = replace(GRID, thin_policies={"slow": "srtf"}, thin_policies_share=0.05).cases()

    assert [(one.load, one.noise, one.curve_noise, one.thin) for one in cases] == [
        (1.2, 0.0, 0.0, 0.1),
        (0.8, 0.0, 0.0, 0.1),
        (1.2, 0.5, 0.0, 0.1),
        (1.2, 0.0, 0.2, 0.1),
        (1.2, 0.0, 0.0, 0.05),
    ]
    cells = list(replace(GRID, thin_policies={"slow": "srtf"}, thin_policies_share=0.05).cells())
    assert len(cells) == len(set(cells)) == 4 * 2 * 2 + 2 * 3
    assert {one.case.thin for one in cells if one.policy == "slow"} == {0.05}


def test_the_usual_grid_is_possible_and_its_policies_are_known_where_they_exist() -> None:
    Grid().check()
    for text in {**LADDER, **THIN_LADDER}.values():
        name, _, knobs = text.partition(":")
        if name in POLICIES:
            find_policy(name).space.parse(dict(pair.split("=") for pair in knobs.split(",") if pair))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loads = []", "loads is empty"),
        ("speed = 3", "speed is none of"),
        ("loads = 3", "loads = 3: it must be a list in brackets"),
        ('loads = ["a"]', "loads = 'a': it must be a number"),
        ("gpus = true", "gpus = True: it must be a whole number"),
        ("rule = 3", "rule = 3: it must be text in quotes"),
        ('nodes = ["8x24"]', "not GPUs x cores x GiB"),
        ('nodes = ["7x24x500"]', "no whole number of nodes"),
        ('nodes = ["8x24x5\u00b2"]', "not GPUs x cores x GiB"),
        (f'nodes = ["8x24x{"9" * 5000}"]', "not GPUs x cores x GiB"),
        ('nodes = ["8x9999999x500"]', "node 8x9999999x500: cores = 9999999: it must be a whole"),
        ('nodes = ["8x24x9999999999"]', "node 8x24x9999999999: memory = 9999999999: it must be GiB"),
        ('nodes = ["8x7x500"]', "node 8x7x500: cores = 7"),
        ("gpus = 960000000", "nodes = 120,000,000: at most 100,000"),
        ("gpus = 0", "gpus = 0: they make no whole number"),
        ("gpus = -96", "gpus = -96: they make no whole number"),
        (f"gpus = {'9' * 5000}", "beyond 64 bits"),
        ('classes = ["7/7"]', "must be weights"),
        ('mixes = ["x"]', "mix"),
        ('rule = "hard"', "rule 'hard'"),
        ('baselines = ["none"]', "baseline 'none'"),
        ("[policies]\nA = 3", "policies = {'A': 3}: it must be a table of names and texts"),
        ("loads = [", "grid"),
    ],
)
def test_a_grid_that_cannot_be_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises((ConfigError, InputError), match=said) as refusal:
        Grid.read(file).check()
    assert "\n" not in str(refusal.value)
    assert "nothing was run" in str(refusal.value)


# Every number of a grid -> the least and the most it may be.
NUMBERS = {
    "loads": (0.01, 100),
    "noises": (0, 1),
    "curve_noises": (0, 0.9),
    "thin": (1e-6, 1),
    "thin_policies_share": (1e-6, 1),
    "restart_cost_s": (0, 1e9),
    "adjust_cost_s": (0, 1e9),
    "seeds": (1, 1000),
}


def test_every_number_of_a_grid_is_here() -> None:
    usual = {name: getattr(Grid(), name) for name in Grid.__dataclass_fields__}
    first = {name: value[0] if isinstance(value, tuple) else value for name, value in usual.items()}
    assert {name for name, value in first.items() if isinstance(value, int | float)} == {*NUMBERS, "gpus"}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_its_range_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    low, high = NUMBERS[name]
    is_list, is_whole = isinstance(getattr(Grid(), name), tuple), name == "seeds"
    file = tmp_path / "grid.toml"

    def read(number: float) -> None:
        file.write_text(f"{name} = {[high, number] if is_list else number}")
        Grid.read(file).check()

    for number in (low, high):
        read(number)
    wrong = (low - 1, high + 1) if is_whole else (low - 1e-7, high * 1.001, math.nan, math.inf, -math.inf)
    for number in wrong:
        with pytest.raises(ConfigError, match=rf"grid: {name} = .*: it must be .*; nothing was run\."):
            read(number)


def test_a_grid_file_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('loads = [1]\nrestart_cost_s = "chronus"\n[policies]\nA = "fifo"\n')
    found = Grid.read(file)

    assert (found.loads, found.policies, found.restart_cost_s) == ((1.0,), {"A": "fifo"}, "chronus")
    assert found.classes == Grid().classes


def test_a_node_kind_is_gpus_cores_and_memory() -> None:
    (vc,) = cluster_of("16x48x1000", 96).vcs
    assert (vc.nodes, vc.gpus_per_node, vc.cores_per_node) == (6, 16, 48)
    assert vc.memory_mib_per_node == 1_024_000


# ---- the jobs of a case --------------------------------------------------------------------------


def test_the_jobs_of_a_case_are_at_its_load_and_differ_by_seed_alone() -> None:
    trace = generate(SOURCE.removeprefix("synthetic:"))
    case = Case(0.9, "MIX2", "20/70/10", "4x12x250", 0.0, 0.0, 0.5)
    one, again, other = (jobs_of(trace, "tight", 16, case, None, Seeds(seed)).jobs for seed in (1, 1, 2))

    assert one.equals(again)
    assert not one.equals(other)
    assert load_of(replace(trace, jobs=one), 16) == pytest.approx(0.9, rel=1e-3)
    assert {"strict", "soft", "best"} == set(one["service_class"])
    told = jobs_of(trace, "tight", 16, case._replace(classes=AS_TOLD), None, Seeds(1))
    assert "service_class" not in told.jobs.columns


# ---- cells, written down and resumed -------------------------------------------------------------


def test_a_study_goes_on_where_it_was_and_gives_the_same(tmp_path: Path) -> None:
    whole = run_study(study(), tmp_path / "whole", 1)
    lines = (tmp_path / "whole" / CELLS).read_text().splitlines(keepends=True)
    assert len(lines) == 1 + len(list(GRID.cells())) == 1 + len(whole)

    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / CELLS).write_text("".join(lines[:5]) + lines[5][:40])
    shares: list[float] = []
    again = run_study(study(), torn, 1, lambda text, share: shares.append(share))

    after = (torn / CELLS).read_text().splitlines(keepends=True)
    assert after[:5] == lines[:5]  # to the CPU time: they were not run again
    assert list(map(timeless, after)) == list(map(timeless, lines))
    assert [one.cell for one in again] == [one.cell for one in whole]
    assert len(shares) == len(lines) - 5
    assert shares[-1] == 1
    finished = (torn / CELLS).read_bytes()
    run_study(study(), torn, 1)
    assert (torn / CELLS).read_bytes() == finished


def test_worker_processes_give_the_same_cells(tmp_path: Path) -> None:
    small = replace(GRID, loads=(1.2,), noises=(0.0,), curve_noises=(0.0,))
    here, there = (run_study(study(small), tmp_path / str(count), count) for count in (1, 2))

    assert [(one.cell, one.metrics) for one in here] == [(one.cell, one.metrics) for one in there]


def test_cells_of_another_study_are_refused_and_kept(tmp_path: Path) -> None:
    run_study(study(replace(GRID, seeds=1, loads=(1.2,))), tmp_path, 1)
    before = (tmp_path / CELLS).read_bytes()

    with pytest.raises(ConfigError, match="its grid differs"):
        run_study(study(), tmp_path, 1)
    assert (tmp_path / CELLS).read_bytes() == before


@pytest.mark.parametrize("text", [b"not a study\n", b"3\n", b"[]\n", b"\xff\xfe\n"])
def test_what_no_study_wrote_is_refused_in_one_line_and_kept(text: bytes, tmp_path: Path) -> None:
    (tmp_path / CELLS).write_bytes(text)
    with pytest.raises(InputError, match="not what a study wrote") as refusal:
        run_study(study(), tmp_path, 1)
    assert "\n" not in str(refusal.value)
    assert (tmp_path / CELLS).read_bytes() == text


@pytest.mark.parametrize(("name", "value"), [("format", None), ("format", 1), ("trimtab", "0.0.1")])
def test_cells_of_another_version_are_never_mixed(name: str, value: object, tmp_path: Path) -> None:
    """Not even if they lack what a line has today: the first line decides."""
    small = study(replace(GRID, seeds=1, loads=(1.2,)))
    run_study(small, tmp_path, 1)
    first, *rest = (tmp_path / CELLS).read_text().splitlines()
    header = {key: one for key, one in {**json.loads(first), name: value}.items() if one is not None}
    old = [json.dumps(header), *(line.replace("events", "steps") for line in rest)]
    (tmp_path / CELLS).write_text("\n".join(old) + "\n")
    before = (tmp_path / CELLS).read_bytes()

    with pytest.raises(ConfigError, match=f"its {name} differs"):
        run_study(small, tmp_path, 1)
    assert (tmp_path / CELLS).read_bytes() == before


HEADER = json.dumps(study().header())
CELL = {**GRID.cases()[0]._asdict(), "policy": "fifo", "seed": 0, "failed": "", "cpu_s": 0.1, "events": 3}


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00",
        b"\xff\n",
        b"5\n",
        b"hello",
        b"[]\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        b"9" * 5000 + b"\n",
        *(
            f"{HEADER}\n{line}\n".encode()
            for line in (
                "5",
                "[]",
                "{}",
                json.dumps(CELL),
                json.dumps({**CELL, "metrics": 5}),
                json.dumps({**CELL, "metrics": {"jobs": "many"}}),
                json.dumps({**CELL, "metrics": {"jobs": math.nan}}),
                json.dumps({**CELL, "metrics": {}, "seed": []}),
                json.dumps({**CELL, "metrics": {}, "seed": 7}),
                json.dumps({**CELL, "metrics": {}, "load": 9}),
                json.dumps({**CELL, "metrics": {}, "failed": None}),
                json.dumps({**CELL, "metrics": {}, "cpu_s": "1"}),
                json.dumps({**CELL, "metrics": {}, "events": 1e999}),
            )
        ),
    ],
    ids=lambda data: str(data[-60:]),
)
def test_cells_that_no_study_wrote_are_refused_and_kept(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / CELLS
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not what a study wrote; give another --out; nothing was run"):
        run_study(study(), tmp_path, 1)
    assert path.read_bytes() == data


def test_a_cell_that_fails_says_why_and_stops_nothing(tmp_path: Path) -> None:
    grid = replace(GRID, policies={"fifo": "fifo", "gone": "gone"}, loads=(1.2,), seeds=1)
    gone = Entry("gone", find_policy("fifo").space.defaults)
    done = run_study(study(grid, gone=gone), tmp_path, 1)

    found = summary_of(study(grid, gone=gone), done)
    assert len(found.failed) == 3
    assert "unknown policy 'gone'" in found.failed[0][1]
    assert found.means["fifo"]["jct_s_mean"] is not None
    assert found.means["gone"]["jct_s_mean"] is None
    assert "Cells that failed" in ladder_page(found)


# ---- what they say together ----------------------------------------------------------------------

EASY, HARD = Case(0.7, "SLO", "m", "n", 0, 0, 1), Case(1.3, "SLO", "m", "n", 0, 0, 1)


def test_differences_are_taken_inside_cases_and_seeds() -> None:
    mine = {EASY: {0: 0.02, 1: 0.04}, HARD: {0: 0.30, 1: 0.10, 2: 0.50}}
    base = {EASY: {0: 0.04, 1: 0.08}, HARD: {0: 0.20, 1: 0.20}}
    found = compare(mine, base, rate=True)

    assert found is not None
    # Seed 0: -0.02 and +0.10; seed 1: -0.04 and -0.10; seed 2 has no partner.
    assert found.difference == pytest.approx((0.04 - 0.07) / 2)
    half = 12.7062 * np.std([0.04, -0.07], ddof=1) / 2**0.5
    assert found.interval == pytest.approx((-0.015 - half, -0.015 + half), rel=1e-4)
    assert found.change == pytest.approx((-0.5 + 0.0) / 2)
    # The mean of HARD is 0.2 in both.
    assert (found.by_ratio, found.better, found.tied, found.worse) == (2, 1, 1, 0)


@pytest.mark.parametrize(
    ("mine", "counts"), [(0.0039, "100"), (0.004, "010"), (0.0059, "010"), (0.0062, "001")]
)
def test_where_a_baseline_hardly_violates_the_difference_counts(mine: float, counts: str) -> None:
    found = compare({EASY: {0: mine}}, {EASY: {0: 0.004}}, rate=True)

    assert found is not None
    assert (found.change, found.by_ratio, found.interval) == (None, 0, None)
    assert f"{found.better}{found.tied}{found.worse}" == counts
    assert compare({EASY: {0: mine}}, {HARD: {0: 0.004}}, rate=True) is None


def test_times_are_compared_by_ratio_however_small() -> None:
    found = compare({EASY: {0: 0.002}}, {EASY: {0: 0.004}}, rate=False)

    assert found is not None
    assert (found.change, found.better, found.tied, found.worse) == (-0.5, 1, 0, 0)


@pytest.mark.parametrize("rate", [True, False])
def test_a_tie_is_neither_better_nor_worse_whatever_the_value(rate: bool) -> None:
    values = {EASY: {0: 0.0, 1: 0.0}, HARD: {0: 0.3, 1: 0.1}}
    found = compare(values, values, rate=rate)

    assert found is not None
    assert (found.better, found.tied, found.worse) == (0, 2, 0)


def test_every_step_of_the_ladder_changes_the_engine_or_one_idea_of_the_step_before() -> None:
    """Knobs that differ between neighbours from `EDF, safe` on: one idea may take two."""
    steps = {name: text for name, text in LADDER.items() if text.startswith("sensascale")}
    names = list(steps)
    knobs = []
    for text in steps.values():
        policy, _, told = text.partition(":")
        space = find_policy(policy).space
        knobs.append(space.parse(dict(pair.split("=") for pair in told.split(",") if pair)))
    changed = {
        name: {knob for knob in after if before[knob] != after[knob]}
        for name, before, after in zip(names[1:], knobs, knobs[1:], strict=False)
    }
    assert changed == {
        "LST, all kept": {"order", "urgent"},  # urgent says nothing beside edf
        "LST, lost last": {"hopeless"},
        "LST, urgent": {"urgent"},
        "LST": {"be_order"},
        "+pairing": {"pair_scope"},
        "+free pool": {"free_pool"},
        "+adjustment": {"adjust"},
        "+rescue": {"preempt"},
        "+slack": {"preempt", "max_evictions"},
        "+time left": {"order", "urgent"},
        "sensascale-plus": {"admission", "overrun"},
    }


def test_the_worst_cases_are_named_the_worst_first() -> None:
    mine = {EASY: {0: 0.5}, HARD: {0: 0.9}, HARD._replace(load=2.0): {0: 0.1}}
    base = {EASY: {0: 0.4}, HARD: {0: 0.2}, HARD._replace(load=2.0): {0: 0.3}}

    assert [one.case for one in worst_of(mine, base)] == [HARD.name, EASY.name]
    assert HARD.name == "load 1.3, SLO, mix m, node n, thinned to 1"


def test_an_interval_of_three_values() -> None:
    # t(2) at 97.5 % is 4.3027; the standard deviation of 1, 2, 3 is 1.
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), rel=1e-4)
    assert interval([1.0]) is None


def test_the_summary_the_table_and_the_page_tell_of_every_cell(tmp_path: Path) -> None:
    done = run_study(study(), tmp_path, 1)
    found = summary_of(study(), done)

    lines = cells_csv(done).splitlines()
    assert len(lines) == 1 + len(done)
    assert lines[0].startswith("load,classes,mix,node,noise,curve_noise,thin,policy,seed,failed,")
    assert [duel.policy for duel in found.duels] == ["srtf"]
    assert found.duels[0].cases == 2
    lost = [one.metrics["slo_violation_rate_weighted"] for one in done if one.cell.policy == "srtf"]
    assert found.means["srtf"]["slo_violation_rate_weighted"] == pytest.approx(np.mean(lost[:4]))
    assert set(found.variations["fifo"]) == {"centre", "run times off by 0.5", "curves off by 0.2"}
    told = ("slo_violation_rate_weighted", "jct_s_mean", "queue_s_mean")
    means = {name: found.means["srtf"][name] for name in told}
    assert found.axes["srtf"] == dict.fromkeys(("mix 20/70/10", "node 4x12x250"), means)
    noisy = [one.metrics for one in done if one.cell.policy == "srtf" and one.cell.case.noise == 0.5]
    assert found.variations["srtf"]["run times off by 0.5"] == {
        name: pytest.approx(np.mean([one[name] for one in noisy])) for name in told
    }
    page = ladder_page(found)
    assert page == ladder_page(summary_of(study(), run_study(study(), tmp_path, 1)))
    for text in ("Against fifo", "By load, by mix", "run times off by 0.5", "Classes SLO", "Strict jobs"):
        assert text in page
