"""Chronus is searched over its leases and what they are used for; who plans them stays as it was."""

from __future__ import annotations

from trimtab.policies.chronus import Chronus
from trimtab.search.sampler import design
from trimtab.search.spaces import search_space
from trimtab.world import Seeds

BASE = Chronus.space.project({"selector": "milp", "solve_limit": 5})
SPACE = search_space(Chronus(), BASE, "consolidated")


def test_a_setting_is_the_point_it_came_from():
    """For points all over the space: back on the axes and out again, a setting is the same."""
    for point in design(SPACE, 64, Seeds(3)):
        knobs = SPACE.knobs(point)
        assert SPACE.knobs(SPACE.to_point(knobs)) == knobs


def test_who_plans_is_not_searched():
    for point in design(SPACE, 16, Seeds(3)):
        knobs = SPACE.knobs(point)
        assert (knobs["selector"], knobs["solve_limit"]) == ("milp", 5)
