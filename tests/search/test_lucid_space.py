"""Lucid's search axes: modes of sharing are said by knobs, and back."""

from __future__ import annotations

import pytest

from trimtab.cluster import Cluster
from trimtab.policies.lucid import Lucid
from trimtab.search.sampler import design
from trimtab.search.spaces import search_space
from trimtab.world import Seeds

SPACE = search_space(Lucid(), Lucid.space.defaults, "consolidated")


@pytest.mark.parametrize(
    ("sharing", "gsc", "below"), [("off", 0, 2.0), ("adaptive", 3, 4.5), ("always", 3, 0.0)]
)
def test_a_mode_of_sharing_is_said_by_two_knobs(sharing, gsc, below):
    point = {**SPACE.to_point(SPACE.base), "sharing": sharing, "gsc": 3, "share_off_below": 4.5}
    knobs = SPACE.knobs(point)
    assert (knobs["gsc"], knobs["share_off_below"]) == (gsc, below)
    assert SPACE.to_point(knobs)["sharing"] == sharing


def test_a_setting_is_the_point_it_came_from():
    """For points all over the space: back on the axes and out again, a setting is the same."""
    for point in design(SPACE, 64, Seeds(3)):
        knobs = SPACE.knobs(point)
        assert SPACE.knobs(SPACE.to_point(knobs)) == knobs


def test_what_a_mode_does_not_use_makes_no_difference():
    """Without sharing, or without a profiler, settings that differ only in what is not used are one."""
    point = SPACE.to_point(SPACE.base)
    alone = {**point, "sharing": "off"}
    assert SPACE.knobs({**alone, "jumbo_below": 0.8, "prio_ratio": 5.0}) == SPACE.knobs(alone)
    unprofiled = {**point, "prof_nodes": 0}
    assert SPACE.knobs({**unprofiled, "t_prof": 900.0}) == SPACE.knobs(unprofiled)


def test_the_search_leaves_facts_alone():
    """What the machines have is no choice, and what was set by hand stays."""
    base = Lucid.space.project({"mem_limit": 12_000, "backfill": "strict", "partner": "first"})
    space = search_space(Lucid(), base, "consolidated")
    for point in design(space, 32, Seeds(4)):
        knobs = space.knobs(point)
        assert (knobs["mem_limit"], knobs["backfill"]) == (12_000, "strict")


@pytest.mark.parametrize(("nodes", "most"), [(4, 1), (19, 1), (20, 2), (69, 6), (100, 8)])
def test_at_most_a_tenth_of_the_nodes_profiles(nodes, most):
    """And at least one may. A setting that has more starts from the nearest point."""
    cluster = Cluster.partitioned([("small", 3, 8), ("large", nodes, 8)])
    space = search_space(Lucid(), Lucid.space.project({"prof_nodes": 8}), "consolidated", cluster)
    assert space.axes[0].values() == list(range(most + 1))
    assert space.to_point(space.base)["prof_nodes"] == most
    assert {space.knobs(point)["prof_nodes"] for point in design(space, 64, Seeds(3))} == set(range(most + 1))


def test_without_measured_pairs_there_are_no_cuts_to_search():
    """What jobs use decides their class then; the cuts stay as they are."""
    base = Lucid.space.project({"jumbo_below": 0.7, "medium_below": 0.9})
    space = search_space(Lucid(), base, "consolidated", has_pairs=False)
    assert {axis.name for axis in SPACE.axes} - {axis.name for axis in space.axes} == {
        "jumbo_below",
        "medium_below",
    }
    for point in design(space, 64, Seeds(3)):
        knobs = space.knobs(point)
        assert space.knobs(space.to_point(knobs)) == knobs
        cuts = (0.85, 0.95) if knobs["gsc"] == 0 else (0.7, 0.9)
        assert (knobs["jumbo_below"], knobs["medium_below"]) == cuts
