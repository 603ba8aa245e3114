"""Jobs to which CPU and memory matter, as Hypothesis draws them and as they were measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

import strategies as some
from trimtab.curve import Curve
from trimtab.simulate.workload import Workload

_SPEEDS_PPM = (0, 100_000, 333_333, 700_000, 1_000_000, 1_300_000, 1_999_999, 2_500_000)


# Twice as fast with all that helps, or with six cores; as fast with one; faster with memory alone.
_PLAIN = (
    Curve(
        (1, 3, 6, 12),
        (21_333, 64_000, 128_000),
        ((100_000,) * 4, *((300_000, 10**6, 17 * 10**5, 2 * 10**6),) * 2),
    ),
    Curve((3, 6), (32_000,), ((1_000_000, 2_000_000),)),
    Curve((1,), (21_333,), ((1_000_000,),)),
    Curve((3,), (21_333, 128_000), ((1_000_000,), (1_500_000,))),
)


def curves() -> st.SearchStrategy[Curve]:
    """Return curves as they are measured, and odd ones."""
    return st.one_of(st.sampled_from(_PLAIN), _odd())


@st.composite
def _odd(draw: st.DrawFn) -> Curve:
    """Return a small curve; more of anything is mostly as fast, sometimes it is not."""
    cores = tuple(sorted(draw(st.sets(st.sampled_from([1, 2, 3, 4, 6, 9, 24]), min_size=1, max_size=4))))
    sizes = tuple(
        sorted(draw(st.sets(st.sampled_from([1, 21_333, 64_000, 128_000]), min_size=1, max_size=3)))
    )
    rows = [
        draw(st.lists(st.sampled_from(_SPEEDS_PPM), min_size=len(cores), max_size=len(cores))) for _ in sizes
    ]
    if draw(st.integers(0, 4)):
        rows = [sorted(row) for row in rows]
    footprint_mib = draw(st.sampled_from([0, 0, 1_000, 60_000, 64_000, 70_000]))
    return Curve(cores, sizes, tuple(map(tuple, rows)), footprint_mib)


@st.composite
def cases(draw: st.DrawFn, updates_max: int = 0) -> some.Case:
    """Return a case of Synergy: most jobs have one of a few curves, and rounds are as short as the jobs."""
    case = draw(some.cases(["synergy"], placements=["consolidated", "relaxed"], updates_max=updates_max))
    known = [None, *draw(st.lists(curves(), min_size=1, max_size=4))]
    facts = [one._replace(curve=draw(st.sampled_from(known))) for one in case.workload.facts]
    drawn = {
        "round_s": draw(st.sampled_from([0, 0, 60, 300])),
        "order": draw(st.sampled_from(["fifo", "srtf", "las"])),
        "allocation": draw(st.sampled_from(["tune", "tune", "tune", "opt", "proportional"])),
    }
    workload = Workload(facts, case.workload.duration_ms)
    return replace(case, workload=workload, knobs=case.policy.space.project(drawn))
