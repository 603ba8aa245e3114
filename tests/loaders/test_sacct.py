"""Slurm's accounting, with the odd inputs operators have reported: each is a small table of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from trimtab.errors import InputError
from trimtab.traces import sacct
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace

HEADER = (
    "JobID|JobIDRaw|JobName|User|Partition|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|ReqTRES"
    "|ReqMem|NNodes"
)
DAY = "2024-01-01T00:0"
Sacct = Callable[..., Trace]


def row(job: str = "10", **fields: str) -> str:
    """A completed one-minute job on two GPUs, but for what is said."""
    values = {
        "JobID": job, "JobIDRaw": job.split("_")[0], "JobName": "train", "User": "u1", "Partition": "gpu",
        "State": "COMPLETED", "Submit": f"{DAY}0:00", "Start": f"{DAY}1:00", "End": f"{DAY}2:00",
        "Elapsed": "00:01:00", "Timelimit": "01:00:00", "AllocTRES": "cpu=4,gres/gpu=2,mem=8G,node=1",
        "ReqTRES": "gres/gpu=2", "ReqMem": "", "NNodes": "1", **fields,
    }  # fmt: skip
    return "|".join(values[name] for name in HEADER.split("|"))


def pending(job: str, **fields: str) -> str:
    none = {"State": "PENDING", "Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00", "AllocTRES": ""}
    return row(job, **{**none, **fields})


@pytest.fixture
def read(tmp_path: Path) -> Sacct:
    def _read(*rows: str, header: str = HEADER, zone: str | None = None) -> Trace:
        path = tmp_path / "sacct.txt"
        path.write_text("\n".join([header, *rows]) + "\n")
        trace = load(str(path), zone=zone)
        assert trace.provenance.source.startswith("sacct:")
        made = trace.provenance
        left_out = sum(item.count for item in made.left_out)
        assert made.rows + made.expanded == len(trace) + trace.unrun.height + left_out + made.joined
        return trace

    return _read


def test_a_plain_job(read: Sacct) -> None:
    trace = read(row("10"))
    job = trace.jobs.row(0, named=True)
    assert job["duration_ms"] == 60_000
    assert job["gpus"] == 2
    assert job["cpus"] == 4.0
    assert job["memory_gib"] == 8.0
    assert job["limit_ms"] == 3_600_000
    assert job["start_ms"] - job["submit_ms"] == 60_000
    assert (job["vc"], job["user"], job["state"]) == ("gpu", "u1", "COMPLETED")
    assert trace.show(trace.span_ms[0]) == "2024-01-01 00:00:00"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("", None),
        ("30", 1_800_000),
        ("30:00", 1_800_000),
        ("2-12", 60 * 3_600_000),
        ("1-02:04", 26 * 3_600_000 + 240_000),
        ("1-02:03:04", 26 * 3_600_000 + 184_000),
        ("7-0", 7 * 86_400_000),
        ("00:05:00", 300_000),
    ],
)
def test_time_limits(read: Sacct, text: str, ms: int | None) -> None:
    trace = read(row("10", Timelimit=text), row("11"))
    assert trace.jobs["limit_ms"].to_list() == [ms, 3_600_000]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("2-01:24:56", 177_896_000), ("01:09:48", 4_188_000), ("35:45.742", 2_145_742), ("00:00.018", 18)],
)
def test_elapsed(read: Sacct, text: str, ms: int) -> None:
    assert read(row("10", Elapsed=text)).column("duration_ms").tolist() == [ms]


@pytest.mark.parametrize("start", ["None", "", "Unknown", "1970-01-01T00:00:00"])
def test_cancelled_while_pending_is_an_arrival_that_never_ran(read: Sacct, start: str) -> None:
    never = row("11", State="CANCELLED by 32874", Start=start, Elapsed="00:00:00", AllocTRES="")
    trace = read(row("10"), never)
    assert trace.labels("job_id") == ["10"]
    assert trace.unrun.select("job_id", "state", "start_ms").row(0) == ("11", "CANCELLED", None)


def test_pending_and_running_have_no_known_run(read: Sacct) -> None:
    trace = read(row("10"), pending("11"), row("12", State="RUNNING", End="Unknown", Elapsed="00:05:00"))
    assert trace.unrun["job_id"].to_list() == ["11", "12"]
    assert trace.unrun["duration_ms"].to_list() == [None, None]
    assert trace.unrun["start_ms"].null_count() == 1


def test_a_pending_array_stands_for_its_tasks(read: Sacct) -> None:
    trace = read(row("10"), pending("57829110_[5-100]"), pending("99_[1,3,5-9:2%4]"))
    assert trace.unrun.height == 96 + 5
    assert trace.unrun["job_id"].to_list()[-5:] == ["99_1", "99_3", "99_5", "99_7", "99_9"]
    assert trace.provenance.expanded == 95 + 4


@pytest.mark.parametrize("tasks", ["1-9999999999", "5-1", "1-5:0", "1,2,...", ""])
def test_an_array_list_that_cannot_be_is_left_out(read: Sacct, tasks: str) -> None:
    trace = read(row("10"), pending(f"11_[{tasks}]"))
    assert sum(trace.provenance.left_out_counts().values()) == 1
    assert trace.unrun.is_empty()


def test_array_tasks_are_keyed_by_their_raw_id(read: Sacct) -> None:
    """The last task of an array carries the array's own id as raw id."""
    tasks = [row("1043074_91", JobIDRaw="1043166"), row("1043074_92", JobIDRaw="1043074")]
    trace = read(*tasks)
    assert trace.labels("job_id") == ["1043074_91", "1043074_92"]


def test_parts_of_a_heterogeneous_job_are_one_gang(read: Sacct) -> None:
    parts = [
        row("123+0", JobIDRaw="123", AllocTRES="gres/gpu=4"),
        row("123+1", JobIDRaw="124", Elapsed="00:03:00"),
    ]
    trace = read(*parts)
    assert trace.column("gpus").tolist() == [6]
    assert trace.column("duration_ms").tolist() == [180_000]
    assert trace.provenance.joined == 1


def test_steps_are_left_out_and_counted(read: Sacct) -> None:
    steps = [row(f"10.{step}", JobIDRaw=f"10.{step}") for step in ("batch", "extern", "0", "interactive")]
    steps += [row("11_4.batch", JobIDRaw="12.batch"), row("13+0.0", JobIDRaw="13.0")]
    trace = read(row("10"), *steps)
    assert len(trace) == 1
    assert trace.provenance.left_out_counts() == {"job step": 6}


def test_requeues_are_one_job_from_its_first_submit(read: Sacct) -> None:
    """Four rows: three requeued runs of one minute and one of three; submitted once, at 00:00."""
    runs = [
        row("9", State="REQUEUED", Submit=f"{DAY}{at}:00", Start=f"{DAY}{at}:30", End=f"{DAY}{at + 1}:30")
        for at in (0, 2, 4)
    ]
    last = row("9", Submit=f"{DAY}6:00", Start=f"{DAY}6:30", End=f"{DAY}9:30", Elapsed="00:03:00")
    trace = read(*runs, last)
    job = trace.jobs.row(0, named=True)
    assert (job["duration_ms"], job["state"]) == (360_000, "COMPLETED")
    assert trace.show(job["submit_ms"]) == "2024-01-01 00:00:00"
    assert trace.provenance.joined == 3
    waiting = read(*runs, pending("9", Submit=f"{DAY}6:00"), row("10"))
    assert waiting.unrun["job_id"].to_list() == ["9"]


def test_the_last_snapshot_of_a_run_wins(read: Sacct) -> None:
    early = row("9", State="RUNNING", End="Unknown", Elapsed="00:00:10")
    trace = read(early, row("9"), pending("9"))
    assert trace.column("duration_ms").tolist() == [60_000]
    assert trace.provenance.left_out_counts() == {"the same run again, from an earlier snapshot": 1}


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:k80:4(IDX:0-3)", 4),
        ("gpu:4", 4),
        ("gpu", 1),
        ("gpu:0", 0),
        ("gpu:0(IDX:N/A)", 0),
        ("gpu:a100:4,gpu:k80:2", 6),
        ("gres:gpu:2", 2),
        ("cpu=8,gres/gpu=8,gres/gpu:a100=8", 8),
        ("gres/gpu:a100=8,gres/gpu=8,mem=1G", 8),
        ("gres/gpu:a100=4,gres/gpu:h100=2", 6),
        ("gres/shard=4", 0),
        ("cpu=8,mem=64G", 0),
    ],
)
def test_gpus_counted_right(text: str, gpus: int) -> None:
    assert pl.select(sacct.gpus_of(pl.lit(text)).alias("n"))["n"].to_list() == [gpus]


def test_gres_serves_where_tres_has_no_gpu(read: Sacct) -> None:
    """AccountingStorageTRES may lack gres/gpu; GRES counts per node."""
    header = HEADER.replace("ReqMem", "ReqGRES")
    trace = read(
        row("10", AllocTRES="cpu=4", ReqTRES="cpu=4", ReqMem="gpu:a100:4", NNodes="2"), header=header
    )
    assert trace.column("gpus").tolist() == [8]


def test_no_gpu_anywhere_is_said(read: Sacct) -> None:
    with pytest.raises(InputError, match="no job left of 1 rows"):
        read(row("10", AllocTRES="cpu=4", ReqTRES="(null)"))


@pytest.mark.parametrize(
    ("text", "gib"),
    [("4000Mc", 15.625), ("4Gn", 8.0), ("0n", None), ("0c", None), ("1Me", None), ("2T", 2048.0)],
)
def test_requested_memory(read: Sacct, text: str, gib: float | None) -> None:
    """Per core (4 of them), per node (2 of them), or for the job."""
    trace = read(row("10", AllocTRES="cpu=4,gres/gpu=2", ReqMem=text, NNodes="2"), row("11"))
    assert trace.jobs["memory_gib"].to_list() == [gib, 8.0]


def test_elapsed_is_believed_across_the_autumn_clock_change(read: Sacct) -> None:
    times = {"Submit": "2024-11-03T00:50:00", "Start": "2024-11-03T00:55:00", "End": "2024-11-03T01:10:00"}
    trace = read(row("10", **times, Elapsed="01:15:00"), zone="America/New_York")
    assert trace.column("duration_ms").tolist() == [75 * 60_000]


def test_a_bar_in_a_job_name_is_mended_or_counted(read: Sacct) -> None:
    trace = read(row("10", JobName="a|b"), row("11"))
    assert trace.labels("name") == ["a|b", "train"]
    header = HEADER.replace("ReqMem", "Comment")
    trace = read(row("10", JobName="a|b"), row("11"), header=header)
    assert trace.provenance.left_out_counts() == {"wrong number of fields": 1}


def test_trailing_separators_of_sacct_p(read: Sacct) -> None:
    assert len(read(row("10") + "|", row("11") + "|", header=HEADER + "|")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sacct: AllocGRES has been removed, please use AllocTRES\n",
            "line 1 is not the header of `sacct -P`",
        ),
        ("JobID|State|Submit\n1|COMPLETED|2024-01-01T00:00:00\n", "column 'AllocTRES' is missing"),
        (
            "JobID|State|Submitted|AllocTRES\n1|COMPLETED|x|y\n",
            "column 'Submit' is missing, the nearest is 'Submitted'",
        ),
        ("JobID|Submit|AllocTRES\n", "has a header and no row"),
        ("JobID|Submit|Submit|AllocTRES\n1|2|3|4\n", "named twice"),
    ],
)
def test_what_is_no_history(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load(f"sacct:{path}")


def test_database_columns(tmp_path: Path) -> None:
    """MIT SuperCloud publishes Slurm's own table: TRES by number, states by code, 4294967295 for none."""
    path = tmp_path / "slurm.csv"
    path.write_text(
        "id_job,id_user,partition,state,timelimit,time_submit,time_start,time_end,tres_alloc,tres_req\n"
        '1,7,gpu,3,4294967295,1609535912,1609808470,1609808777,"1=20,2=2048,1001=2","1=20"\n'
        '2,7,gpu,4,60,1609535913,0,1609808777,,"1=20,1002=1"\n'
        '3,7,gpu,3,60,1609535913,1609535913,1609808777,"1=20","1=20"\n'
    )
    trace = load(str(path))
    job = trace.jobs.row(0, named=True)
    assert (job["gpus"], job["cpus"], job["memory_gib"], job["duration_ms"]) == (2, 20.0, 2.0, 307_000)
    assert trace.unrun.select("job_id", "gpus", "state").row(0) == ("2", 1, "CANCELLED")
    assert trace.provenance.left_out_counts() == {"asks for no GPU": 1}


def test_accounts_qualities_and_limits_of_jobs_that_ran_twice(tmp_path: Path) -> None:
    """Each run may last as long as the limit says; runs that are added up may last as long together."""
    path = tmp_path / "sacct.txt"
    again = {"Submit": f"{DAY}3:00", "Start": f"{DAY}4:00", "End": f"{DAY}5:00"}
    lines = [row("10", State="REQUEUED"), row("10", **again), row("11")]
    path.write_text("\n".join([f"{HEADER}|Account|QOS", *(f"{line}|vision|high" for line in lines)]) + "\n")
    trace = load(f"sacct:{path}")
    told = trace.jobs.select("job_id", "account", "qos", "limit_ms", "duration_ms").rows()
    assert told == [("10", "vision", "high", 7_200_000, 120_000), ("11", "vision", "high", 3_600_000, 60_000)]
