"""SensaScale's search axes: a part of its knobs, and back."""

from __future__ import annotations

import pytest

from trimtab.policies.edf import Edf
from trimtab.policies.sensascale import SensaScale, SensaScalePlus
from trimtab.search.sampler import design
from trimtab.search.spaces import search_space
from trimtab.world import Seeds


@pytest.mark.parametrize("policy", [SensaScale(), SensaScalePlus()])
def test_a_setting_is_the_point_it_came_from(policy):
    """For points all over the space: back on the axes and out again, a setting is the same."""
    space = search_space(policy, policy.space.defaults, "consolidated")
    for point in design(space, 64, Seeds(3)):
        knobs = space.knobs(point)
        assert space.knobs(space.to_point(knobs)) == knobs
        assert knobs["preempt"] == policy.space.defaults["preempt"]


def axes_of(policy, **values):
    base = policy.space.project({**policy.space.defaults, **values})
    return {axis.name for axis in search_space(policy, base, "consolidated").axes}


def test_only_the_plus_preset_varies_rescues():
    plus, plain = axes_of(SensaScalePlus()), axes_of(SensaScale())
    assert plus - plain == {"max_evictions", "outlast", "admission"}
    assert plain - plus == {"lst_ref", "be_order"}  # shortest time left first does not ask for them


def test_what_has_no_effect_is_not_searched():
    plus = SensaScalePlus()
    assert "urgent" in axes_of(plus)
    assert {"lst_ref", "be_order"} <= axes_of(plus, order="lst")
    assert "outlast" not in axes_of(plus, preempt="rescue")
    assert not axes_of(plus, order="fifo") & {"urgent", "hopeless_share", "max_evictions", "admission"}


def test_what_a_choice_on_the_axes_can_wake_is_searched():
    assert "reserve" in axes_of(SensaScale(), backfill="none")
    assert "min_run" in {axis.name for axis in search_space(Edf(), Edf.space.defaults, "consolidated").axes}


@pytest.mark.parametrize("policy", [SensaScale(), SensaScalePlus()])
def test_each_axis_changes_some_setting(policy):
    space = search_space(policy, policy.space.defaults, "consolidated")
    points = design(space, 64, Seeds(3))
    for axis in space.axes:
        other = [{**point, axis.name: axis.decode(end)} for point in points for end in (0.0, 1.0)]
        assert len({space.knobs(point) for point in [*points, *other]}) > len(set(map(space.knobs, points)))
