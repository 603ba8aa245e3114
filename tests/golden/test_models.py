"""Which model each job trains, from a trace's columns or drawn, and what that does to spread gangs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from trimtab.cluster import Cluster
from trimtab.errors import InputError, UnknownName
from trimtab.policies.catalog import find_policy
from trimtab.profile import Profile
from trimtab.simulate.models import assign_models, notes_of
from trimtab.simulate.run import World, simulate
from trimtab.simulate.speed import BUILTIN, SpeedTable
from trimtab.simulate.speed_files import open_speeds
from trimtab.simulate.workload import Workload, profiles_of
from trimtab.traces import table
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

SEEDS = Seeds(3)
R, L = ("R", False), ("L", False)
TABLE = SpeedTable(
    "ours",
    pairs={(R, L): (900_000, 600_000)},
    spread={"R": ((2, 800_000), (8, 500_000)), "L": ((2, 100_000),)},
    profiles=((1, Profile("R", gmem_mib=900)), (3, Profile("L", amp=True))),
)


def trace_of(folder: Path, text: str) -> Trace:
    path = folder / "jobs.csv"
    path.write_text(text)
    return table.load(path)


def numbered(folder: Path, count: int) -> Trace:
    rows = "".join(f"j{number},{number},60,{1 + number % 4}\n" for number in range(count))
    return trace_of(folder, f"job_id,submit_s,duration_s,gpus\n{rows}")


def test_profiles_from_columns(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,dataset,batch_size,amp,gpu_util,gmem_util,gmem\n"
        "a,0,9,1,R,I,32,1,50.5,20,3000.4\n"
        "b,1,9,1,L,,,0,,,\n"
        "c,2,9,1,,,,,,,\n"
        "d,3,9,1,,I,32,,10,5,\n",
    )
    assert profiles_of(trace) == [
        Profile("R/I/32", 50.5, 20.0, 3000, True),
        Profile("L"),
        None,
        Profile(None, 10.0, 5.0),
    ]
    assert [one.profile for one in Workload.of(trace, 500_000).facts] == profiles_of(trace)


def test_a_trace_without_such_columns_has_no_profiles(tmp_path: Path) -> None:
    assert profiles_of(numbered(tmp_path, 3)) == [None] * 3


def test_impossible_values_are_not_known_and_counted(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,gpu_util,gmem_util,gmem_mib,amp,spread_speed\n"
        "a,0,9,1,101,-1,-5,2,0\n"
        "b,1,9,1,100,0,0,1,1\n"
        "c,2,9,1,900,x,,,1.5\n",
    )
    assert profiles_of(trace) == [None, Profile(None, 100.0, 0.0, 0, True), None]
    assert [one.spread_ppm for one in Workload.of(trace, 400_000).facts] == [400_000, 1_000_000, 400_000]
    assert trace.provenance.notes[:5] == (
        "amp is no number from 0 to 1 in 1 rows: taken as not known.",
        "gpu_util is no number from 0 to 100 in 2 rows: taken as not known.",
        "gmem_util is no number from 0 to 100 in 2 rows: taken as not known.",
        "gmem_mib is no number from 0 to 1e+09 in 1 rows: taken as not known.",
        "spread_speed is no number from 1e-06 to 1 in 2 rows: taken as not known.",
    )


NUMBERS = ["cpus", "memory_gib", "batchsize", "amp", "gpu_util", "gmem_util", "gmem_mib", "spread_speed"]


@pytest.mark.parametrize("odd", ["35%", "yes", "12 GB", '"0,5"', "inf", "-1", "1e99"])
@pytest.mark.parametrize("column", NUMBERS)
def test_what_is_no_number_is_not_known_and_counted(column: str, odd: str, tmp_path: Path) -> None:
    """The first row, without a submit time, is left out before; the last says nothing, which is no error."""
    trace = trace_of(
        tmp_path,
        f"job_id,submit_s,duration_s,gpus,{column}\nx,,9,1,1\na,0,9,1,1\nb,1,9,1,{odd}\nc,2,9,1,\n",
    )
    assert trace.jobs[column].to_list() == [1, None, None]
    (note,) = trace.provenance.notes
    assert note.startswith(f"{column} is no number from ")
    assert note.endswith(" in 1 rows: taken as not known.")


def test_a_converted_trace_keeps_them(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,dataset,batchsize,amp,gpu_util,gmem_util,gmem,spread_speed\n"
        "a,0,9,2,R,I,32,1,50.5,20,3000,0.25\n",
    )
    for name in ("again.csv", "again.parquet"):
        table.save(trace, tmp_path / name)
        assert table.load(tmp_path / name).jobs.equals(trace.jobs)


def test_spread_speeds_of_models_replace_the_constant(tmp_path: Path) -> None:
    """R: .8 on 2 to 7 GPUs, .5 from 8 on; L: .1. A job's own column comes first; others have the constant."""
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,spread_speed\n"
        "a,0,9,1,R,\nb,0,9,2,R,\nc,0,9,6,R,\nd,0,9,16,R,\ne,0,9,2,L,\nf,0,9,2,L,.7\ng,0,9,4,stranger,\n",
    )
    found = assign_models(trace, TABLE, "column", SEEDS)
    spread = [one.spread_ppm for one in Workload.of(found.trace, 400_000).facts]
    assert spread == [400_000, 800_000, 800_000, 500_000, 100_000, 700_000, 400_000]
    assert (found.measured, found.by_use, found.spread) == (6, 0, 4)
    assert assign_models(found.trace, TABLE, "column", SEEDS).trace.jobs.equals(found.trace.jobs)


def test_a_spread_gang_takes_as_long_as_its_model_says(tmp_path: Path) -> None:
    """10 s of work on 2 GPUs, one on each of two nodes of which the other two are taken."""
    text = "job_id,submit_s,duration_s,gpus,model\nx,0,1000,2,R\ny,0,1000,2,R\nz,1,10,2,{}\n"
    for model, jct_s in (("R", 12.5), ("L", 100.0)):
        found = assign_models(trace_of(tmp_path, text.format(model)), TABLE, "column", SEEDS)
        for engine in ("auto", "reference"):
            world = World(placement="relaxed", engine=engine)
            knobs = find_policy("fifo").space.defaults
            jobs = simulate(found.trace, Cluster.pool(2, 3), "fifo", knobs, world).jobs
            assert dict(zip(jobs["job_id"], jobs["jct_s"], strict=True))["z"] == jct_s


def test_draws_depend_on_the_job_alone(tmp_path: Path) -> None:
    whole = numbered(tmp_path, 400)
    drawn = assign_models(whole, TABLE, "draw", SEEDS).trace
    again = assign_models(whole, TABLE, "draw", SEEDS).trace
    other = assign_models(whole, TABLE, "draw", Seeds(4)).trace
    assert drawn.jobs.equals(again.jobs)
    assert not drawn.jobs.equals(other.jobs)
    keep = np.arange(400) % 3 > 0
    fewer = assign_models(whole.select(keep), TABLE, "draw", SEEDS).trace
    assert fewer.jobs.equals(drawn.select(keep).jobs)


def test_draws_follow_the_weights(tmp_path: Path) -> None:
    profiles = profiles_of(assign_models(numbered(tmp_path, 2000), TABLE, "draw", SEEDS).trace)
    assert set(profiles) == {one for _, one in TABLE.profiles}
    share = profiles.count(TABLE.profiles[0][1]) / 2000
    assert abs(share - 1 / 4) < 4 * (0.25 * 0.75 / 2000) ** 0.5


def test_a_draw_replaces_what_the_columns_said(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,dataset,batchsize,amp,gpu_util,gmem_util,gmem,sharescore\n"
        "a,0,9,1,X,I,32,1,50,20,3000,2\n",
    )
    found = assign_models(trace, BUILTIN, "draw", SEEDS)
    assert profiles_of(found.trace)[0] in [one for _, one in BUILTIN.profiles]
    assert (found.measured, found.by_use) == (0, 1)


def test_nothing_known_is_refused(tmp_path: Path) -> None:
    nothing = numbered(tmp_path, 3)
    with pytest.raises(
        InputError, match=r"no column `model`, nor .*; draw models with --models draw; nothing"
    ):
        assign_models(nothing, TABLE, "column", SEEDS)
    wrong = trace_of(
        tmp_path, "job_id,submit_s,duration_s,gpus,model\na,0,9,1,R50\nb,0,9,1,r/I\nc,0,9,1,r/I\n"
    )
    with pytest.raises(
        InputError, match=r"none of the trace's 2 models .* 'r/I' \(2 jobs, the nearest is 'R'"
    ):
        assign_models(wrong, TABLE, "column", SEEDS)
    with pytest.raises(UnknownName, match="did you mean 'draw'"):
        assign_models(nothing, TABLE, "drawn", SEEDS)


def test_what_a_job_uses_is_enough(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, "job_id,submit_s,duration_s,gpus,gpu_util,gmem_util\na,0,9,1,20,5\nb,1,9,1,9,\n"
    )
    found = assign_models(trace, TABLE, "column", SEEDS)
    assert (found.measured, found.by_use) == (0, 1)
    assert (
        "of 2 jobs 0 are known by their model, 1 by what they use, 1 not at all" in notes_of(found, TABLE)[0]
    )


def test_the_enriched_trace_and_the_measured_pairs(shared: Path) -> None:
    """10 of the 66 configurations were in no pair: they are known by what they use."""
    trace = table.load(shared / "peers/philly_2w_enriched.csv.gz")
    speeds = open_speeds(str(shared / "data/lucid/colocate_info.csv.gz"))
    found = assign_models(trace, speeds, "column", SEEDS)
    assert len(set(profiles_of(found.trace))) == 66
    assert (found.measured + found.by_use, len(found.strangers)) == (13_085, 10)
    absent = {name.split("/")[0] for (name, _), _ in found.strangers}
    assert absent == {"BERT", "ResNet50", "Transformer"}
    with gzip.open(shared / "peers/philly_2w_enriched.csv.gz", "rt") as rows:
        next(rows)
        scores = [int(row.rstrip().rsplit(",", 1)[1]) for row in rows]
    mine = [BUILTIN.score(profile) for profile in profiles_of(trace) if profile is not None]
    assert sum(score == label for score, label in zip(mine, scores, strict=True)) / len(mine) > 0.8
