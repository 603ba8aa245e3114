"""`study deadlines`: the cells of a grid on all cores, each written down as it ends, and resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from trimtab import __version__
from trimtab.control.journal import plain
from trimtab.errors import ConfigError, InputError, OutputError, TrimtabError
from trimtab.knobs import Knobs
from trimtab.simulate.curves import CurveTable
from trimtab.simulate.executors import as_finished
from trimtab.simulate.metrics import Metrics
from trimtab.simulate.mix import with_curve_models
from trimtab.simulate.run import World, simulate
from trimtab.studies.deadline_grid import AS_TOLD, Case, Cell, Grid, cluster_of, estimates_of
from trimtab.traces.deadlines import load_of, scaled_to_load, thinned_by_job, with_deadlines
from trimtab.traces.files import write
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

CELLS = "cells.jsonl"
FORMAT = 2  # of what a cell holds; goes up when cells tell more or otherwise, so that none are mixed

Progress = Callable[[str, float], None]


class Entry(NamedTuple):
    """A policy and its settings."""

    policy: str
    knobs: Knobs


class Done(NamedTuple):
    """What a cell gave: its metrics, or why it has none. `cpu_s`, `events`: of the engine."""

    cell: Cell
    metrics: Metrics
    failed: str = ""
    cpu_s: float = 0.0
    events: int = 0

    def jsonable(self) -> dict[str, Any]:
        """Return the line that is written down."""
        case = self.cell.case._asdict()
        named = {"policy": self.cell.policy, "seed": self.cell.seed, "failed": self.failed}
        spent = {"cpu_s": self.cpu_s, "events": self.events}
        return {**case, **named, **spent, "metrics": plain(self.metrics)}

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Done:
        """Return what a line says.

        Raises:
            ValueError: If that is not what a cell gives; KeyError, TypeError: so may these.
        """
        case = Case(*(line[name] for name in Case._fields))
        cell = Cell(case, line["seed"], line["policy"])
        found = cls(cell, dict(line["metrics"]), line["failed"], line["cpu_s"], line["events"])
        numbers = [found.cpu_s, found.events, *(one for one in found.metrics.values() if one is not None)]
        if not isinstance(found.failed, str) or not all(abs(one) < math.inf for one in numbers):
            raise ValueError(found.failed)
        return found


@dataclass(frozen=True)
class Study:
    """A grid over a trace, and what its policies are.

    Attributes:
        source: The trace, as the command line takes it.
        sha256: Of its bytes.
        entries: Label -> policy and settings, of all policies of the grid.
        seed: Root of all draws; the seeds of the grid count from it.
        engine: auto, compiled or reference.
    """

    source: str
    sha256: str
    grid: Grid
    entries: Mapping[str, Entry]
    seed: int = 0
    engine: str = "auto"

    def header(self) -> dict[str, Any]:
        """Return what must be the same for cells to go together."""
        return {
            "kind": "study deadlines",
            "trimtab": __version__,
            "format": FORMAT,
            "source": self.source,
            "sha256": self.sha256,
            "seed": self.seed,
            "grid": self.grid.jsonable(),
        }


def run_study(
    study: Study, folder: Path, workers: int, progress: Progress = lambda text, share: None
) -> list[Done]:
    """Simulate what the folder does not hold yet, on worker processes, and return all cells in grid order.

    A cell that a policy refuses has failed and says why; the others go on. Each cell is one line of
    `cells.jsonl`, written when it ends: an interrupted study goes on where it was.

    Args:
        folder: Made if missing.
        workers: Processes; with 1, all runs in this one.

    Raises:
        ConfigError: If the folder holds cells of another grid, trace or version.
        OutputError: If it cannot be written.
        TrialsLost: If a worker was killed.
    """
    cells = list(study.grid.cells())
    path = folder / CELLS
    done = _opened(study, path)
    left = [cell for cell in cells if cell not in done]
    with path.open("a", encoding="utf-8") as file:
        for number, one in enumerate(as_finished(workers, _run, [(study, cell) for cell in left])):
            file.write(json.dumps(one.jsonable(), allow_nan=False) + "\n")
            file.flush()
            done[one.cell] = one
            progress("simulating", (len(cells) - len(left) + number + 1) / len(cells))
    return [done[cell] for cell in cells]


def _opened(study: Study, path: Path) -> dict[Cell, Done]:
    """Return the cells a file holds; a line that was cut off is taken out of it."""
    header = study.header()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise OutputError(f"{path.parent}: {error.strerror}; nothing was run.") from None
    whole = [line for line in lines if line.endswith(b"\n")]
    try:
        first, *rest = [dict(json.loads(line)) for line in whole or lines] or [header]
        _check(header, first, path)
        done = {one.cell: one for one in map(Done.read, rest)}
        if not done.keys() <= set(study.grid.cells()):
            raise ValueError(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: is not what a study wrote; give another --out; nothing was run.") from None
    kept = whole or [json.dumps(header).encode() + b"\n"]
    if kept != lines:
        write(path, b"".join(kept))
    return done


def _check(header: Mapping[str, Any], first: Mapping[str, Any], path: Path) -> None:
    """Refuse the cells of another study.

    Raises:
        ConfigError: If a file's first line is not this header.
        ValueError: If it is no study's.
    """
    if first.get("kind") != header["kind"]:
        raise ValueError(path)
    if first != header:
        other = next(name for name in (*header, *first) if first.get(name) != header.get(name))
        raise ConfigError(
            f"{path}: holds cells of another study (its {other} differs); give another --out; "
            "nothing was run."
        )


def _run(task: tuple[Study, Cell]) -> Done:
    study, cell = task
    case, entry = cell.case, study.entries[cell.policy]
    world = world_of(study, case, cell.seed)
    try:
        trace = _jobs(study.source, study.sha256, study.grid.rule, study.grid.gpus, case, world)
        cluster = cluster_of(case.node, study.grid.gpus)
        world.check_memory(trace, cluster)
        result = simulate(trace, cluster, entry.policy, entry.knobs, world)
    except TrimtabError as refused:
        return Done(cell, {}, str(refused))
    metrics = {**result.metrics, "load": load_of(trace, study.grid.gpus)}
    return Done(cell, metrics, "", result.cpu_s, result.events)


def world_of(study: Study, case: Case, seed: int) -> World:
    """Return the world of a case under one seed."""
    return World(
        restart_cost_s=study.grid.restart_cost_s,
        adjust_cost_s=study.grid.adjust_cost_s,
        estimates=estimates_of(case.noise),
        curves=study.grid.curves,
        mix=case.mix,
        curve_noise=case.curve_noise,
        models="draw",
        seed=study.seed + seed,
        engine=study.engine,
    )


@lru_cache(maxsize=2)
def _loaded(source: str, sha256: str) -> Trace:
    trace = load(source)
    if trace.provenance.sha256 != sha256:
        raise InputError(f"{source}: has changed since the study began.")
    return trace


@lru_cache(maxsize=2)
def _jobs(source: str, sha256: str, rule: str, gpus: int, case: Case, world: World) -> Trace:
    """Return the jobs of a case: thinned, at its load, with its deadlines and models."""
    return jobs_of(_loaded(source, sha256), rule, gpus, case, world.curve_table(), Seeds(world.seed))


def jobs_of(trace: Trace, rule: str, gpus: int, case: Case, curves: CurveTable | None, seeds: Seeds) -> Trace:
    """Return the jobs of a case; all that is drawn depends on a job's label and the seed alone."""
    trace = scaled_to_load(thinned_by_job(trace, case.thin, seeds), case.load, gpus)
    if case.classes != AS_TOLD:
        trace = with_deadlines(trace, rule, case.classes, seeds)
    if curves is None:
        return trace
    return with_curve_models(trace, curves, "draw", case.mix, seeds).trace


def entries_of(grid: Grid, read: Callable[[str], tuple[str, Knobs]]) -> dict[str, Entry]:
    """Return the policies of a grid, read by whoever knows how they are written."""
    return {label: Entry(*read(text)) for label, text in {**grid.policies, **grid.thin_policies}.items()}


def failures(done: Sequence[Done]) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each cell that failed."""
    for one in done:
        if one.failed:
            yield f"{one.cell.policy}: {one.cell.case.name}, seed {one.cell.seed}", one.failed
