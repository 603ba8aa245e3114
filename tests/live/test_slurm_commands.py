"""`trimtab slurm` beside a real Slurm."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from slurm_lab import Lab, adapter_to
from trimtab.site import Qos, Site, SlurmPartition


def trimtab(*words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "trimtab", "slurm", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env={**os.environ, **more})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def checked(lab: Lab, *words: str) -> dict[str, Any]:
    done = trimtab("check", "--format", "json", *words, SLURM_CONF=str(lab.conf), SQUEUE_FORMAT="%i")
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_check_says_what_could_be_changed(lab: Lab) -> None:
    before = lab.owned.read_bytes()
    found = checked(lab, "--file", str(lab.owned))
    assert list(found) == [
        *("version", "accounting", "scheduler", "priority", "nodes", "gpus", "keys", "warnings", "refusals"),
    ]
    assert (found["version"], found["scheduler"]) == (
        lab.run("scontrol", "--version").split()[-1],
        "sched/backfill",
    )
    assert (found["nodes"], found["gpus"], found["refusals"]) == (4, 32, [])
    by_name = {one["name"]: one for one in found["keys"]}
    assert by_name["bf_resolution"] == {
        **{"name": "bf_resolution", "value": "60", "applies": "reconfigure", "tunable": True},
        "range": "1 .. 3600",
    }
    assert by_name["PriorityWeightAge"]["applies"] == "ignored"
    assert by_name["SchedulerType"]["applies"] == "restart"
    assert not by_name["PriorityWeightAge"]["tunable"]
    assert any("without slurmdbd" in text for text in found["warnings"])
    assert lab.owned.read_bytes() == before


def test_with_accounting_ages_count(accounted_lab: Lab) -> None:
    by_name = {one["name"]: one for one in checked(accounted_lab, "--file", str(accounted_lab.owned))["keys"]}
    assert by_name["PriorityWeightAge"]["applies"] == "reconfigure"
    assert by_name["PriorityWeightAge"]["tunable"]


def test_check_names_what_stands_in_the_way(lab: Lab, tmp_path: Path) -> None:
    assert checked(lab)["refusals"] == ["no file to write to is named"]
    (found,) = checked(lab, "--file", str(tmp_path / "x.conf"))["refusals"]
    assert "has no line `Include" in found
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"{lab.conf.read_text()}\nPriorityWeightJobSize=9\n")
    other = checked(lab, "--conf", str(conf), "--file", str(lab.owned))
    assert any("sets priorityweightjobsize" in text for text in other["warnings"])
    assert not next(one for one in other["keys"] if one["name"] == "PriorityWeightJobSize")["tunable"]


def test_check_as_text(lab: Lab) -> None:
    told = trimtab("check", "--file", str(lab.owned), SLURM_CONF=str(lab.conf)).stdout
    assert "4 nodes with 32 GPUs in service" in told
    assert "* bf_interval = " in told
    assert "Trimtab could change the" in told


def test_no_slurm_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    done = trimtab("check", "--conf", str(tmp_path / "slurm.conf"), code=1, PATH="")
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "scontrol: cannot be run" in done.stderr


def test_a_conf_that_is_not_there_is_one_line(lab: Lab, tmp_path: Path) -> None:
    done = trimtab("check", "--conf", str(tmp_path / "slurm.conf"), code=1)
    assert done.stderr.count("\n") == 1
    assert "slurm.conf: cannot be read" in done.stderr


def test_import_writes_the_history_in_slices(accounted_lab: Lab, tmp_path: Path) -> None:
    lab = accounted_lab
    lab.clear()
    names = [lab.submit(f"--job-name=run|{size}", gpus=size, seconds=1) for size in (1, 2, 4)]
    told = ("sacct", "-n", "-X", "-P", "-j", ",".join(names), "-o", "State")
    lab.wait(lambda: lab.run(*told).split() == ["COMPLETED"] * 3, "sacct to tell of jobs")
    lab.wait(lambda: {*names} <= {line.split("|")[0] for line in lab.run(*_ALL).splitlines()}, "a span")
    out = tmp_path / "jobs.csv"
    environment = {
        "SLURM_CONF": str(lab.conf),
        "SACCT_FORMAT": "JobID",
        "SLURM_TIME_FORMAT": "%s",
        "TZ": "Asia/Tokyo",
    }
    done = trimtab("import", "--out", str(out), "--since", "3h", "--slice", "1h", **environment)
    assert done.stdout == ""
    assert "sacct: 100 %" in done.stderr
    rows = {row["job_id"]: row for row in csv.DictReader(out.open())}
    assert {*names} <= {*rows}, f"{done.stderr}{lab.run(*_ALL)}"
    assert [rows[name]["gpus"] for name in names] == ["1", "2", "4"]
    assert rows[names[0]]["name"] == "run|1"
    assert set(rows) == {line.split("|")[0] for line in lab.run(*_ALL).splitlines()}


_ALL = ("sacct", "-n", "-X", "-a", "-P", "-S", "now-3hours", "-E", "now", "-o", "JobID,State")


def test_the_site_is_what_the_cluster_has_decided(accounted_lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "site.toml"
    done = trimtab("site", "--out", str(out), SLURM_CONF=str(accounted_lab.conf))
    assert (done.stdout, done.stderr) == (
        "",
        f"wrote 2 partitions, 3 qualities of service and 2 accounts to {out}\n",
    )
    site = Site.from_toml(str(out))
    assert site.partitions == {
        "batch": SlurmPartition(1, 1, 600_000),
        "urgent": SlurmPartition(10, 10, 600_000),
    }
    assert site.qualities["high"] == Qos(100, ("low", "normal"))
    assert site.shares == {"product": 1, "research": 3}
    assert adapter_to(accounted_lab, "slurm").identity().site == site


def test_a_site_that_cannot_be_had_is_one_line(lab: Lab, tmp_path: Path) -> None:
    """Without accounting there are partitions alone; without slurm.conf nothing is written."""
    out = tmp_path / "site.toml"
    trimtab("site", "--out", str(out), SLURM_CONF=str(lab.conf))
    assert Site.from_toml(str(out)).qualities == {}
    done = trimtab("site", "--out", str(tmp_path / "x.toml"), "--conf", str(tmp_path / "none"), code=1)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x.toml").exists()


def test_import_without_accounting_reads_the_completion_file(lab: Lab, tmp_path: Path) -> None:
    """Without AccountingStorageTRES it does not know of GPUs, and says so."""
    lab.clear()
    lab.submit(gpus=1, seconds=1)
    lab.wait(lambda: (lab.folder / "log" / "jobcomp.txt").exists(), "a job to end")
    out = tmp_path / "jobs.csv"
    done = trimtab("import", "--out", str(out), code=1, SLURM_CONF=str(lab.conf))
    assert "jobcomp:" in done.stderr
    assert "asks for no GPU" in done.stderr
    assert not out.exists()


def test_import_refuses_spans_that_are_none(lab: Lab, tmp_path: Path) -> None:
    for words in (("--since", "0d"), ("--since", "soon"), ("--slice", "1s"), ("--slice", "0d")):
        done = trimtab("import", "--out", str(tmp_path / "x.csv"), *words, code=1, SLURM_CONF=str(lab.conf))
        assert done.stderr.count("\n") == 1
