"""Bad input: one line on stderr that says what is wrong, exit 1, no traceback, nothing half-written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import Trimtab

SIMULATE = "simulate {source} --policy fifo --nodes 1 --quiet"
TUNE = "tune jobs.csv --policy tiresias --at 20s --nodes 1 --executor local --budget 2 --quiet"
ADMIT = "admit jobs.csv --at 20s --gpus 1 --run-time 1h --nodes 1 --quiet"
EVALUATE = "evaluate jobs.csv --policy tiresias --window 0s..1h --nodes 1 --executor local --budget 2 --quiet"

# A file that is no trace -> what the refusal says.
SOURCES = {
    "missing.csv": "no such file",
    "folder": "is a folder",
    "no-columns.csv": "none of the known formats",
    "table:no-columns.csv": "'submit_s' is missing",
    "no-gpus.csv": "none of the known formats",
    "table:no-gpus.csv": "'gpus' is missing",
    "empty.csv": "is empty",
    "table:empty.csv": "is empty",
    "header.csv": "no row",
    "noise.bin": "binary",
    "table:noise.bin": "binary",
    "cut.csv.gz": "cut short",
    "table:cut.csv.gz": "cut short",
    "phily:jobs.csv": "did you mean 'philly'",
    "synthetic:pilly": "did you mean 'philly'",
    "synthetic:philly?dys=3": "did you mean 'days'",
    "synthetic:philly?days=0": "days=0",
    "synthetic:philly?days=nan": "days=nan",
}

# Options after a good command -> what the refusal says.
SIMULATE_OPTIONS = {
    "--policy tireisas": "did you mean 'tiresias'",
    "--policy policies.py": "write policies.py::Name",
    "--policy nowhere.py::Fine": "no such file",
    "--policy policies.py::Fin": "did you mean 'Fine'",
    "--policy policies.py::NoPolicy": "lacks name, space, decide",
    "--policy policies.py::FailsToStart": "ValueError: not today (",
    "--policy policies.py::NeedsMore": "missing 1 required",
    "--policy policies.py::SpaceIsNone": "`space` must be a Space",
    "--policy raises.py::Any": "RuntimeError: boom second line (",
    "--policy exits.py::Any": "SystemExit",
    "--policy syntax.py::Any": "SyntaxError",
    "--policy policies.py::FailsInKey": "policies.py:24)",
    "--policy policies.py::FailsInDecide": "policies.py:34)",
    "--policy policies.py::ExitsInDecide": "policies.py:38)",
    "--policy policies.py::StartsAll": "its GPUs are not free",
    "--policy policies.py::StartsNone": "waiting for ever",
    "--policy sjf --estimates none": "orders by estimates",
    "--speeds missing.csv": "no such file",
    "--speeds jobs.csv": "column 'model1' is missing",
    "--speeds good.toml@v100": "only JSON of throughputs has types of GPU",
    "--models drawn": "did you mean 'draw'",
    "--preset phily": "did you mean 'philly'",
    "--preset philly": "preset philly: only lucid has it",
    "--policy themis --knob lease=59": "60 .. 14400 s",
    "--policy themis --knob ideal_model=papr": "one of share, paper",
    "--policy themis --estimates none": "orders by estimates",
    "--policy lucid --knob mem_limit=-1": "1024 .. 1048576 MiB",
    "--policy lucid --placement count": "needs nodes",
    "--knob backfil=skip": "did you mean 'backfill'",
    "--knob backfill=never": "one of strict, skip",
    "--knob backfill": "is not NAME=VALUE",
    "--knob backfill=skip --knob backfill=strict": "given twice",
    "--policy tiresias --knob num_queues=9": "1 .. 8",
    "--policy tiresias --knob num_queues=two": "(a whole number, 1 .. 8)",
    "--policy tiresias --knob queue_thresholds=7200/3600": "ascending",
    "--policy tiresias --knob promote_knob=nan": "0.25 .. inf",
    "--window 10d..20d": "spans 0.00d .. 0.00d",
    "--window 20s..10s": "ends before it starts",
    "--window 20s..20s": "ends before it starts",
    "--window soon": "START..END",
    "--window ..": "START..END",
    "--window 2017-10-06..2017-10-20": "only offsets",
    "--nodes 0": "at least 1",
    "--nodes -1": "at least 1",
    "--nodes 1000000000": "at most 100,000",
    "--gpus-per-node 0": "at least 1",
    "--gpus-per-node 1000000000": "at most 100,000",
    "--cluster good.toml": "either --nodes",
    "--placement consoldated": "did you mean 'consolidated'",
    "--estimates orcale": "did you mean 'oracle'",
    "--engine refrence": "did you mean 'reference'",
    "--zone Mars/Base": "time zone",
    "--restart-cost-s nan": "it must be 0 .. 1,000,000,000 s",
    "--restart-cost-s inf": "it must be 0 .. 1,000,000,000 s",
    "--restart-cost-s -1": "it must be 0 .. 1,000,000,000 s",
    "--restart-cost-s cronus": "`chronus`",
    "--restart-cost-s 1000000001": "it must be 0 .. 1,000,000,000 s",
    "--adjust-cost-s -1": "adjust-cost-s = -1: it must be 0 .. 1,000,000,000 s",
    "--adjust-cost-s nan": "it must be 0 .. 1,000,000,000 s",
    "--adjust-cost-s 1000000001": "adjust-cost-s = 1000000001: it must be 0 .. 1,000,000,000 s",
    "--cores-per-node 0": "cores-per-node = 0: it must be a whole number, 1 .. 1,000 for each of 8 GPUs",
    "--cores-per-node 7": "cores-per-node = 7: it must be a whole number, 1 .. 1,000 for each of 8 GPUs",
    "--cores-per-node 8001": "cores-per-node = 8001: it must be a whole number, 1 .. 1,000",
    "--cores-per-node 5000000000": "cores-per-node = 5000000000: it must be",
    "--memory-gib-per-node 0": "memory-gib-per-node = 0.0: it must be GiB, 1/1024 .. 1,000,000",
    "--memory-gib-per-node 0.007": "memory-gib-per-node = 0.007: it must be GiB, 1/1024 .. 1,000,000",
    "--memory-gib-per-node 8000001": "memory-gib-per-node = 8000001.0: it must be GiB",
    "--memory-gib-per-node nan": "memory-gib-per-node = nan: it must be GiB",
    "--gpus-per-node 0 --cores-per-node 8": "gpus-per-node = 0: it must be a whole number of at least 1",
    "--spread-speed 0": "0.000001 .. 1",
    "--spread-speed nan": "0.000001 .. 1",
    "--spread-speed 1.5": "0.000001 .. 1",
    "--thin 0": "above 0",
    "--thin 2": "at most 1",
    "--thin nan": "above 0",
    "--thin 0.000001": "leaves none of 6 jobs",
    "--tie-seeds -1": "0 or more",
    "--seed -1": "seed = -1",
    "--seed 99999999999999999999": "seed = ",
    "--jobs-out folder": "is a folder",
    "--jobs-out nowhere/jobs.csv": "no folder nowhere",
    "--timeline-out /dev/full": "No space left",
    "--jobs-out x.csv --timeline-out x.csv": "two different results",
}

CLUSTERS = {
    "zero.toml": "nodes = 0",
    "text.toml": "nodes = 'two'",
    "huge.toml": "at most 100,000",
    "missing.toml": "each [[vc]] has gpus_per_node, name, nodes, and at most",
    "extra.toml": "each [[vc]] has gpus_per_node, name, nodes, and at most",
    "twice.toml": "different names",
    "empty.toml": "[[vc]]",
    "broken.toml": "line 1",
    "nowhere.toml": "No such file",
    "folder": "folder",
    "bytes.toml": "no text at byte",
    "deep.toml": "too deep",
    "long.toml": "beyond 64 bits",
    "number.toml": "name = 5: it must be a text",
    "no-cores.toml": "vc x: cores_per_node = 0: it must be a whole number, 1 .. 1,000 for each of 8 GPUs",
    "no-memory.toml": "vc x: memory_gib_per_node = 0: it must be GiB",
    "list.toml": "vc x: gpus_per_node = [8]: it must be a whole number",
    "good.toml --gpus-per-node 4": "go with --nodes",
}

TUNE_OPTIONS = {
    "--at 100d": "no job runs, waits or arrives then; the trace spans 0.00d .. 0.00d",
    "--at 3d": "no job runs, waits or arrives then",
    "--at -100d": "no job runs, waits or arrives then",
    "--at yesterday": "neither a date",
    "--budget 0": "at least 1 simulation",
    "--budget -5": "at least 1 simulation",
    "--threshold 0.5": "at least 1",
    "--threshold nan": "at least 1",
    "--threshold inf": "at least 1, and finite",
    "--objective wiat": "did you mean 'wait'",
    "--sampler bluefn": "did you mean 'bluefin'",
    "--executor locl": "did you mean 'local'",
    "--executor processes --workers 0": "workers = 0",
    "--workers -3": "workers = -3",
    "--executor processes --workers 100000": "it must be 1 .. 512",
    "--address 127.0.0.1:1": "--address goes with --executor dask or ray",
    "--executor dask --address 127.0.0.1:1 --workers 2": "give one",
    "--executor dask --address nonsense": "must be HOST:PORT of the Dask cluster",
    "--dwell soon": "90s, 30m, 1h or 2d",
    "--dwell 99999999d": "at most 1,000 years",
    "--run-on 0": "longer than nothing",
    "--arrivals-horizon 0h": "longer than nothing",
    "--arrivals-horizon -5h": "90s, 30m, 1h or 2d",
    "--policy policies.py::FailsInKey": "policies.py:24)",
}

ADMIT_OPTIONS = {
    "--gpus 0": "gpus = 0: it must be 1 .. 8",
    "--gpus 9": "gpus = 9: it must be 1 .. 8",
    "--run-time 0": "run-time = '0': it must be longer than nothing",
    "--run-time soon": "90s, 30m, 1h or 2d",
    "--deadline 0s": "deadline = '0s': it must be longer than nothing",
    "--deadline -5h": "90s, 30m, 1h or 2d",
    "--at yesterday": "neither a date",
    "--at 2017-10-06": "only offsets",
    "--policy fifo": "policy fifo: only sensascale and sensascale-plus can be asked",
    "--policy sensascale": "with admission=off it promises nothing",
    "--policy sensascale-plus:order=fifo": "with admission=off it promises nothing",
    "--knob admission=off": "with admission=off it promises nothing",
    "--estimates none": "orders by estimates",
    "--placement count": "needs nodes",
    "--model resnet18": "model resnet18: it goes with --curves",
    "--curves builtin --model resnt18": "did you mean 'resnet18'",
    "--window 5d..6d": "spans 0.00d .. 0.00d",
}

EVALUATE_OPTIONS = {
    "--lines fixd": "did you mean 'fixed'",
    "--lines ''": "unknown line ''",
    "--lines fixed,fixed": "named twice",
    "--interval 0": "longer than nothing",
    "--interval nan": "90s, 30m, 1h or 2d",
    "--interval 0.001s": "the limit is 100,000",
    "--window 0s..3000000d": "the limit is 100,000",
    "--window 5d..6d": "spans 0.00d .. 0.00d",
    "--tie-seeds -1": "0 or more",
    "--arrivals nearst": "did you mean 'nearest'",
    "--futures 0": "it must be 1 .. 64",
    "--futures 65": "it must be 1 .. 64",
    "--report nowhere/page.html": "no folder nowhere",
    "--report folder": "is a folder",
    "--report /dev/full": "No space left",
    "--policy policies.py::FailsInDecide": "policies.py:34)",
}

OTHERS = {
    "knobs tirsias": "did you mean 'tiresias'",
    "compare jobs.csv --nodes 1 --policy fifo:": "is not NAME",
    "compare jobs.csv --nodes 1 --policy ''": "is not NAME",
    "compare jobs.csv --nodes 1 --policy fifo:backfill=skip,backfill=strict": "given twice",
    "compare jobs.csv --nodes 1 --policy fifo --policy srtf --knob num_queues=3": "none of the policies",
    "compare jobs.csv --nodes 1 --policy fifo --quiet --report /dev/full": "No space left",
    "trace describe missing.csv": "no such file",
    "trace describe jobs.csv --gpus 0": "at least 1",
    "trace describe jobs.csv --report nowhere/page.html": "no folder nowhere",
    "trace deadlines jobs.csv out.csv --load 0.9 --gpus 0": "gpus = 0: it must be at least 1",
    "trace deadlines jobs.csv out.csv --load 1 --gpus 1000000000000000": "shorter than a millisecond",
    "trace deadlines jobs.csv out.csv --load 0.01 --gpus 99999999999999999999": "99,999,999,999,999,999,999",
    "trace deadlines far.csv out.csv --load 0.01 --gpus 1": "load = 0.01 on 1 GPUs: the trace would be over",
    "trace deadlines zero.csv out.csv --gpus 8": "all jobs come at one instant",
    "trace deadlines zero.csv out.csv --gpus 8 --load 1": "all jobs come at one instant",
    "trace deadlines jobs.csv out.csv --gpus 8 --load nan": "load = nan: it must be 0.01 .. 100",
    "trace convert jobs.csv out.xls": "ends in one of",
    "trace convert jobs.csv nowhere/out.csv": "no folder nowhere",
    "trace convert jobs.csv out.csv --thin 0.5 --seed -1": "seed = -1",
    "trace generate pilly out.csv": "did you mean 'philly'",
    "trace generate 'philly?seed=1' out.csv --seed 2": "seed",
    "trace fetch fily": "did you mean 'philly'",
    "demo --out jobs.csv": "nothing was run",
}

COMMANDS = {
    **{SIMULATE.format(source=source): says for source, says in SOURCES.items()},
    **{f"{SIMULATE.format(source='jobs.csv')} {more}": says for more, says in SIMULATE_OPTIONS.items()},
    **{f"simulate jobs.csv --policy fifo --cluster {more}": says for more, says in CLUSTERS.items()},
    **{f"{TUNE} {more}": says for more, says in TUNE_OPTIONS.items()},
    **{f"{ADMIT} {more}": says for more, says in ADMIT_OPTIONS.items()},
    f"{ADMIT.replace('--nodes 1', '--cluster good.toml')}": "name the job's with --vc",
    f"{ADMIT.replace('--nodes 1', '--cluster good.toml')} --vc y": "unknown virtual cluster 'y'",
    **{f"{EVALUATE} {more}": says for more, says in EVALUATE_OPTIONS.items()},
    **OTHERS,
    "simulate jobs.csv --policy fifo": "either --nodes",
}


@pytest.mark.parametrize(("command", "says"), COMMANDS.items(), ids=COMMANDS)
def test_is_refused_in_one_line(command: str, says: str, folder: Path, trimtab: Trimtab) -> None:
    before = sorted(folder.iterdir())
    ran = trimtab(command)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("trimtab: ")
    assert ran.err.count("\n") == 1
    assert says in ran.err
    assert sorted(path for path in folder.iterdir() if path.name != "__pycache__") == before


USAGE = (
    "",
    "frobnicate",
    "simulate",
    "simulate jobs.csv --polcy fifo",
    "simulate jobs.csv --policy fifo --nodes two",
    "simulate jobs.csv --policy fifo --nodes 1.5",
    "simulate jobs.csv --policy fifo --nodes 1 --format yaml",
    "compare jobs.csv --nodes 1",
    "tune jobs.csv --policy fifo --nodes 1",
    "admit jobs.csv --at 20s --run-time 1h --nodes 1",
    "admit jobs.csv --at 20s --run-time 1h --nodes 1 --gpus two",
    "evaluate jobs.csv --policy fifo --nodes 1",
    "trace describe",
    "trace frobnicate",
)


@pytest.mark.parametrize("command", USAGE)
def test_wrong_usage_exits_with_2(command: str, folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab(command)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert "Usage" in ran.err + ran.out


def test_bad_rows_are_left_out_and_counted(folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab("simulate odd.csv --policy fifo --nodes 1 --format json")
    found = ran.json()
    assert found["trace"]["rows"] == 4
    assert found["trace"]["kept"] == found["metrics"]["finished"] == 2
    assert found["trace"]["left_out"] == {"run time is negative": 1, "asks for no GPU": 1}
    assert "negative,10,-5,1" in ran.err


def test_unsorted_rows_are_sorted(folder: Path, trimtab: Trimtab) -> None:
    assert trimtab("simulate unsorted.csv --policy fifo --nodes 1 --jobs-out out.csv").code == 0
    rows = (folder / "out.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["job_id", "early", "late"]


def test_a_job_wider_than_its_cluster_is_rejected_and_blocks_nobody(folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab("simulate jobs.csv --policy fifo --nodes 1 --format json")
    assert ran.json()["metrics"]["rejected"] == 1
    assert ran.json()["metrics"]["finished"] == 5
    assert ran.err == "rejected 1 jobs: wider than 8 GPUs (e.g. f)\n"


def test_a_job_of_no_virtual_cluster_is_rejected(folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab("simulate jobs.csv --policy fifo --cluster good.toml --format json")
    assert ran.json()["metrics"]["rejected"] == 3
    assert "no such virtual cluster (e.g. c)" in ran.err


@pytest.mark.parametrize("source", ["wide.csv", "one.csv", "zero.csv"])
@pytest.mark.parametrize("policy", ["tiresias", "srtf", "qssf"])
def test_degenerate_traces_have_answers(source: str, policy: str, folder: Path, trimtab: Trimtab) -> None:
    """All jobs rejected, one single job, jobs of no length: no division by zero, no percentile of nothing."""
    plan = f"--policy {policy} --nodes 1 --budget 3 --executor local --quiet"
    found = trimtab(f"evaluate {source} {plan} --window 0s..90m --report page.html --format json").json()
    for line in found["lines"]:
        metrics = line["metrics"]
        assert metrics["finished"] + metrics["rejected"] == metrics["jobs"]
        assert (metrics["wait_s_mean"] is None) == (source == "wide.csv")
        assert {hour["verdict"] for hour in line["hours"]} <= {"keep"}
    assert (folder / "page.html").read_text().endswith("</html>\n")
    assert trimtab(f"evaluate {source} {plan} --window 0s..90m").code == 0
    assert trimtab(f"compare {source} --policy {policy} --nodes 1 --quiet --report page.html").code == 0
    assert trimtab(f"tune {source} {plan} --at 0s").code == 0


TEXTS = st.one_of(
    st.text(max_size=12),
    st.text("0123456789.-+e", max_size=8),
    st.text("0123456789smhd.:/=,", max_size=10),
    st.sampled_from(["nan", "inf", "-inf", "1e308", "-0", "٣", "0x10", "1_000", "\x00", "--", "[red]"]),
)
FUZZED = (
    "--window",
    "--knob",
    "--policy",
    "--restart-cost-s",
    "--thin",
    "--spread-speed",
    "--nodes",
    "--seed",
    "--zone",
    "--cluster",
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(option=st.sampled_from(FUZZED), text=TEXTS)
def test_any_text_is_an_answer_or_one_line(option: str, text: str, folder: Path, trimtab: Trimtab) -> None:
    quoted = shlex.quote(f"{option}={text}")
    ran = trimtab(f"simulate jobs.csv --policy fifo --nodes 1 --quiet {quoted}")
    assert "Traceback" not in ran.err
    assert ran.code in (0, 1, 2)
    if ran.code == 1:
        assert ran.err.count("\n") == 1, ran.err


def test_arrivals_without_a_run_are_said(folder: Path, trimtab: Trimtab) -> None:
    """A job that still runs holds GPUs in reality: leaving it out silently would flatter every policy."""
    Path("jobs.txt").write_text(
        "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n"
        "1|COMPLETED|2026-10-01T00:00:00|2026-10-01T00:00:00|2026-10-01T01:00:00|01:00:00|gres/gpu=1\n"
        "2|RUNNING|2026-10-01T00:00:00|2026-10-01T00:00:00|Unknown|05:00:00|gres/gpu=8\n"
    )
    ran = trimtab("simulate sacct:jobs.txt --policy fifo --nodes 1 --format json")
    assert "1 arrivals have no known run and are not simulated" in ran.err
    assert ran.json()["trace"]["unrun"] == 1


def test_jobs_outside_the_window_are_accounted_for(folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab("simulate synthetic:philly?days=2 --window 0d..1d --policy fifo --nodes 99 --format json")
    trace = ran.json()["trace"]
    assert trace["kept"] + trace["set_aside"]["outside the window"] == trace["rows"]


def test_times_in_another_unit_are_refused_before_memory_is_gone(folder: Path, trimtab: Trimtab) -> None:
    Path("far.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,1,1\nb,1e11,1,1\n")
    ran = trimtab("trace describe table:far.csv")
    assert ran.code == 1
    assert "from job a to job b" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["a:b", "", "a,b=c", "x" * 61, "red\\x1b[31m"])
def test_a_policy_needs_a_name_that_can_be_printed(name: str, folder: Path, trimtab: Trimtab) -> None:
    Path("own.py").write_text(
        f"from trimtab.policies.policy import QueuePolicy\nclass P(QueuePolicy):\n    name = '{name}'\n"
    )
    ran = trimtab("simulate jobs.csv --policy own.py::P --nodes 2")
    assert ran.code == 1
    assert "letters, digits, spaces" in ran.err


@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_a_setting_can_be_pasted_as_tune_prints_it(verb: str, folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab(
        f"{verb} jobs.csv --policy tiresias:num_queues=2,queue_thresholds=3342 --nodes 2 --format json"
    )
    run = ran.json() if verb == "simulate" else ran.json()["runs"][0]
    assert run["knobs"]["queue_thresholds"] == [3342]
