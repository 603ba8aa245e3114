"""Which model each job trains whose CPU and memory curve is to be known: as its column says, else drawn."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import polars as pl

from trimtab.cluster import Cluster, Placement
from trimtab.errors import ConfigError, InputError
from trimtab.simulate.curves import CLASSES, CurveTable
from trimtab.traces.trace import SCHEMA, Trace
from trimtab.world import Seeds

USUAL_MIX = "20/70/10"  # image, language, speech: the split that Synergy's evaluation begins with

_WEIGHT_MAX = 1_000_000

# What one of several models is drawn with, and these models.
Group = tuple[int, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Mixed:
    """A trace whose jobs all have a model with a curve; of how many their column said it."""

    trace: Trace
    known: int


def groups_of(mix: str, table: CurveTable) -> list[Group]:
    """Return the models to draw from, with their weights.

    Args:
        mix: `20/70/10`: weights of image, language and speech models. `0.25`: the share of jobs whose model
            is sensitive to CPU or memory.
        table: The models.

    Raises:
        ConfigError: If the mix is neither.
        InputError: If the table has no model of a class that has a weight.
    """
    weights = check_mix(mix)
    if len(weights) == len(CLASSES):
        groups: list[Group] = [
            (weight, table.of_class(name)) for weight, name in zip(weights, CLASSES, strict=True)
        ]
        names: Sequence[str] = [f"of class {name}" for name in CLASSES]
    else:
        others = sorted(table.curves.keys() - table.sensitive)
        groups = list(zip(weights, (sorted(table.sensitive), others), strict=True))
        names = "that is sensitive", "that is insensitive"
    for (weight, models), name in zip(groups, names, strict=True):
        if weight and not models:
            raise InputError(
                f"curves {table.source}: has no model {name}, but --mix {mix} draws some; give another mix, "
                "or classes in a column `class`; nothing was run."
            )
    return groups


def check_mix(mix: str) -> list[int]:
    """Return the weights that a mix stands for: of three classes, or of sensitive and other models.

    Raises:
        ConfigError: If it is no mix.
    """
    if re.fullmatch(r"\d{1,7}/\d{1,7}/\d{1,7}", mix):
        weights = [int(part) for part in mix.split("/")]
        if sum(weights) > 0 and max(weights) <= _WEIGHT_MAX:
            return weights
    elif re.fullmatch(r"0?\.\d+|[01](\.0*)?", mix):
        sensitive = round(float(mix) * _WEIGHT_MAX)
        return [sensitive, _WEIGHT_MAX - sensitive]
    raise ConfigError(
        f"mix {mix!r} is neither weights of image, language and speech models such as {USUAL_MIX}, nor the "
        "share of sensitive jobs such as 0.25; nothing was run."
    )


def with_curve_models(trace: Trace, table: CurveTable, how: str, mix: str, seeds: Seeds) -> Mixed:
    """Give each job a model of which the table has a curve.

    Args:
        trace: The jobs.
        table: The models.
        how: `column`: jobs whose model the table has keep it, all others draw one. `draw`: all draw.
        mix: See `groups_of`; models of one class are equally likely. What a job draws depends on its label,
            the mix and the seed alone.
        seeds: Root of the draws.

    Raises:
        ConfigError, InputError: As `groups_of` does, where a job draws.
    """
    told = trace.labels("model") if how == "column" else [None] * len(trace)
    known = [model is not None and model in table.curves for model in told]
    if all(known):
        return Mixed(trace, len(trace))
    groups = groups_of(mix, table)
    bounds = list(accumulate(weight for weight, _ in groups))

    def draw(label: str) -> str:
        which, one = seeds.stream("mix", label).random(2)
        models = groups[bisect_right(bounds, which * bounds[-1])][1]
        return models[int(one * len(models))]

    models = [
        model if keep else draw(label)
        for model, keep, label in zip(told, known, trace.jobs["job_id"], strict=True)
    ]
    drawn = pl.Series("model", models, dtype=SCHEMA["model"])
    own = [name for name in ("dataset", "batchsize") if name in trace.jobs.columns]
    keep = pl.Series("keep", known)
    jobs = trace.jobs.with_columns(drawn, *(pl.when(keep).then(pl.col(name)).alias(name) for name in own))
    return Mixed(replace(trace, jobs=jobs), sum(known))


def mix_note(found: Mixed, table: CurveTable, mix: str) -> str:
    """Return what a user should know of it, a sentence."""
    jobs = len(found.trace)
    drawn = f"; {jobs - found.known:,} drew one by {mix}" if found.known < jobs else ""
    return f"curves {table.source}: of {jobs:,} jobs {found.known:,} have a model with a curve{drawn}."


def check_footprints(trace: Trace, table: CurveTable, cluster: Cluster, placement: Placement) -> None:
    """Refuse curves by which a job of a trace needs more memory than there is, see `check_footprint`.

    Raises:
        InputError: It names the first such job.
    """
    columns = [trace.labels(name) for name in ("job_id", "vc", "model")]
    for label, vc, model, gpus in zip(*columns, trace.column("gpus").tolist(), strict=True):
        check_footprint(f"job {label}", vc, model, gpus, table, cluster, placement)


def check_footprint(
    job: str,
    vc: str | None,
    model: str | None,
    gpus: int,
    table: CurveTable,
    cluster: Cluster,
    placement: Placement,
) -> None:
    """Refuse curves by which a job needs more memory on a node than its nodes have, wherever it is placed.

    A job whose virtual cluster there is not, or that is wider than it, is rejected by the simulation itself.

    Raises:
        InputError: If it does.
    """
    curve, place = table.curve(model, gpus), cluster.home(vc)
    if curve is None or place is None or gpus > cluster.vcs[place].gpus:
        return
    home = cluster.vcs[place]
    together = min(gpus, home.gpus_per_node) if placement == "consolidated" else 1
    if curve.footprint_mib * together > home.memory_mib_per_node:
        needed, there = (mib / 1024 for mib in (curve.footprint_mib * together, home.memory_mib_per_node))
        raise InputError(
            f"curves {table.source}: {job} of model {model!r} needs {needed:,.10g} GiB on one "
            f"node, a node has {there:,.10g}; nothing was run."
        )
