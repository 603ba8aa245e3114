"""Lucid on the Philly window against its authors' simulator, with that simulator's rules.

A copy of it in which a partner's speed is restored gives 13,344.88 s of mean JCT, 4,235 jobs that end in
the profiler and 5,694 pairs. It packs before it looks for free GPUs, beside the first job that goes; pairs
that were not measured run at full speed, measured noise above full speed counts; and jobs that outlive the
profiler are replayed on the other nodes from their submission on, so profiling costs them nothing.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import pytest

from trimtab.cluster import Cluster
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobFacts
from trimtab.policies.lucid import Lucid
from trimtab.profile import CUTS, Cuts, Profile
from trimtab.simulate.engines import Simulation, make_engine
from trimtab.simulate.fast import compiled_available
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

THEIRS_JCT_S, THEIRS_PROFILED, THEIRS_PAIRS = 13_344.88, 4_235, 5_694
PACKS = {"share_off_below": 0.0, "pack_preference": "pack_first", "partner": "first"}
Config = tuple[str, bool]
Row = dict[str, str]


class Measured:
    """The authors' table of pairs, and the labels of the profiles."""

    def __init__(self, pairs: list[Row], jobs: list[Row]) -> None:
        self.speeds: dict[tuple[Config, Config], tuple[int, int]] = {}
        for row in pairs:
            one, other = _config(row, "1"), _config(row, "2")
            speeds = round(1e6 * float(row["speed1"])), round(1e6 * float(row["speed2"]))
            self.speeds[one, other] = speeds
            self.speeds.setdefault((other, one), speeds[::-1])
        self.labels = {_config(row): int(row["sharescore"]) for row in jobs}

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        pair = (one.model or "", one.amp), (other.model or "", other.amp)
        return self.speeds.get(pair, (FULL_SPEED_PPM, FULL_SPEED_PPM))

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        return self.labels[profile.model or "", profile.amp]

    def fits(self, one: Profile, other: Profile) -> bool:
        return True


class Philly(NamedTuple):
    jobs: list[Row]
    measured: Measured

    def simulated(self, jobs: list[Row], nodes: int, **knobs: int) -> Simulation:
        """Run to the end on so many nodes."""
        facts = [
            JobFacts(
                row["job_id"], 1000 * int(row["submit_time"]), int(row["num_gpus"]), profile=_profile(row)
            )
            for row in jobs
        ]
        workload = Workload(facts, [1000 * int(row["duration"]) for row in jobs])
        environment = Environment(estimator=OracleEstimator(workload.duration_ms), speeds=self.measured)
        space = Lucid.space
        engine = make_engine(
            "auto",
            workload,
            Cluster.pool(nodes, 8),
            Lucid(),
            space.project({**PACKS, **knobs}),
            environment,
            timeline=True,
        )
        engine.run()
        return engine


def _config(row: Row, end: str = "") -> Config:
    return "/".join(row[name + end] for name in ("model", "dataset", "batchsize")), row[f"amp{end}"] == "1"


def _profile(row: Row) -> Profile:
    model, amp = _config(row)
    return Profile(model, float(row["gpu_util"]), float(row["gmem_util"]), round(float(row["gmem"])), amp)


def _rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def philly(shared: Path) -> Philly:
    jobs = shared / "peers" / "philly_2w_enriched.csv.gz"
    pairs = shared / "data" / "lucid" / "colocate_info.csv.gz"
    if not (jobs.is_file() and pairs.is_file()):
        pytest.skip(f"the jobs with profiles and the pairs are not here: {jobs}, {pairs}")
    if not compiled_available():
        pytest.skip("13,085 jobs take the reference engine minutes")
    table = _rows(jobs)
    return Philly(table, Measured(_rows(pairs), table))


def _jct_s(engine: Simulation) -> list[float]:
    facts = engine.workload.facts
    return [
        (record.finish_ms - one.submit_ms) / 1000
        for record, one in zip(engine.records, facts, strict=True)
        if record.finish_ms is not None
    ]


def test_mean_jct_is_that_of_the_authors_simulator(philly):
    """Profiles end on 2 of 100 nodes; what outlives them runs on 98, from its submission on."""
    profiling = philly.simulated(philly.jobs, 100, prof_nodes=2, t_prof=80, prof_factor=2)
    ended = [
        record.preemptions == 0 and int(row["num_gpus"]) <= 4
        for row, record in zip(philly.jobs, profiling.records, strict=True)
    ]
    assert sum(ended) == THEIRS_PROFILED
    others = [row for row, is_over in zip(philly.jobs, ended, strict=True) if not is_over]
    rest = philly.simulated(others, 98, prof_nodes=0)
    jct_s = [jct for jct, is_over in zip(_jct_s(profiling), ended, strict=True) if is_over] + _jct_s(rest)
    assert sum(jct_s) / len(philly.jobs) == pytest.approx(THEIRS_JCT_S, rel=0.01)
    assert rest.timeline is not None
    pairs = sum(bool(event.detail) for event in rest.timeline.events)
    assert pairs == pytest.approx(THEIRS_PAIRS, rel=0.02)


def test_profiling_charged_costs_what_it_takes(philly):
    """With us, a job that outlives the profiler has lost its 80 s there: 52 s a job on average."""
    charged = philly.simulated(philly.jobs, 100, prof_nodes=2, t_prof=80, prof_factor=2)
    assert charged.preemptions == 13_085 - THEIRS_PROFILED - sum(
        int(row["num_gpus"]) > 4 for row in philly.jobs
    )
    assert sum(_jct_s(charged)) / len(philly.jobs) > THEIRS_JCT_S + 52
