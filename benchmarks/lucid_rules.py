"""Lucid on two weeks of Philly by the rules of its authors' simulator, and step by step by ours.

The jobs have profiles from the authors' file. Their simulator packs before it looks for free GPUs, beside
the first job that goes; pairs that were not measured run at full speed, measured noise above full speed
counts; and jobs that outlive the profiler are replayed on the other nodes from their submission on, so
profiling costs them nothing. Its one bug here, a partner that stays slow when the job placed first ends, was
restored in a copy: `THEIRS` is what that gave.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trimtab.cluster import Cluster, Pace
from trimtab.curve import FULL_SPEED_PPM
from trimtab.forecast.throughput import Throughput
from trimtab.job import JobFacts
from trimtab.knobs import Value
from trimtab.policies.lucid import Lucid
from trimtab.profile import CUTS, Cuts, PairSpeeds, Profile
from trimtab.simulate.engines import Simulation, make_engine
from trimtab.simulate.speed_files import open_speeds
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

JOBS, PAIRS = Path("peers", "philly_2w_enriched.csv.gz"), Path("data", "lucid", "colocate_info.csv.gz")
NODES, PROFILER, GPUS_PER_NODE = 100, 2, 8
PROFILING: Mapping[str, Value] = {"prof_nodes": PROFILER, "t_prof": 80, "prof_factor": 2}
PACKING: Mapping[str, Value] = {"share_off_below": 0.0, "pack_preference": "pack_first", "partner": "first"}

Config = tuple[str, bool]
Row = dict[str, str]


class Result(NamedTuple):
    """What came of one way: mean JCT, jobs that ended in the profiler, pairs that were formed."""

    name: str
    jct_s: float
    profiled: int
    pairs: int


THEIRS = Result("their simulator, a partner's speed restored", 13_344.88, 4_235, 5_694)


class Measured:
    """The authors' table of pairs as their simulator reads it, and the labels of the profiles."""

    def __init__(self, pairs: Sequence[Row], jobs: Sequence[Row]) -> None:
        self.speeds: dict[tuple[Config, Config], tuple[int, int]] = {}
        for row in pairs:
            one, other = _config(row, "1"), _config(row, "2")
            speeds = round(1e6 * float(row["speed1"])), round(1e6 * float(row["speed2"]))
            self.speeds[one, other] = speeds
            self.speeds.setdefault((other, one), speeds[::-1])
        self.labels = {_config(row): int(row["sharescore"]) for row in jobs}

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        """Return the speed of each job beside the other; full speed where that was not measured."""
        pair = (one.model or "", one.amp), (other.model or "", other.amp)
        return self.speeds.get(pair, (FULL_SPEED_PPM, FULL_SPEED_PPM))

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        """Return the authors' label."""
        return self.labels[profile.model or "", profile.amp]

    def fits(self, one: Profile, other: Profile) -> bool:
        """Return that memory alone forbids a pair."""
        return True


@dataclass(frozen=True)
class Labelled:
    """The speeds of one table with the scores of another."""

    speeds: PairSpeeds
    labels: PairSpeeds

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        """Return the speed of each job beside the other."""
        return self.speeds.speeds_ppm(one, other)

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        """Return the other table's score."""
        return self.labels.score(profile, cuts)

    def fits(self, one: Profile, other: Profile) -> bool:
        """Return whether the other table lets both share a GPU."""
        return self.labels.fits(one, other)


@dataclass(frozen=True)
class Philly:
    """The jobs with their profiles, and what pairs of them cost: as the authors read it and as we do."""

    jobs: tuple[Row, ...]
    theirs: PairSpeeds
    ours: PairSpeeds

    @classmethod
    def read(cls, shared: Path) -> Philly:
        """Read the jobs and pairs below a folder.

        Raises:
            OSError: If they are not there.
        """
        jobs = _rows(shared / JOBS)
        return cls(tuple(jobs), Measured(_rows(shared / PAIRS), jobs), open_speeds(str(shared / PAIRS)))

    def simulated(
        self,
        jobs: Sequence[Row],
        nodes: int,
        speeds: PairSpeeds,
        knobs: Mapping[str, Value],
    ) -> Simulation:
        """Run Lucid to the end, told the true run times; it forecasts submissions where knobs ask for it."""
        facts = [_facts(row) for row in jobs]
        workload = Workload(facts, [1000 * int(row["duration"]) for row in jobs])
        pace: Pace | None = Throughput.of([one.submit_ms for one in facts])
        environment = Environment(estimator=OracleEstimator(workload.duration_ms), speeds=speeds, pace=pace)
        cluster, chosen = Cluster.pool(nodes, GPUS_PER_NODE), Lucid.space.project(knobs)
        engine = make_engine("auto", workload, cluster, Lucid(), chosen, environment, timeline=True)
        engine.run()
        return engine

    def for_nothing(self, name: str) -> Result:
        """Return the authors' way: what outlives the profiler is submitted anew to the other nodes."""
        profiling = self.simulated(self.jobs, NODES, self.theirs, {**PACKING, **PROFILING})
        ended = self._ended(profiling)
        others = [row for row, is_over in zip(self.jobs, ended, strict=True) if not is_over]
        rest = self.simulated(others, NODES - PROFILER, self.theirs, {**PACKING, "prof_nodes": 0})
        jct_s = [jct for jct, is_over in zip(_jct_s(profiling), ended, strict=True) if is_over]
        return Result(name, (sum(jct_s) + sum(_jct_s(rest))) / len(self.jobs), sum(ended), _pairs(rest))

    def charged(self, name: str, speeds: PairSpeeds, knobs: Mapping[str, Value]) -> Result:
        """Return our way: a job that outlives the profiler has lost its time there."""
        engine = self.simulated(self.jobs, NODES, speeds, knobs)
        return Result(name, sum(_jct_s(engine)) / len(self.jobs), sum(self._ended(engine)), _pairs(engine))

    def steps(self) -> Iterator[Result]:
        """Yield what each difference makes, one more in each."""
        yield self.for_nothing("ours by their rules, profiling for nothing")
        knobs: dict[str, Value] = {**PACKING, **PROFILING}
        yield self.charged("profiling charged", self.theirs, knobs)
        labelled = Labelled(self.ours, self.theirs)
        yield self.charged("pairs not measured by class, no speed above 1", labelled, knobs)
        yield self.charged("classes by mean speed, not by label", self.ours, knobs)
        for name, knob, value in (
            ("free GPUs first", "pack_preference", "free_first"),
            ("the best partner", "partner", "best"),
            ("no sharing while few jobs are forecast", "share_off_below", 2.0),
        ):
            knobs[knob] = value
            yield self.charged(name, self.ours, knobs)
        yield self.charged("200 s of profiling, gangs up to 8: our defaults", self.ours, {})
        yield self.charged("four nodes that profile", self.ours, {"prof_nodes": 2 * PROFILER})

    def _ended(self, engine: Simulation) -> list[bool]:
        """Return which jobs ended in the profiler: narrow ones that never started over."""
        knobs = engine.knobs
        limit = knobs.integer("prof_nodes") * knobs.integer("prof_factor")
        return [
            record.preemptions == 0 and int(row["num_gpus"]) <= limit
            for row, record in zip(self.jobs, engine.records, strict=True)
        ]


def _facts(row: Row) -> JobFacts:
    model, amp = _config(row)
    use = float(row["gpu_util"]), float(row["gmem_util"]), round(float(row["gmem"]))
    submit_ms, gpus = 1000 * int(row["submit_time"]), int(row["num_gpus"])
    return JobFacts(row["job_id"], submit_ms, gpus, profile=Profile(model, *use, amp))


def _config(row: Row, end: str = "") -> Config:
    return "/".join(row[name + end] for name in ("model", "dataset", "batchsize")), row[f"amp{end}"] == "1"


def _rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


def _jct_s(engine: Simulation) -> list[float]:
    facts = engine.workload.facts
    return [
        (record.finish_ms - one.submit_ms) / 1000
        for record, one in zip(engine.records, facts, strict=True)
        if record.finish_ms is not None
    ]


def _pairs(engine: Simulation) -> int:
    assert engine.timeline is not None
    return sum(bool(event.detail) for event in engine.timeline.events if event.kind == "start")
