"""A trace is never written over by what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Trimtab

JOBS = "job_id,submit_s,duration_s,gpus\na,0,600,1\nb,60,600,2\n"


@pytest.mark.parametrize("verb", ["convert", "deadlines"])
@pytest.mark.parametrize("prefix", ["", "table:"])
@pytest.mark.parametrize("linked", [False, True])
def test_the_source_is_no_output(
    verb: str, prefix: str, linked: bool, tmp_path: Path, trimtab: Trimtab
) -> None:
    source = tmp_path / "jobs.csv"
    source.write_text(JOBS)
    out = tmp_path / "other.csv" if linked else source
    if linked:
        out.symlink_to(source)
    done = trimtab(f"trace {verb} {prefix}{source} {out}")
    assert done.code == 1
    assert "is the trace that is read; nothing was written." in done.err
    assert source.read_text() == JOBS
