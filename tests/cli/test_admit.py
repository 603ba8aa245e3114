"""`admit`: which deadline a job could be promised before it is submitted, and what would help."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Trimtab
from trimtab.simulate.fast import compiled_available

# By plan a has the GPUs in minutes 0 .. 100, and b, which is promised its deadline, in 100 .. 160.
BUSY = """job_id,submit_s,duration_s,gpus,deadline_s
a,0,6000,4,7200
b,60,3600,4,13140
c,36000,60,1,
"""
ASK = "admit busy.csv --at 10m --gpus 4 --run-time 1h --nodes 1 --gpus-per-node 4"


@pytest.fixture
def busy(folder: Path) -> Path:
    path = folder / "busy.csv"
    path.write_text(BUSY)
    return path


def test_the_earliest_deadline_and_what_would_help(busy: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{ASK} --deadline 2h")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "1 jobs running, 1 pending",
        "4 GPUs for 1:00:00: planned to start 2:30:00 after submission",
        "earliest deadline that can be promised: 3:35:00",
        "deadline 2:00:00: cannot be promised; what would help, cheapest first:",
        "  a deadline of 3:35:00",
    ]


def test_json_tells_the_same(busy: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"{ASK} --deadline 2h --format json").json()
    assert found["job"]["deadline_s"] == 7200
    assert found["situation"] == {"running": 1, "pending": 1}
    assert (found["promised"], found["start_s"], found["earliest_deadline_s"]) == (False, 9000, 12900)
    assert found["changes"] == [{"change": "deadline", "deadline_s": 12900}]
    kept = trimtab(f"{ASK} --deadline 215m --format json").json()
    assert (kept["promised"], kept["changes"], kept["start_by_s"]) == (True, [], None)
    open_ended = trimtab(f"{ASK} --format json").json()
    assert (open_ended["promised"], open_ended["earliest_deadline_s"]) == (None, 12900)


def test_cheapest_first(busy: Path, trimtab: Trimtab) -> None:
    """On an empty node a job can have more cores; who has to wait for a could start at once on fewer GPUs."""
    ask = "admit busy.csv --nodes 1 --curves builtin --model resnet18 --quiet --format json"
    cores = trimtab(f"{ask} --at 9h --gpus 4 --run-time 2h --deadline 105m").json()
    assert [one["change"] for one in cores["changes"]] == ["share", "deadline"]
    fewer = trimtab(f"{ask} --at 0s --gpus 8 --run-time 1h --deadline 130m").json()
    assert fewer["changes"] == [
        {"change": "gpus", "gpus": 4, "run_time_s": 7200},
        {"change": "deadline", "deadline_s": 6000 + 3600 + 300},
    ]


@pytest.mark.skipif(not compiled_available(), reason="there is one engine")
def test_both_engines_answer_alike(busy: Path, trimtab: Trimtab) -> None:
    ask = f"{ASK} --deadline 2h --format json"
    assert trimtab(f"{ask} --engine reference").json() == trimtab(f"{ask} --engine compiled").json()


def test_later_jobs_are_not_known(busy: Path, trimtab: Trimtab) -> None:
    """What the trace holds after the instant changes nothing; at the instant, its jobs come first."""
    before = trimtab(f"{ASK} --format json").json()
    busy.write_text(f"{BUSY}d,601,60000,4,90000\n")
    assert trimtab(f"{ASK} --format json").json() == before
    busy.write_text(f"{BUSY}d,600,60000,4,90000\n")
    assert trimtab(f"{ASK} --format json").json()["start_s"] == 9000 + 60000


def test_more_memory_than_a_node_has_is_refused(folder: Path, trimtab: Trimtab) -> None:
    """Of a job that is there, and of the one that is asked about."""
    head = "model,cpus_per_gpu,memory_gib_per_gpu,speed,footprint_gib_per_gpu\n"
    points = ("small,1,10,1,1", "small,3,10,2,1", "large,1,10,1,501", "large,3,10,2,501")
    (folder / "curves.csv").write_text(head + "\n".join(points) + "\n")
    for name in ("small", "large"):
        (folder / f"{name}.csv").write_text(f"job_id,submit_s,duration_s,gpus,model\nj,0,900,1,{name}\n")
    ask = "--at 5s --gpus 1 --run-time 1h --nodes 1 --curves curves.csv --quiet"
    assert trimtab(f"admit small.csv {ask} --model small").code == 0
    for source, model, who in (("large", "small", "job j"), ("small", "large", "the job asked about")):
        ran = trimtab(f"admit {source}.csv {ask} --model {model}")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == (
            f"trimtab: curves curves.csv: {who} of model 'large' needs 501 GiB on one node, a node has 500; "
            "nothing was run.\n"
        )


def test_virtual_clusters(folder: Path, trimtab: Trimtab) -> None:
    ask = "admit jobs.csv --at 50s --gpus 1 --run-time 10s --cluster good.toml --quiet"
    assert trimtab(f"{ask} --vc x --format json").json()["situation"]["running"] > 0
