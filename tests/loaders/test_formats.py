"""A few handwritten rows of each public format, in the form its source documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.traces import chronus, helios, philly, swf, table
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace

Write = Callable[[str, str], Path]
UTC_2017_10_07 = 1_507_334_400_000


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(dedent(text).lstrip("\n"))
        return path

    return _write


def accounted(trace: Trace) -> bool:
    """Rows + expanded = kept + unrun + left out + joined."""
    made = trace.provenance
    left_out = sum(item.count for item in made.left_out)
    return made.rows + made.expanded == len(trace) + trace.unrun.height + left_out + made.joined


def test_philly_csv(write: Write) -> None:
    path = write(
        "philly.csv",
        """
        timestamp,duration,num_gpus,gpu_time,cluster
        2017-10-09 07:01:55,66.0,1,66.0,11cb48
        2017-10-07 06:13:03,2951.5,8,23612.0,6214e9
        """,
    )
    trace = philly.load(path)
    assert trace.labels("job_id") == ["1", "0"]
    assert trace.column("duration_ms").tolist() == [2_951_500, 66_000]
    assert trace.column("gpus").tolist() == [8, 1]
    assert trace.labels("vc") == ["6214e9", "11cb48"]
    assert trace.show(trace.zero_ms) == "2017-10-07 00:00:00"
    assert accounted(trace)


def philly_log(*jobs: dict[str, object]) -> str:
    return json.dumps(list(jobs))


def attempt(start: str | None, end: str | None, gpus: int, machine: str = "m1") -> dict[str, object]:
    held = [f"gpu{at}" for at in range(gpus)]
    return {"start_time": start, "end_time": end, "detail": [{"ip": machine, "gpus": held}]}


def philly_job(jobid: str, *attempts: dict[str, object], **more: object) -> dict[str, object]:
    plain = {"status": "Pass", "vc": "ee9e8c", "jobid": jobid, "user": "ce2f4c"}
    return {**plain, "submitted_time": "2017-10-07 01:00:00", "attempts": list(attempts), **more}


def test_philly_log_joins_attempts(write: Write) -> None:
    """Two attempts of 100 s and 1 h on 8 GPUs are one job of 3,700 s."""
    text = philly_log(
        philly_job(
            "application_1",
            attempt("2017-10-07 01:01:00", "2017-10-07 01:02:40", 8),
            attempt("2017-10-07 01:03:00", "2017-10-07 02:03:00", 8),
        ),
        philly_job("application_2", attempt("2017-10-07 01:01:00", "None", 2)),
        philly_job("application_3"),
        philly_job("application_4", attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", 0)),
        philly_job("application_5", attempt("2017-10-07 01:02:00", "2017-10-07 01:01:00", 1)),
        philly_job("application_6", attempt(None, "2017-10-07 01:01:00", 1)),
        philly_job("application_7", attempt("2017-10-07 01:01:00", "2017-10-07 01:01:00", 1)),
    )
    trace = load(str(write("cluster_job_log", text)))
    assert trace.labels("job_id") == ["application_1", "application_7"]
    assert trace.column("duration_ms").tolist() == [3_700_000, 0]
    assert trace.column("gpus").tolist() == [8, 1]
    assert trace.unrun["job_id"].to_list() == ["application_2", "application_6"]
    assert trace.provenance.left_out_counts() == {
        "no attempt recorded: never ran, GPUs unknown": 1,
        "asks for no GPU": 1,
        "an attempt ends before it starts": 1,
    }
    assert accounted(trace)


@pytest.mark.parametrize(("label", "hours"), [("PDT", 7), ("PST", 8), ("", 0)])
def test_philly_zone_labels(write: Write, label: str, hours: int) -> None:
    run = attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", 1)
    job = philly_job("a", run, submitted_time=f"2017-10-07 00:00:00 {label}".strip())
    trace = philly.load(write("log.json", philly_log(job)))
    assert trace.span_ms[0] == UTC_2017_10_07 + hours * 3_600_000


def test_philly_run_across_the_autumn_clock_change(write: Write) -> None:
    """01:50 PDT to 01:10 PST is 20 minutes, though the clock on the wall went back."""
    job = philly_job("a", attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00", 1))
    trace = philly.load(write("log.json", philly_log(job)), zone="America/Los_Angeles")
    assert trace.column("duration_ms").tolist() == [20 * 60_000]


def test_an_hour_that_spring_skips_is_no_lost_row(write: Write) -> None:
    path = write("p.csv", "timestamp,duration,num_gpus\n2017-03-12 02:30:00,60,1\n")
    trace = philly.load(path, zone="America/Los_Angeles")
    assert trace.show(trace.span_ms[0]) == "2017-03-12 03:30:00"


HELIOS = """
    job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
    1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
    1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:37,2020-06-09 18:45:46,249,10
    1425513,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
    1425514,uzqls,vcpDC,2,1,1,CANCELLED,2020-06-09 18:41:29,None,2020-06-17 14:15:21,0,0
    1425515,uzqls,vcpDC,2,1,1,FAILED,2020-06-09 18:41:29,2020-06-09 18:41:29,2020-06-09 18:41:29,0,0
    """


def test_helios_log(write: Write) -> None:
    trace = load(str(write("cluster_log.csv", HELIOS)))
    assert trace.provenance.source.startswith("helios:")
    assert trace.labels("job_id") == ["1425511", "1425512", "1425515"]
    assert trace.column("duration_ms").tolist() == [36_848_000, 249_000, 0]
    assert trace.column("cpus").tolist() == [1, 16, 1]
    assert (trace.column("start_ms") - trace.column("submit_ms")).tolist() == [0, 10_000, 0]
    assert trace.unrun["job_id"].to_list() == ["1425514"]
    assert trace.provenance.left_out_counts() == {"asks for no GPU": 1}
    assert str(trace.zone) == "Asia/Shanghai"
    assert trace.show(trace.span_ms[0]) == "2020-06-09 18:41:01"
    assert accounted(trace)


def test_helios_venus_offsets_have_a_known_origin(write: Write) -> None:
    path = write("venus.csv", "job_id,arrival_s,service_sec,gpu_count\n363167#0,0.0,172800.0,32\n")
    trace = load(str(path))
    assert trace.provenance.source.startswith("helios:")
    assert trace.show(trace.span_ms[0]) == "2020-03-18 04:01:39"
    with pytest.raises(ConfigError, match="origin 'soon' is not a date"):
        helios.load(path, origin="soon")


TASKS = """
    4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
    4f06,worker,4.0,Terminated,1739163.0,1739200.0,600.0,10.0,150.0,V100
    4f06,ps,2.0,Terminated,1739163.0,1739200.0,400.0,10.0,,
    4f07,worker,1.0,Running,1739164.0,,600.0,10.0,100.0,T4
    4f08,worker,1.0,Failed,1739164.0,0,600.0,10.0,100.0,T4
    ,,1.0,Terminated,1739164.0,1739165.0,600.0,10.0,100.0,T4
    """
TASK_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize("header", ["", TASK_HEADER])
def test_pai_tasks(write: Write, header: str) -> None:
    """4 instances of 1.5 GPUs are 4 x 2; half a GPU is one; plan_gpu is in per cent, plan_cpu too."""
    trace = load(str(write("pai_task_table.csv", header + dedent(TASKS).lstrip())))
    assert trace.provenance.source.startswith("pai:")
    assert trace.labels("job_id") == ["4f05-tensorflow", "4f06-worker"]
    assert trace.column("gpus").tolist() == [1, 8]
    assert trace.column("cpus").tolist() == [6.0, 24.0]
    assert trace.column("memory_gib").tolist() == [29.296875, 40.0]
    assert trace.column("duration_ms").tolist() == [38_000, 37_000]
    assert trace.unrun["job_id"].to_list() == ["4f07-worker", "4f08-worker"]
    assert trace.provenance.left_out_counts() == {"asks for no GPU": 1, "no job name or task name": 1}
    assert any("part of a GPU: rounded up" in note for note in trace.provenance.notes)
    assert not trace.dated
    assert accounted(trace)


def test_pai_fractions_can_be_rejected(write: Write) -> None:
    path = write("pai_task_table.csv", TASKS)
    with pytest.raises(InputError, match="no job left of 6 rows"):
        load(f"pai:{path}", fractions="reject")
    with pytest.raises(ConfigError, match="'down' is neither"):
        load(f"pai:{path}", fractions="down")
    with pytest.raises(UnknownName, match="did you mean 'fractions'"):
        load(f"pai:{path}", fraction="up")


def test_pai_job_table_takes_submit_times_and_users_to_the_tasks(write: Write) -> None:
    jobs = write("pai_job_table.csv", "4f05,8cb3,58540f,Terminated,1739100.0,1739200.0\n")
    with pytest.raises(InputError, match=r"put pai_task_table\.csv beside it"):
        load(f"pai:{jobs}")
    write("pai_task_table.csv", TASKS)
    trace = load(f"pai:{jobs}")
    assert trace.labels("user") == ["58540f"]
    assert trace.column("submit_ms").tolist() == [1_739_100_000]
    assert trace.column("start_ms").tolist() == [1_739_162_000]
    assert trace.provenance.left_out_counts()["no submit time, or not readable"] == 4
    assert accounted(trace)


def test_pai_simulator_jobs(write: Write) -> None:
    path = write(
        "pai_job_no_estimate_100K.csv",
        """
        job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user
        0,1,2,6.0,0.5,T4,100,u1
        1,3,1,6.0,2.0,V100,50,u2
        2,1,3,6.0,0,CPU,50,u2
        """,
    )
    trace = load(str(path))
    assert trace.labels("job_id") == ["1", "0"]
    assert trace.column("gpus").tolist() == [6, 1]
    assert trace.column("cpus").tolist() == [18.0, 6.0]
    assert trace.provenance.left_out_counts() == {"asks for no GPU": 1}


def test_pai_sample_stays_undated(write: Write) -> None:
    trace = load(
        str(write("s.csv", "job_id,arrival_s,service_sec,gpu_count\nali-e2-worker#3,16670.0,16.0,8\n"))
    )
    assert trace.provenance.source.startswith("pai:")
    assert not trace.dated
    assert trace.show(trace.span_ms[0]) == "0.19d"


def test_chronus_counts_minutes(write: Write) -> None:
    path = write(
        "chronus.csv",
        """
        job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,best_effort,job_type
        0,vc_a,1,10,5049,vgg16,747,14,1105,10,0,strict
        1,vc_b,2,5,296,alexnet,98,8,128-256.5,10-5,0,soft
        2,vc_b,2,7,296,alexnet,98,8,7,10,1,best
        3,vc_b,0,7,296,alexnet,98,8,7,10,1,best
        4,vc_b,1,7,296,alexnet,98,8,soon,10,0,strict
        """,
    )
    trace = load(str(path))
    assert trace.provenance.source.startswith("chronus:")
    assert trace.labels("job_id") == ["1", "2", "0"]
    assert trace.column("submit_ms").tolist() == [300_000, 420_000, 600_000]
    assert trace.column("duration_ms").tolist() == [98 * 60_000, 98 * 60_000, 747 * 60_000]
    assert trace.labels("deadline_ms") == ["7680000/15390000", None, "66300000"]
    assert trace.labels("deadline_value") == ["10/5", None, "10"]
    assert trace.labels("service_class") == ["soft", "best", "strict"]
    assert trace.provenance.left_out_counts() == {"asks for no GPU": 1, "deadline is not a number": 1}
    assert accounted(trace)
    assert chronus.load(path, zone="Asia/Shanghai").jobs.equals(trace.jobs)


SWF = """
    ; UnixStartTime: 1000000000
    ; TimeZone: 3600
    ; MaxProcs: 128
    1 0 5 100 8 -1 -1 8 90 -1 1 3 1 4 2 -1 -1 -1
    2 10 -1 -1 -1 -1 -1 4 60 -1 5 3 1 -1 -1 -1 -1 -1
    3 20 0 50 256 -1 -1 -1 -1 -1 0 -1 1 -1 -1 -1 -1 -1
    4 30 0 50 0 -1 -1 0 -1 -1 1 -1 1 -1 -1 -1 -1 -1
    5 30 0 50 4 -1 -1 0 -1 -1 2 -1 1 -1 -1 -1 -1 -1
    """


def test_swf(write: Write) -> None:
    trace = load(str(write("log.swf", SWF)))
    assert trace.labels("job_id") == ["1", "3"]
    assert trace.dated
    assert trace.span_ms[0] == 1_000_000_000_000
    assert trace.show(trace.span_ms[0]) == "2001-09-09 02:46:40"  # UTC+1, as the header says
    assert trace.column("gpus").tolist() == [8, 256]
    assert trace.jobs["limit_ms"].to_list() == [90_000, None]
    assert trace.labels("user") == ["3", None]
    assert trace.labels("state") == ["COMPLETED", "FAILED"]
    assert trace.unrun["job_id"].to_list() == ["2"]
    notes = " ".join(trace.provenance.notes)
    assert "1 jobs ask for more than MaxProcs = 128" in notes
    assert "1 jobs ran longer than they asked for" in notes
    assert accounted(trace)


def test_swf_processors_per_gpu(write: Write) -> None:
    path = write("log.swf", SWF)
    assert load(f"swf:{path}", processors_per_gpu=3).column("gpus").tolist() == [3, 86]
    with pytest.raises(ConfigError, match="processors_per_gpu = 0"):
        swf.load(path, processors_per_gpu=0)


def test_swf_without_header_stays_undated(write: Write) -> None:
    trace = load(str(write("log.swf", "1 0 5 100 8 -1 -1 8 90 -1 1 3 1 4 2 -1 -1 -1\n")))
    assert not trace.dated
    with pytest.raises(InputError, match="line 1 has 3 fields, SWF has 18"):
        load(f"swf:{write('bad.swf', '1 2 3')}")


def test_table_takes_common_names_and_says_which(write: Write) -> None:
    trace = load(
        str(write("t.csv", "submit_time,duration,num_gpus,vc,colour\n5,2.5,1,a,red\n1,3,0.5,b,blue\n"))
    )
    assert trace.provenance.mapping == {
        "submit_s": "submit_time",
        "duration_s": "duration",
        "gpus": "num_gpus",
    }
    assert trace.column("submit_ms").tolist() == [1000, 5000]
    assert trace.column("gpus").tolist() == [1, 1]
    assert trace.labels("job_id") == ["1", "0"]
    assert "Columns not used: colour." in trace.provenance.notes
    assert not trace.dated


def test_table_with_dates(write: Write) -> None:
    path = write(
        "t.csv",
        """
        job_id,submit_s,gpus,start_s,end_s
        a,2024-01-01T08:00:00+08:00,1,2024-01-01T00:00:10Z,2024-01-01T00:01:10.5Z
        b,2024-01-01T00:00:05,2,2024-01-01T00:00:10,2024-01-01T00:00:05
        c,2024-01-01 00:00:07,2,,
        """,
    )
    trace = load(f"table:{path}")
    assert trace.dated
    assert trace.column("duration_ms").tolist() == [60_500]
    assert trace.unrun["job_id"].to_list() == ["c"]
    assert trace.provenance.left_out_counts() == {"ends before it starts": 1}
    assert trace.show(trace.span_ms[0]) == "2024-01-01 00:00:00"
    assert accounted(trace)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("text", [HELIOS, SWF, TASKS], ids=["helios", "swf", "pai"])
def test_table_round_trip(write: Write, tmp_path: Path, text: str, suffix: str) -> None:
    trace = load(str(write("in.csv", text)))
    out = tmp_path / f"out{suffix}"
    table.save(trace, out)
    again = load(f"table:{out}", zone=str(trace.zone) if "/" in str(trace.zone) else None)
    assert again.jobs.equals(trace.jobs)
    assert again.unrun.select(trace.unrun.columns).equals(trace.unrun)
    assert again.dated == trace.dated
    first = out.read_bytes()
    table.save(trace, out)
    assert out.read_bytes() == first


def test_table_deadlines(write: Write, tmp_path: Path) -> None:
    path = write(
        "t.csv", "job_id,submit_s,duration_s,gpus,deadline_s,deadline_value\n1,0,1,1,60/120.5,10/5\n"
    )
    trace = load(str(path))
    assert trace.labels("deadline_ms") == ["60000/120500"]
    table.save(trace, tmp_path / "o.csv")
    assert load(str(tmp_path / "o.csv")).jobs.equals(trace.jobs)


def test_formats_and_zones_are_known_by_name(write: Write) -> None:
    path = write("t.csv", "job_id,submit_s,duration_s,gpus\n1,0,1,1\n")
    with pytest.raises(UnknownName, match="did you mean 'philly'"):
        load(f"filly:{path}")
    with pytest.raises(UnknownName, match="unknown time zone 'Asia/Shangai'; did you mean 'Asia/Shanghai'"):
        load(f"table:{path}", zone="Asia/Shangai")
    assert len(load("synthetic:philly?days=1")) > 100


def test_half_a_character_in_the_job_log_is_replaced(tmp_path):
    attempt = (
        '{"start_time":"2017-10-09 07:01:55","end_time":"2017-10-09 07:02:55","detail":[{"gpus":["a"]}]}'
    )
    path = tmp_path / "log.json"
    path.write_text(
        f'[{{"jobid":"a","submitted_time":"2017-10-09 07:01:55","attempts":[{attempt}],'
        '"status":"Pass","vc":"v","user":"\\ud800"}]'
    )
    assert philly.load(path).labels("user") == ["?"]
