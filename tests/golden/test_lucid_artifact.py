"""Lucid on the Philly window against its authors' simulator, with that simulator's rules and with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_rules import JOBS, PACKING, PAIRS, PROFILING, THEIRS, Philly
from trimtab.simulate.fast import compiled_available


@pytest.fixture(scope="module")
def philly(shared: Path) -> Philly:
    jobs, pairs = shared / JOBS, shared / PAIRS
    if not (jobs.is_file() and pairs.is_file()):
        pytest.skip(f"the jobs with profiles and the pairs are not here: {jobs}, {pairs}")
    if not compiled_available():
        pytest.skip("13,085 jobs take the reference engine minutes")
    return Philly.read(shared)


def test_mean_jct_is_that_of_the_authors_simulator(philly: Philly) -> None:
    """Profiles end on 2 of 100 nodes; what outlives them runs on 98, from its submission on."""
    ours = philly.for_nothing("")
    assert ours.profiled == THEIRS.profiled
    assert ours.jct_s == pytest.approx(THEIRS.jct_s, rel=0.001)
    assert ours.pairs == pytest.approx(THEIRS.pairs, rel=0.02)


def test_profiling_charged_costs_what_it_takes(philly: Philly) -> None:
    """With us, a job that outlives the profiler has lost its 80 s there: 52 s a job on average."""
    charged = philly.simulated(philly.jobs, 100, philly.theirs, {**PACKING, **PROFILING})
    wide = sum(int(row["num_gpus"]) > 4 for row in philly.jobs)
    assert charged.preemptions == len(philly.jobs) - THEIRS.profiled - wide
    assert philly.charged("", philly.theirs, {**PACKING, **PROFILING}).jct_s > THEIRS.jct_s + 52


def test_free_gpus_first_is_what_pays_on_this_window(philly: Philly) -> None:
    """Hardly a job waits once it was profiled, so a pair costs time and saves none."""
    free_first = {**PACKING, **PROFILING, "pack_preference": "free_first"}
    packed, free = (philly.charged("", philly.ours, one) for one in ({**PACKING, **PROFILING}, free_first))
    assert free.pairs < packed.pairs
    assert free.jct_s < packed.jct_s
