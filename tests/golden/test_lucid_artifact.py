"""Lucid on the Philly window against its authors' simulator, with that simulator's rules and with ours."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from trimtab.simulate.fast import compiled_available

_SPEC = spec_from_file_location(
    "lucid_rules", Path(__file__).resolve().parents[2] / "benchmarks" / "lucid_rules.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
rules = sys.modules["lucid_rules"] = module_from_spec(_SPEC)
_SPEC.loader.exec_module(rules)


@pytest.fixture(scope="module")
def philly(shared: Path) -> rules.Philly:
    jobs, pairs = shared / rules.JOBS, shared / rules.PAIRS
    if not (jobs.is_file() and pairs.is_file()):
        pytest.skip(f"the jobs with profiles and the pairs are not here: {jobs}, {pairs}")
    if not compiled_available():
        pytest.skip("13,085 jobs take the reference engine minutes")
    return rules.Philly.read(shared)


def test_mean_jct_is_that_of_the_authors_simulator(philly: rules.Philly) -> None:
    """Profiles end on 2 of 100 nodes; what outlives them runs on 98, from its submission on."""
    ours = philly.for_nothing("")
    assert ours.profiled == rules.THEIRS.profiled
    assert ours.jct_s == pytest.approx(rules.THEIRS.jct_s, rel=0.001)
    assert ours.pairs == pytest.approx(rules.THEIRS.pairs, rel=0.02)


def test_profiling_charged_costs_what_it_takes(philly: rules.Philly) -> None:
    """With us, a job that outlives the profiler has lost its 80 s there: 52 s a job on average."""
    charged = philly.simulated(philly.jobs, 100, philly.theirs, {**rules.PACKING, **rules.PROFILING})
    wide = sum(int(row["num_gpus"]) > 4 for row in philly.jobs)
    assert charged.preemptions == len(philly.jobs) - rules.THEIRS.profiled - wide
    assert (
        philly.charged("", philly.theirs, {**rules.PACKING, **rules.PROFILING}).jct_s
        > rules.THEIRS.jct_s + 52
    )


def test_free_gpus_first_is_what_pays_on_this_window(philly: rules.Philly) -> None:
    """Hardly a job waits once it was profiled, so a pair costs time and saves none."""
    free_first = {**rules.PACKING, **rules.PROFILING, "pack_preference": "free_first"}
    packed, free = (
        philly.charged("", philly.ours, one) for one in ({**rules.PACKING, **rules.PROFILING}, free_first)
    )
    assert free.pairs < packed.pairs
    assert free.jct_s < packed.jct_s
