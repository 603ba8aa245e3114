"""Speed by CPU and memory from files: a csv of one's own measurements, and Synergy's matrices as JSON.

A csv has a row a point, `model, cpus_per_gpu, memory_gib_per_gpu, speed`, and where known `gpus` (the width
that was measured, else 1), `footprint_gib_per_gpu` (memory without which the job does not run) and `class`.
A model has all its memory sizes at all its numbers of cores. Speeds may be in any unit: only ratios count.

The JSON has by kind of server, by `MODEL_GPUS`, a matrix `tput` over Synergy's grid, cores by memory.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from trimtab.curve import FULL_SPEED_PPM, Curve
from trimtab.errors import InputError, UnknownName
from trimtab.simulate.curves import (
    BUILTIN_CURVES,
    CLASSES,
    SYNERGY_CLASSES,
    SYNERGY_CORES,
    SYNERGY_MEMORY_MIB,
    CurveTable,
    Widths,
    usual_point,
)
from trimtab.traces.columns import Table, number, read_table, refuse_row, refuse_rows
from trimtab.traces.files import Stored, read

# Beyond these a value is a mistake, or would not fit into what speeds are computed in.
_CORES_MAX = 10_000
_MEMORY_GIB_MAX = 1_000_000
_RATIO_MAX = 1_000
_GPUS_MAX = 1_000_000

_MIB = 1024
_SHORT_NAMES = {"res18": "resnet18", "res50": "resnet50"}  # as Synergy's files have them

Key = tuple[str, int]  # model and GPUs
Point = tuple[int, int]  # cores and MiB for each GPU


@lru_cache(maxsize=8)
def open_curves(name: str) -> CurveTable:
    """Return the curves of `builtin`, of a csv, or of Synergy's JSON as `FILE@CPUS_PER_GPU`.

    A file is read once: what it says does not change in the course of a run.

    Raises:
        InputError: If the file cannot be read, a row is wrong or a point is missing; nothing of it is used.
        UnknownName: If the JSON has no such kind of server.
    """
    if name == BUILTIN_CURVES.source:
        return BUILTIN_CURVES
    path, at, server = (name, "", "") if Path(name).is_file() or "@" not in name else name.rpartition("@")
    stored = read(path)
    if stored.data.lstrip().startswith(b"{"):
        return _matrices(stored, name, server)
    if at:
        raise InputError(f"curves {name}: only JSON has kinds of servers; nothing was loaded.")
    return _measured(stored, name)


# ---- a csv ---------------------------------------------------------------------------------------


def _measured(stored: Stored, source: str) -> CurveTable:
    table = read_table(stored, f"curves {source}")
    rows = _rows(table)
    points: dict[Key, dict[Point, int]] = {}
    for row, (model, gpus, cores, memory) in enumerate(
        rows.select("model", "gpus", "cores", "memory_gib").iter_rows()
    ):
        point = int(cores), round(memory * _MIB)
        known = points.setdefault((model, int(gpus)), {})
        if point in known:
            refuse_row(table.source, table, row, f"this point stands in line {known[point] + 2} already")
        known[point] = row
    speeds = rows["speed"].to_list()
    curves: dict[str, Widths] = {}
    for (model, gpus), found in sorted(points.items()):
        footprint_mib = _footprint_mib(table, rows, found)
        curve = _curve(table, (model, gpus), found, speeds, footprint_mib)
        curves[model] = (*curves.get(model, ()), (gpus, curve))
    return CurveTable(source, stored.sha256, curves, _classes(table, rows))


def _rows(table: Table) -> pl.DataFrame:
    needed = {
        name: table.get(table.name(name)) for name in ("model", "cpus_per_gpu", "memory_gib_per_gpu", "speed")
    }
    rows = table.text.select(
        model=needed["model"],
        cores=number(needed["cpus_per_gpu"]),
        memory_gib=number(needed["memory_gib_per_gpu"]),
        speed=number(needed["speed"]),
        gpus=number(table.get("gpus").fill_null("1")),
        footprint_gib=number(table.get("footprint_gib_per_gpu").fill_null("0")),
        kind=table.get("class"),
    )
    cores, memory, gpus = pl.col("cores"), pl.col("memory_gib"), pl.col("gpus")
    rules = {
        "model is empty": pl.col("model").is_null(),
        f"cpus_per_gpu must be a whole number, 1 .. {_CORES_MAX:,}": _not_whole(cores, _CORES_MAX),
        f"memory_gib_per_gpu must be above 0, at most {_MEMORY_GIB_MAX:,}": ~(
            (memory * _MIB).round().is_between(1, _MEMORY_GIB_MAX * _MIB).fill_null(False)
        ),
        "speed must be a number above 0": ~(pl.col("speed") > 0).fill_null(False),
        f"gpus must be a whole number, 1 .. {_GPUS_MAX:,}": _not_whole(gpus, _GPUS_MAX),
        f"footprint_gib_per_gpu must be 0 .. {_MEMORY_GIB_MAX:,}": ~(
            pl.col("footprint_gib").is_between(0, _MEMORY_GIB_MAX).fill_null(False)
        ),
        f"class must be one of {', '.join(CLASSES)}, or empty": ~pl.col("kind").is_in(CLASSES),
    }
    refuse_rows(table.source, table, rows, rules)
    return rows


def _not_whole(value: pl.Expr, most: int) -> pl.Expr:
    return ~((value == value.round()) & value.is_between(1, most)).fill_null(False)


def _curve(
    table: Table, key: Key, points: dict[Point, int], speeds: list[float], footprint_mib: int
) -> Curve:
    """Put the points of a model and width, which tell their rows, into order.

    Raises:
        InputError: If one is missing, or speeds are too far apart.
    """
    cores = sorted({point[0] for point in points})
    memory_mib = sorted({point[1] for point in points})
    name = f"model {key[0]!r} on {key[1]:,} GPUs" if key[1] > 1 else f"model {key[0]!r}"
    for mib in memory_mib:
        for count in cores:
            if (count, mib) not in points:
                raise InputError(
                    f"{table.source}: {name}: {count} cores with {mib / _MIB:g} GiB is missing: every number "
                    "of cores needs every size of memory; nothing was loaded."
                )
    found = {point: speeds[row] for point, row in points.items()}
    slowest, fastest = min(found.values()), max(found.values())
    if fastest > _RATIO_MAX * slowest:
        raise InputError(
            f"{table.source}: {name}: speeds from {slowest:g} to {fastest:g}: at most {_RATIO_MAX:,} to 1 is "
            "possible; nothing was loaded."
        )
    # In ppm of the speed nearest to the usual share, so that numbers in any unit are equally exact.
    column, row = usual_point(cores, memory_mib)
    base = found[cores[column], memory_mib[row]]
    rows = tuple(
        tuple(max(1, round(found[count, mib] / base * FULL_SPEED_PPM)) for count in cores)
        for mib in memory_mib
    )
    return Curve(tuple(cores), tuple(memory_mib), rows, footprint_mib)


def _footprint_mib(table: Table, rows: pl.DataFrame, points: dict[Point, int]) -> int:
    places = list(points.values())
    told: list[float] = rows["footprint_gib"].gather(places).to_list()
    other = next((place for place, one in zip(places, told, strict=True) if one != told[0]), None)
    if other is not None:
        rule = f"footprint_gib_per_gpu is {told[0]:g} in line {places[0] + 2}"
        refuse_row(table.source, table, other, rule)
    return round(told[0] * _MIB)


def _classes(table: Table, rows: pl.DataFrame) -> dict[str, str]:
    found: dict[str, str] = {}
    for row, (model, kind) in enumerate(rows.select("model", "kind").iter_rows()):
        if kind is not None and found.setdefault(model, kind) != kind:
            refuse_row(table.source, table, row, f"{model!r} is of class {found[model]} in an earlier line")
    return found


# ---- Synergy's matrices --------------------------------------------------------------------------


def _matrices(stored: Stored, source: str, server: str) -> CurveTable:
    try:
        found = json.loads(stored.text())
    except (ValueError, RecursionError) as problem:
        raise InputError(f"curves {source}: is no JSON ({problem}); nothing was loaded.") from None
    servers = list(found)
    if not server and len(servers) != 1:
        raise InputError(
            f"curves {source}: has {len(servers)} kinds of servers, name one of {', '.join(servers)} as "
            f"{stored.path}@{servers[0] if servers else 'CPUS_PER_GPU'}; nothing was loaded."
        )
    server = server or servers[0]
    if server not in servers:
        raise UnknownName(f"kind of server in {stored.path}", server, servers)
    models = found[server]
    if not isinstance(models, dict) or not models:
        raise InputError(f"curves {source}: {server!r} holds no models; nothing was loaded.")
    curves: dict[str, dict[int, Curve]] = {}
    for name, one in models.items():
        model, gpus = _named(name, source)
        curves.setdefault(model, {})[gpus] = _matrix(name, one, source)
    classes = {model: SYNERGY_CLASSES[model] for model in curves if model in SYNERGY_CLASSES}
    return CurveTable(
        source, stored.sha256, {model: tuple(sorted(one.items())) for model, one in curves.items()}, classes
    )


def _named(name: str, source: str) -> Key:
    found = re.fullmatch(r"(.+)_([1-9]\d{0,5})", name)
    if found is None:
        raise InputError(f"curves {source}: {name!r} is not MODEL_GPUS; nothing was loaded.")
    return _SHORT_NAMES.get(found[1], found[1]), int(found[2])


def _matrix(name: str, one: Any, source: str) -> Curve:
    rows: Any = one.get("tput") if isinstance(one, dict) else None
    shape = len(SYNERGY_CORES), len(SYNERGY_MEMORY_MIB)
    sizes = [len(row) if isinstance(row, list) else 0 for row in rows] if isinstance(rows, list) else []
    if sizes != [shape[1]] * shape[0]:
        raise InputError(
            f"curves {source}: {name}: `tput` must be {shape[0]} rows (cores) of {shape[1]} speeds (memory); "
            "nothing was loaded."
        )
    speeds = [[_speed_ppm(value, name, source) for value in row] for row in rows]
    return Curve(SYNERGY_CORES, SYNERGY_MEMORY_MIB, tuple(zip(*speeds, strict=True)))


def _speed_ppm(value: Any, name: str, source: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= _RATIO_MAX:
        raise InputError(
            f"curves {source}: {name}: {repr(value)[:80]} is no speed: 1 is that of the proportional share; "
            "nothing was loaded."
        )
    return round(value * FULL_SPEED_PPM)
