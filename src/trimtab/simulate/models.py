"""Which model each job of a trace trains, as its columns say or drawn; and what spreading its gang costs."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import polars as pl

from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import InputError, UnknownName
from trimtab.profile import Profile
from trimtab.simulate.speed import Config, SpeedTable, config_text
from trimtab.simulate.workload import profiles_of
from trimtab.traces.trace import SCHEMA, Trace
from trimtab.world import Seeds

MODELS = ("column", "draw")


@dataclass(frozen=True, slots=True)
class Assigned:
    """A trace whose jobs have their profiles, and how many of them a table of speeds knows.

    Attributes:
        trace: The jobs; `spread_speed` holds what spreading costs, where the table says so.
        measured: Jobs whose model was measured. by_use: others that have a class by what they use.
        spread: Gangs whose spread speed is the table's.
        strangers: Models of the trace that were not measured, most frequent first, with the jobs of each.
    """

    trace: Trace
    measured: int
    by_use: int
    spread: int
    strangers: tuple[tuple[Config, int], ...]


def assign_models(trace: Trace, table: SpeedTable, how: str, seeds: Seeds) -> Assigned:
    """Give each job its profile, and its speed when spread where the table has that of its model and width.

    Args:
        trace: The jobs.
        table: Measured speeds.
        how: `column`: as the trace's columns say. `draw`: one of the table's profiles, whatever the columns
            say; which one depends on the job's label and the seed alone.
        seeds: Root of the draws.

    Raises:
        UnknownName: If there is no such way.
        InputError: If the table has models, and of no job of the trace anything is known.
    """
    if how not in MODELS:
        raise UnknownName("way to find models", how, MODELS)
    if how == "draw":
        trace = _drawn(trace, table.profiles, seeds)
    profiles = [profile or Profile() for profile in profiles_of(trace)]
    configs = [None if one.model is None else (one.model, one.amp) for one in profiles]
    measured = [config in table.configs for config in configs]
    by_use = [
        not known and table.class_of(one) is not None for known, one in zip(measured, profiles, strict=True)
    ]
    counts = Counter(config for config in configs if config is not None and config not in table.configs)
    strangers = tuple(counts.most_common())
    if table.configs and not any(measured) and not any(by_use):
        raise _nothing_known(table, strangers)
    trace, spread = _with_spread(trace, table, profiles)
    return Assigned(trace, sum(measured), sum(by_use), spread, strangers)


def notes_of(assigned: Assigned, table: SpeedTable) -> list[str]:
    """Return what a user should know of it, a sentence each."""
    jobs, known = len(assigned.trace), assigned.measured + assigned.by_use
    notes = [
        f"speeds {table.source}: of {jobs:,} jobs {assigned.measured:,} are known by their model, "
        f"{assigned.by_use:,} by what they use, {jobs - known:,} not at all; "
        f"it has {len(table.pairs):,} pairs and the spread speed of {assigned.spread:,} gangs."
    ]
    if jobs and not known:
        notes.append("none of them shares its GPUs; draw models with --models draw.")
    if table.configs and assigned.strangers:
        many = f"{len(assigned.strangers):,} models of the trace were not measured"
        notes.append(f"speeds {table.source}: {many}, most often {_named(assigned.strangers[0], table)}.")
    return notes


def _nothing_known(table: SpeedTable, strangers: Sequence[tuple[Config, int]]) -> InputError:
    if strangers:
        many = f"none of the trace's {len(strangers):,} models was measured"
        return InputError(
            f"speeds {table.source}: {many}, e.g. {_named(strangers[0], table)}; nothing was run."
        )
    return InputError(
        f"speeds {table.source}: the trace has no column `model`, nor `gpu_util` and `gmem_util`; "
        "draw models with --models draw; nothing was run."
    )


def _named(stranger: tuple[Config, int], table: SpeedTable) -> str:
    config, jobs = stranger
    near = _nearest(config[0], sorted({model for model, _ in table.configs}))
    return f"{config_text(config)!r} ({jobs:,} jobs{f', the nearest is {near!r}' if near else ''})"


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """Return what may have been meant: a model of nearly the same name, its configurations aside."""
    models = difflib.get_close_matches(_bare(name), sorted({_bare(one) for one in names}), 1, cutoff=0.8)
    alike = [one for one in names if _bare(one) in models]
    return next(iter(difflib.get_close_matches(name, alike, 1, cutoff=0.0)), None)


def _bare(name: str) -> str:
    return re.split("[/ (]", name, maxsplit=1)[0].lower()


def _drawn(trace: Trace, profiles: Sequence[tuple[int, Profile]], seeds: Seeds) -> Trace:
    bounds = list(accumulate(weight for weight, _ in profiles))

    def draw(label: str) -> Profile:
        return profiles[bisect_right(bounds, int(seeds.stream("model", label).integers(bounds[-1])))][1]

    by_label = {label: draw(label) for label in trace.jobs["job_id"].unique(maintain_order=True)}
    drawn = [by_label[label] for label in trace.jobs["job_id"]]
    columns: dict[str, list[Any]] = {
        "model": [one.model for one in drawn],
        "amp": [int(one.amp) for one in drawn],
        "gpu_util": [one.gpu_util for one in drawn],
        "gmem_util": [one.gmem_util for one in drawn],
        "gmem_mib": [one.gmem_mib for one in drawn],
    }
    series = [pl.Series(name, values, dtype=SCHEMA[name]) for name, values in columns.items()]
    jobs = trace.jobs.drop("dataset", "batchsize", "sharescore", strict=False)
    return replace(trace, jobs=jobs.with_columns(series))


def _with_spread(trace: Trace, table: SpeedTable, profiles: Sequence[Profile]) -> tuple[Trace, int]:
    """Return the trace with the table's spread speeds, where it has none yet, and of how many gangs."""
    if not table.spread:
        return trace, 0
    own = trace.labels("spread_speed")
    speeds: list[object] = []
    for known, profile, gpus in zip(own, profiles, trace.column("gpus").tolist(), strict=True):
        speed_ppm = table.spread_ppm(profile, gpus) if known is None else None
        speeds.append(known if speed_ppm is None else speed_ppm / FULL_SPEED_PPM)
    filled = own.count(None) - speeds.count(None)
    jobs = trace.jobs.with_columns(pl.Series("spread_speed", speeds, dtype=pl.Float64()))
    return replace(trace, jobs=jobs), filled
