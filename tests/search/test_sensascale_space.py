"""SensaScale's search axes: a part of its knobs, and back."""

from __future__ import annotations

import pytest

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


def test_only_the_plus_preset_varies_rescues():
    names = {
        policy.name: {axis.name for axis in search_space(policy, policy.space.defaults, "consolidated").axes}
        for policy in (SensaScale(), SensaScalePlus())
    }
    assert names["sensascale-plus"] - names["sensascale"] == {"max_evictions", "outlast", "admission"}
