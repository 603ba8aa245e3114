"""Slurm is searched over what `scontrol reconfigure` puts in force; what needs a restart stays as it was."""

from __future__ import annotations

import pytest

from trimtab.policies.slurm import Slurm
from trimtab.policies.slurm_knobs import RECONFIGURED
from trimtab.search.sampler import design
from trimtab.search.spaces import search_space
from trimtab.world import Seeds

RESTARTED = {"SchedulerType": "sched/builtin", "PreemptType": "preempt/qos"}


@pytest.mark.parametrize("values", [{}, RESTARTED, {"PriorityWeightTRES": 70, "bf_max_job_start": 3}])
def test_a_setting_is_the_point_it_came_from_and_nothing_else_is_searched(values):
    """For points all over the space: back on the axes and out again, a setting is the same."""
    base = Slurm.space.project(values)
    space = search_space(Slurm(), base, "consolidated")
    varied = {axis.name for axis in space.axes}
    assert varied < set(RECONFIGURED)
    for point in design(space, 64, Seeds(3)):
        knobs = space.knobs(point)
        assert space.knobs(space.to_point(knobs)) == knobs
        fixed = set(knobs) - varied
        assert {name: knobs[name] for name in fixed} == {name: base[name] for name in fixed}


def test_weights_may_be_nothing_and_the_start_is_the_base():
    base = Slurm.space.defaults
    space = search_space(Slurm(), base, "consolidated")
    assert space.knobs(space.to_point(base)) == base
    ends = {axis.name: axis.decode(0.0) for axis in space.axes}
    assert space.knobs(ends)["PriorityWeightFairshare"] == 0
    ends["PriorityWeightFairshare"] = space.axes[1].decode(1.0)
    assert space.knobs(ends)["PriorityWeightFairshare"] == 100_000


def test_without_backfill_its_parameters_are_not_searched():
    base = Slurm.space.project(RESTARTED)
    assert not any(axis.name.startswith("bf_") for axis in search_space(Slurm(), base, "consolidated").axes)
