"""Jobs to which CPU and memory matter, as Hypothesis draws them and as they were measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

import strategies as some
from trimtab.curve import Curve
from trimtab.simulate.workload import Workload

_SPEEDS_PPM = (0, 100_000, 333_333, 700_000, 1_000_000, 1_300_000, 1_999_999, 2_500_000)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Return a small odd curve; more of anything is nearly always as fast, sometimes it is not."""
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
def cases(draw: st.DrawFn, policies: tuple[str, ...], updates_max: int = 0, jobs_max: int = 30) -> some.Case:
    """Return a case some of whose jobs have curves, a few of them shared."""
    placements = ["consolidated", "consolidated", "relaxed"]
    case = draw(
        some.cases(policies, placements=placements, updates_max=updates_max, jobs_max=jobs_max)  # type: ignore[arg-type]
    )
    known = [None, *draw(st.lists(curves(), min_size=1, max_size=4))]
    facts = [one._replace(curve=draw(st.sampled_from(known))) for one in case.workload.facts]
    return replace(case, workload=Workload(facts, case.workload.duration_ms))
