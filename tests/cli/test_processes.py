"""What only a process of its own shows: signals, pipes, a full disk behind stdout, the examples."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LONG = "synthetic:philly?days=9"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "trimtab", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "80"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_what_stands_beside_it(path: Path) -> None:
    """The command is the indented block of the example's first docstring."""
    lines = path.read_text().split('"""')[1].splitlines()
    written = "\n".join(line for line in lines if line.startswith("    "))
    words = shlex.split(written.replace("\\\n", " "))
    assert words[0] == "trimtab"
    ran = subprocess.run(command(*words[1:]), cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert ran.stderr == ""
    assert ran.stdout == path.with_suffix(".out").read_text()


def test_examples_are_short() -> None:
    """20 lines make a policy: what follows the docstring and the imports."""
    assert EXAMPLES
    for path in EXAMPLES:
        body = path.read_text().split("\n\n\n", 1)[1]
        assert len(body.splitlines()) <= 20


SEARCH = f"evaluate {LONG} --window 7d..8d --nodes 32 --policy tiresias --budget 20 --lines selftune"


@pytest.mark.parametrize(
    ("executor", "after"), [("local", "60 %"), ("processes", "60 %"), ("dask", "20 %"), ("ray", "20 %")]
)
def test_an_interrupted_evaluation_leaves_nothing(executor: str, after: str, tmp_path: Path) -> None:
    words = f"{SEARCH} --report page.html --engine reference --executor {executor} --workers 2"
    _interrupt(tmp_path, words, f"selftune: {after}")


def test_a_terminated_evaluation_takes_its_workers_along(tmp_path: Path) -> None:
    process, workers = _searching(tmp_path)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130
    deadline_s = time.monotonic() + 20
    while any(Path(f"/proc/{one}/exe").exists() for one in workers) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{one}/exe").exists() for one in workers)
    assert list(tmp_path.iterdir()) == []


def _searching(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Return an evaluation in the middle of its searches, and its worker processes."""
    words = f"{SEARCH} --report page.html --engine reference --executor processes --workers 2"
    process = subprocess.Popen(
        command(*words.split()), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while process.stderr.readline() != "selftune: 60 %\n":
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [int(one) for one in children if b"popen_loky" in Path(f"/proc/{one}/cmdline").read_bytes()]
    assert workers
    return process, workers


def test_a_killed_worker_ends_in_one_line(tmp_path: Path) -> None:
    process, workers = _searching(tmp_path)
    os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.endswith(" %")]
    assert len(said) == 1
    assert "worker processes was killed" in said[0]
    assert process.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_comparison_leaves_nothing(tmp_path: Path) -> None:
    policies = " ".join(["--policy tiresias"] * 9)
    _interrupt(tmp_path, f"compare {LONG} --nodes 32 {policies} --report page.html", "simulating: 0 %")


def _interrupt(folder: Path, words: str, after: str) -> None:
    """Send Ctrl-C to a command, as a terminal does to all its processes, once it has said something."""
    process = subprocess.Popen(
        command(*words.split()),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while process.stderr.readline() != f"{after}\n":
        assert process.poll() is None
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.endswith(" %")]
    assert said == ["trimtab: interrupted; nothing half-written was left behind."]
    assert out == ""
    assert process.returncode == 130
    assert list(folder.iterdir()) == []


def _piped(words: str, into: str) -> subprocess.CompletedProcess[str]:
    line = f"set -o pipefail; {shlex.join(command(*words.split()))} {into}"
    return subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True)


def test_a_reader_that_goes_away_is_no_accident() -> None:
    ran = _piped("knobs tiresias --format json", "| head -1")
    assert ran.stdout == "{\n"
    assert ran.stderr == ""


@pytest.mark.parametrize("words", ["knobs tiresias", "--help"])
def test_a_full_disk_behind_stdout_is_one_line(words: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    ran = _piped(words, "> /dev/full")
    assert ran.returncode == 1
    assert ran.stderr == "trimtab: No space left on device; the result is lost.\n"
