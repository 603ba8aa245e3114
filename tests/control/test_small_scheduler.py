"""The example scheduler keeps the promises and prints what it says; the how-to's dialogue is real."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trimtab.control.adapter import Adapter
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.testing import AdapterConformance

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "grpc" / "small_scheduler.py"
TOKEN = "a-token-nobody-guesses"


@contextmanager
def running(speedup: float) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run the example at a free port."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--port", "0", "--speedup", str(speedup)],
        env={**os.environ, "SCHEDULER_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield int(line.split(":")[1].split(",")[0]), process
    finally:
        process.kill()
        process.communicate()


class TestSmallScheduler(AdapterConformance):
    port: int

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _process(cls) -> Iterator[None]:
        with running(100_000) as (cls.port, _):
            time.sleep(0.2)  # hours of its clock, so that there are jobs
            yield

    def make(self) -> Adapter:
        return GrpcAdapter(f"127.0.0.1:{self.port}", TOKEN, "fifo")

    def unreachable(self) -> Adapter:
        return GrpcAdapter("127.0.0.1:1", TOKEN, "fifo", deadline_s=1)

    def pass_time(self, adapter: Adapter) -> None:
        """Nothing to wait for: it is in force at once."""


def test_the_dialogue_of_the_how_to_is_real() -> None:
    page = (ROOT / "docs" / "how-to" / "write-an-adapter.md").read_text()
    dialogue = page.split("```pycon\n")[1].split("```")[0]
    printed = page.split("```text\n")[1].split("```")[0]
    assert printed == EXAMPLE.with_suffix(".out").read_text()
    with running(100) as (port, process):
        time.sleep(0.2)  # the first job has started by then
        text = dialogue.replace("127.0.0.1:50051", f"127.0.0.1:{port}")
        example = doctest.DocTestParser().get_doctest(text, {}, "how-to", None, 0)
        found = doctest.DocTestRunner().run(example)
        assert found.failed == 0
        assert found.attempted == 11
        assert process.stdout is not None
        assert f"listening at 127.0.0.1:50051, backfill=strict\n{process.stdout.readline()}" == printed


def test_the_example_is_sixty_lines() -> None:
    body = EXAMPLE.read_text().split("\n\n\n", 1)[1].split('\n\nif __name__ == "__main__":')[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 60
