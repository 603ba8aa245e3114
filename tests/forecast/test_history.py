"""What a trace tells of its jobs at an instant."""

from __future__ import annotations

import numpy as np
import polars as pl

from trimtab.forecast.history import NEVER_MS, History
from trimtab.traces.trace import Provenance, Trace


def _trace() -> Trace:
    rows = {
        "job_id": ["a", "b", "c", "d"],
        "submit_ms": [0, 100, 200, 300],
        "duration_ms": [50, 500, 100, 10],
        "gpus": [1, 2, 4, 8],
        "user": ["ann", "bob", None, "ann"],
    }
    return Trace.build(pl.DataFrame(rows), Provenance("table:small", "0" * 64, 4))


def test_completions_and_work_as_known_at_an_instant() -> None:
    past = History.of(_trace()).as_of(300)
    assert past.submit_ms.tolist() == [0, 100, 200]
    assert past.finish_ms.tolist() == [50, NEVER_MS, 300]
    assert past.ran_ms.tolist() == [50, 200, 100]
    assert past.completed.tolist() == [True, False, True]


def test_labels_are_the_same_numbers_at_every_instant() -> None:
    history = History.of(_trace())
    assert history.as_of(1000).user.tolist() == [0, 1, -1, 0]
    assert history.as_of(150).user.tolist() == [0, 1]
    assert history.as_of(1000).vc.tolist() == [-1] * 4


def test_before_the_first_job_nothing_is_known() -> None:
    assert len(History.of(_trace()).as_of(0)) == 0


def test_work_never_shrinks_as_time_goes_on() -> None:
    history = History.of(_trace())
    before = history.as_of(201)
    for now_ms in (202, 300, 601, 10_000):
        after = history.as_of(now_ms)
        assert np.all(after.ran_ms[: len(before)] >= before.ran_ms)
        before = after
