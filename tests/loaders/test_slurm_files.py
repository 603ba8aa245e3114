"""What Slurm writes, as captured from a real one: text, JSON of old and new releases, completion files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.errors import InputError
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace

CAPTURED = Path(__file__).parent / "fixtures" / "slurm-22.05.8"
Written = Callable[[Any], str]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def _written(content: Any) -> str:
        path = tmp_path / "found"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return _written


def captured(name: str) -> Any:
    text = (CAPTURED / name).read_text()
    return json.loads(text) if name.endswith(".json") else text


def accounted(trace: Trace) -> Trace:
    made = trace.provenance
    left_out = sum(item.count for item in made.left_out)
    assert made.rows + made.expanded == len(trace) + trace.unrun.height + left_out + made.joined
    return trace


def jobs(trace: Trace) -> list[tuple[Any, ...]]:
    names = ("job_id", "submit_ms", "duration_ms", "gpus", "vc", "user", "start_ms", "state", "limit_ms")
    return sorted(accounted(trace).jobs.select(names).rows())


# ---- captures --------------------------------------------------------------------------------------


def test_text_and_json_of_one_history_are_one_trace() -> None:
    text, found = load(str(CAPTURED / "sacct.txt")), load(str(CAPTURED / "sacct.json"))
    assert jobs(text) == jobs(found)
    assert len(text) >= 15
    assert found.provenance.left_out_counts() == {"asks for no GPU": 1}
    # The name of that job has a line break, and so its row in text has two lines.
    assert text.provenance.left_out_counts() == {"asks for no GPU": 1, "wrong number of fields": 1}


def test_what_the_captured_history_holds() -> None:
    trace = accounted(load(str(CAPTURED / "sacct.txt")))
    by_id = {row["job_id"]: row for row in trace.jobs.iter_rows(named=True)}
    assert by_id["10"]["gpus"] == 9  # on two nodes, asked for by --gpus
    assert by_id["19+0"]["gpus"] == 3  # a gang of two parts
    assert by_id["15"]["name"] == "bar|name"
    assert by_id["17"]["duration_ms"] == 10_000  # requeued after 4 s, then 6 s
    assert by_id["17"]["limit_ms"] == 2 * 93_840_000  # each run may last so long
    assert {"16_1", "16_2", "16_3"} <= set(by_id)
    assert trace.unrun["job_id"].to_list() == ["13", "23"]  # refused at once; asks for five nodes of four


def test_the_job_completion_file_tells_the_same_of_jobs_that_ended() -> None:
    found = load(str(CAPTURED / "jobcomp.txt"))
    told = [row[:7] for row in jobs(load(str(CAPTURED / "sacct.txt"))) if row[0] != "19+0"]
    assert [
        row[:7] for row in jobs(found) if row[0] not in ("19", "20")
    ] == told  # parts of a gang stand alone
    assert len(told) >= 15
    assert found.provenance.source.startswith("jobcomp:")
    assert "22" in found.unrun["job_id"].to_list()  # cancelled while it was held


def test_a_snapshot_of_the_queue_is_read_as_well() -> None:
    found = accounted(load(str(CAPTURED / "squeue.json")))
    assert {"15", "16_1", "18"} <= set(found.labels("job_id"))
    assert set(found.unrun["job_id"]) >= {"23", "24_5", "24_100"}


# ---- newer releases --------------------------------------------------------------------------------


def _wrapped(value: object) -> object:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def _newer(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same as later releases print it: numbers in {set, infinite, number}, states in lists."""
    for job in found["jobs"]:
        job["state"]["current"] = [job["state"]["current"]]
        job["time"]["limit"] = _wrapped(job["time"]["limit"])
        job["array"]["task_id"] = _wrapped(job["array"]["task_id"])
        job["het"]["job_offset"] = _wrapped(job["het"]["job_offset"])
    return found


def test_a_newer_release_says_the_same(written: Written) -> None:
    newer = load(written(_newer(captured("sacct.json"))))
    assert jobs(newer) == jobs(load(str(CAPTURED / "sacct.json")))


@pytest.mark.parametrize(
    ("limit", "ms"),
    [
        ({"set": True, "infinite": True, "number": 0}, None),
        ({"set": False, "infinite": False, "number": 7}, None),
        ({"set": True, "infinite": False, "number": 7}, 420_000),
        (7, 420_000),
        (None, None),
    ],
)
def test_limits_of_json(written: Written, limit: object, ms: int | None) -> None:
    found = captured("sacct.json")
    found["jobs"] = [job for job in found["jobs"] if job["job_id"] in (1, 2)]
    found["jobs"][0]["time"]["limit"] = limit
    assert load(written(found)).jobs["limit_ms"].to_list()[0] == ms


@pytest.mark.parametrize("states", ["RUNNING", ["RUNNING"], ["RUNNING", "COMPLETING"]])
def test_states_of_json(written: Written, states: object) -> None:
    found = captured("sacct.json")
    found["jobs"] = [job for job in found["jobs"] if job["job_id"] in (1, 2)]
    found["jobs"][0]["state"]["current"] = states
    assert load(written(found)).unrun["state"].to_list() == ["RUNNING"]


# ---- odd inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, {"job_id": None}, {"job_id": {"set": False}}])
def test_what_is_no_job_is_counted(written: Written, odd: object) -> None:
    found = captured("sacct.json")
    found["jobs"].append(odd)
    assert accounted(load(written(found))).provenance.left_out_counts()["no job id"] == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"time": None},
        {"time": {"submission": -5}},
        {"time": {"submission": 10**18}},
        {"time": {"submission": "soon"}},
        {"tres": None},
        {"tres": {"allocated": [None, 3, {"type": "gres"}], "requested": "?"}},
        {"state": []},
        {"array": 3, "het": "x"},
        {"array": {"job_id": 5, "task": "1-", "task_id": None}},
        {"name": None, "user": None, "partition": ["a"]},
        {"job_id": True},
        {"allocation_nodes": -1},
    ],
)
def test_damaged_jobs_end_in_no_traceback(written: Written, damage: dict[str, Any]) -> None:
    found = captured("sacct.json")
    found["jobs"][0].update(damage)
    accounted(load(f"sacct:{written(found)}"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"meta": {"Slurm": 1}, "jobs": [', "is no JSON"),
        ('{"meta": {"Slurm": 1}, "jobs": []}', "holds no jobs; nothing was loaded"),
        (
            '{"meta": {"Slurm": 1}, "errors": [{"description": "Unable to parse time format"}]}',
            r"holds no jobs \(Slurm says: Unable to parse time format\)",
        ),
        ('{"meta": {"Slurm": 1}, "jobs": {"a": 1}}', "holds no jobs"),
    ],
)
def test_json_without_jobs_is_one_line(written: Written, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(written(content))


def test_a_warning_before_the_table_is_told_apart_from_it(written: Written) -> None:
    with pytest.raises(InputError, match="line 1 is not the header"):
        load(f"sacct:{written('sacct: warning: x' + chr(10) + captured('sacct.txt'))}")


@pytest.mark.parametrize(
    "line",
    [
        "half a line that was being written: JobId=9",
        "JobId=9 UserId=root(0) GroupId=root(0) Name=x",
        "the rest of a job's name with a line break",
    ],
)
def test_lines_of_a_completion_file_that_cannot_be_read_are_counted(written: Written, line: str) -> None:
    trace = accounted(load(written(captured("jobcomp.txt") + line + "\n")))
    (found,) = [item for item in trace.provenance.left_out if item.reason == "no job id"]
    assert found.count == 3  # two lines are those of a captured name with a line break


@pytest.mark.parametrize(
    "name", ["JobState=FAILED Partition=x", "a b=c", "Tres=gres/gpu=99", "", "SubmitTime=1"]
)
def test_names_in_a_completion_file_may_hold_anything(written: Written, name: str) -> None:
    text = captured("jobcomp.txt").replace("Name=bar|name ", f"Name={name} ")
    by_id = {row["job_id"]: row for row in accounted(load(written(text))).jobs.iter_rows(named=True)}
    assert (by_id["15"]["gpus"], by_id["15"]["duration_ms"]) == (2, 3000)


def test_a_completion_file_without_gpus_says_why(written: Written) -> None:
    text = "".join(line.replace(",gres/gpu=", ",x=") + "\n" for line in captured("jobcomp.txt").splitlines())
    with pytest.raises(InputError, match="no job left"):
        load(written(text))


def test_what_is_no_completion_file() -> None:
    with pytest.raises(InputError, match="line 1 is not `JobId="):
        load(f"jobcomp:{CAPTURED / 'sacct.txt'}")
