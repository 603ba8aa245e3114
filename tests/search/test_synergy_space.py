"""Synergy's search axes: few enough settings to try them all."""

from __future__ import annotations

from trimtab.policies.synergy import Synergy
from trimtab.search.spaces import search_space


def settings(**values):
    base = Synergy.space.project(values)
    found = search_space(Synergy(), base, "consolidated").enumerate(200)
    assert found is not None
    return found


def test_all_settings_are_tried_that_need_neither_estimates_nor_integer_programs():
    """2 orders x 6 lengths of rounds x 2 allocations, the default among them."""
    found = settings()
    assert len(found) == 24
    assert Synergy.space.defaults in found
    assert not any(knobs["order"] == "srtf" or knobs["allocation"] == "opt" for knobs in found)


def test_who_asks_for_estimates_or_integer_programs_gets_them():
    assert len(settings(order="srtf")) == 36
    opt = settings(allocation="opt")
    assert len(opt) == 12
    assert all(knobs["allocation"] == "opt" for knobs in opt)
