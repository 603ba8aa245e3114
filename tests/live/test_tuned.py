"""A real Slurm under a setting that is bad for its jobs is tuned from end to end, and they wait less."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs import draw
from slurm_lab import Lab
from slurm_tuning import tune


def test_jobs_wait_less_once_it_is_tuned(accounted_lab: Lab, tmp_path: Path) -> None:
    before = accounted_lab.owned.read_text()
    found = tune(accounted_lab, draw(40, seed=1, span_s=2.0, run_s=(1.0, 6.0)), tmp_path)
    assert found.imported >= 41
    assert found.shadowed
    assert found.wide_before > 10_000
    assert found.wide_after <= 0  # sprio: wide jobs do not go before small ones any more
    assert found.tuned_s < 0.9 * found.untuned_s
    assert found.back == found.before != found.wanted
    assert found.fidelity.jobs == 41
    # Single starts are told less well: benchmarks/slurm_fidelity.py measures them.
    assert abs(found.fidelity.simulated_wait_s - found.fidelity.wait_s) <= found.fidelity.allowed_s(5)
    assert accounted_lab.owned.read_text() == before
