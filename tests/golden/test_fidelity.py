"""How far simulated starts are from a history's own, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.cluster import Cluster
from trimtab.errors import InputError
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.run import World
from trimtab.studies.fidelity import fidelity
from trimtab.traces.loader import load

_HEAD = "job_id,submit_s,duration_s,gpus"


def test_errors_are_those_of_starts_either_way(tmp_path: Path) -> None:
    """On one GPU B starts at 100, C at 150; in the history they did at 104 and 140: 4 and 10 s off."""
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(f"{_HEAD},start_s\nA,0,100,1,0\nB,10,50,1,104\nC,20,50,1,140\n")
    found = fidelity(load(f"table:{jobs}"), *_fifo())
    assert (found.jobs, found.error_s, found.median_error_s) == (3, pytest.approx(14 / 3), 4.0)
    assert found.wait_s == pytest.approx((0 + 94 + 120) / 3)
    assert found.simulated_wait_s == pytest.approx((0 + 90 + 130) / 3)
    assert found.allowed_s(5) == pytest.approx(5 + 0.05 * 214 / 3)


def test_a_history_without_starts_is_refused_in_one_line(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(f"{_HEAD}\nA,0,100,1\n")
    with pytest.raises(InputError, match=r"^.*tells no starts to compare with; nothing was run\.$"):
        fidelity(load(f"table:{jobs}"), *_fifo())


def _fifo() -> tuple[Cluster, str, Knobs, World]:
    return Cluster.pool(1, 1), "fifo", find_policy("fifo").space.defaults, World(estimates="none")
