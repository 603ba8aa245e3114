"""Chronus on a few jobs each, worked out by hand."""

from __future__ import annotations

import pytest

from trimtab.policies.lease_milp import recorded, solve
from trimtab.policies.lease_plan import Capacity, Request, plan_greedily

# Four GPUs: A and C need two leases of three, B one of two.
A, B, C = Request(0, 2, 2, (3,), (10,)), Request(1, 4, 1, (2,), (10,)), Request(2, 2, 2, (3,), (10,))
D = Request(3, 2, 1, (1,), (10,))


def test_the_hardest_job_is_planned_first_each_from_its_last_lease():
    """B is widest: lease 1. A takes 2, finds 1 full, takes 0; C beside it. Lease 0 is full by then."""
    for maximize in (True, False):
        assert plan_greedily([A, B, C], {}, 4, maximize=maximize) == {0: (0, 2), 1: (1,), 2: (0, 2)}


def test_the_program_finds_the_same_plan():
    """Three deadlines of 10, and 4 of 4 GPUs used in lease 0."""
    with recorded() as record:
        solution = solve([A, B, C], {}, 4, maximize=True, rows_max=400)
    assert solution is not None
    assert solution.plans == {0: (0, 2), 1: (1,), 2: (0, 2)}
    assert solution.value == pytest.approx(31)
    assert (record.solves, record.limited, record.failed, record.worst_gap) == (1, 0, 0, 0)


def test_one_job_more_has_no_room_before_its_deadline():
    """Leases 0 to 2 are full, so that D could be promised the end of lease 3: 80 minutes of 20 each."""
    capacity = Capacity(4)
    for request, plan in zip((A, B, C), ((0, 2), (1,), (0, 2)), strict=True):
        capacity.take(request.gpus, plan)
    assert capacity.latest(D.gpus, D.leases, D.window) == ()
    assert capacity.smallest_window(D.gpus, D.leases) == 4
    with recorded() as record:
        assert solve([A, B, C, D], {}, 4, maximize=True, rows_max=400) is None
    assert record.failed == 1
