"""Aggregation keeps service exactly, whatever the jobs, and changes nothing where nothing may be merged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.forecast.aggregate import LADDER, Coarseness, aggregate
from trimtab.job import JobFacts
from trimtab.profile import Profile

HOUR_MS = 3_600_000


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[JobFacts], list[int]]:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, HOUR_MS), st.sampled_from([1, 1, 1, 2, 3, 4, 8, 16]), st.integers(0, 10**7)
            ),
            max_size=60,
        )
    )
    rows.sort(key=lambda row: row[0])
    vcs = draw(st.sampled_from([[None], ["a", "b"]]))
    facts = [JobFacts(f"j{i}", at, gpus, vcs[i % len(vcs)]) for i, (at, gpus, _) in enumerate(rows)]
    return facts, [run_ms for _, _, run_ms in rows]


@settings(max_examples=200, derandomize=True, database=None)
@given(jobs(), st.sampled_from([*LADDER, Coarseness(60_000, 0.1, 3)]), st.sampled_from([1, 4, 8]))
def test_service_jobs_and_capacity_are_kept(
    before: tuple[list[JobFacts], list[int]], how: Coarseness, gpus_max: int
) -> None:
    facts, runs = aggregate(*before, how, gpus_max)
    assert sum(one.gpus * ms for one, ms in zip(facts, runs, strict=True)) == sum(
        one.gpus * ms for one, ms in zip(*before, strict=True)
    )
    assert sum(one.members for one in facts) == len(before[0])
    assert [one.submit_ms for one in facts] == sorted(one.submit_ms for one in facts)
    for one in facts:
        assert one.members <= how.members_max
        assert one.members == 1 or one.gpus <= gpus_max
        assert one.gpus % one.members == 0
    widths = sorted((one.vc or "", one.gpus // one.members) for one in facts for _ in range(one.members))
    assert widths == sorted((one.vc or "", one.gpus) for one in before[0])


@settings(max_examples=50, derandomize=True, database=None)
@given(jobs())
def test_one_member_at_most_is_no_aggregation(before: tuple[list[JobFacts], list[int]]) -> None:
    facts, runs = aggregate(*before, Coarseness(HOUR_MS, 1.0, 1), 8)
    assert sorted(zip([one.label for one in facts], runs, strict=True)) == sorted(
        zip([one.label for one in before[0]], before[1], strict=True)
    )


@settings(max_examples=50, derandomize=True, database=None)
@given(jobs())
def test_coarser_is_never_more_jobs(before: tuple[list[JobFacts], list[int]]) -> None:
    counts = [len(aggregate(*before, Coarseness(HOUR_MS, 1.0, most), 8)[0]) for most in (1, 2, 4, 8)]
    assert counts == sorted(counts, reverse=True)


def test_a_small_case_by_hand() -> None:
    """Five jobs of 2 GPUs in one span, at most 6 GPUs: three as one, one left over, and the last alone."""
    facts = [JobFacts(f"j{i}", at, 2) for i, at in enumerate((0, 10, 50, 60, 70))]
    found, runs = aggregate(facts, [1000, 1001, 1002, 1010, 2000], Coarseness(HOUR_MS, 1.0, 8), 6)
    assert [(one.submit_ms, one.gpus, one.members) for one in found] == [(20, 6, 3), (60, 2, 1), (70, 2, 1)]
    assert runs == [1001, 1010, 2000]


@pytest.mark.parametrize(
    "other",
    [{"vc": "b"}, {"gpus": 1}, {"skew_ppm": 5}, {"spread_ppm": 5}, {"profile": Profile(model="bert")}],
)
def test_jobs_that_a_scheduler_would_treat_otherwise_stay_apart(other: dict[str, Any]) -> None:
    alike = [JobFacts(f"j{i}", i, 2, "a") for i in range(6)]
    mixed = [one._replace(**other) if place % 2 else one for place, one in enumerate(alike)]
    how = Coarseness(HOUR_MS, 1.0, 8)
    assert [one.members for one in aggregate(alike, [1000] * 6, how, 8)[0]] == [4, 1, 1]
    found, _ = aggregate(mixed, [1000] * 6, how, 8)
    assert sorted(one.members for one in found) == [1, 1, 2, 2]
    for one in found:
        assert one._replace(submit_ms=0, members=1, label="", gpus=one.gpus // one.members) in [
            each._replace(submit_ms=0, label="") for each in mixed
        ]
