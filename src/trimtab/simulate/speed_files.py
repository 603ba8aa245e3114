"""Measured speeds from files: pairs as a csv, in the columns of Lucid's, and Gavel's throughputs as JSON.

A csv has a row a pair, at least with `model1, speed1, model2, speed2`; a speed of 1 is that of the job alone.
`dataset1, batchsize1, amp1` (and 2) tell configurations of a model apart; `gmem` is the memory of both, MiB.

Gavel's JSON (Narayanan et al., OSDI'20) has, by type of GPU, steps a second of each (model, GPUs) alone and
beside others, and the same with the GPUs on different nodes under the type's name with `_unconsolidated`.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import InputError, UnknownName
from trimtab.profile import Profile
from trimtab.simulate.speed import BUILTIN, Config, SpeedTable, config_text
from trimtab.traces.columns import Table, number, read_table, refuse_row, refuse_rows, whole
from trimtab.traces.files import Stored, read

# Measured beside another, a job can seem a little faster than alone. More than this is no such noise: a
# throughput, perhaps, that was not divided by that of the job alone.
SPEED_MAX = 2.0
MEMORY_MIB_MAX = 10**9  # of a pair

_APART = "_unconsolidated"


@lru_cache(maxsize=8)
def open_speeds(name: str) -> SpeedTable:
    """Return the speeds of `builtin`, of a csv of pairs, or of Gavel's JSON as `FILE@GPU`.

    A file is read once: what it says does not change in the course of a run.

    Raises:
        InputError: If the file cannot be read or a row is no measured pair; nothing of it is used then.
        UnknownName: If the JSON has no such type of GPU.
    """
    if name == BUILTIN.source:
        return BUILTIN
    path, at, gpu = (name, "", "") if Path(name).is_file() or "@" not in name else name.rpartition("@")
    stored = read(path)
    if stored.data.lstrip().startswith(b"{"):
        return _throughputs(stored, name, gpu)
    if at:
        raise InputError(f"speeds {name}: only JSON of throughputs has types of GPU; nothing was loaded.")
    return _measured_pairs(stored, name)


# ---- pairs as a csv ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two jobs of each pair, by row; shapes (rows,)."""

    configs: list[Config]
    speeds_ppm: list[int]


def _measured_pairs(stored: Stored, source: str) -> SpeedTable:
    table = read_table(stored, source)
    one, other = _side(table, 1), _side(table, 2)
    memory_mib = _memory_mib(table)
    rows: dict[tuple[Config, Config], int] = {}
    for row, pair in enumerate(zip(one.configs, other.configs, strict=True)):
        twin = next((known for known in (pair, pair[::-1]) if known in rows), None)
        if twin is not None:
            names = " beside ".join(config_text(config) for config in pair)
            rule = f"{names} stands in line {rows[twin] + 2} already"
            refuse_row(f"speeds {table.source}", table, row, rule)
        rows[pair] = row
    pairs = {pair: (one.speeds_ppm[row], other.speeds_ppm[row]) for pair, row in rows.items()}
    alike_mib = {pair[0]: memory_mib[row] for pair, row in rows.items() if pair[0] == pair[1]}
    profiles = tuple(
        (1, _profile(config, alike_mib.get(config)))
        for config in sorted({config for pair in pairs for config in pair})
    )
    return SpeedTable(source, stored.sha256, pairs, profiles=profiles)


def _side(table: Table, side: int) -> _Side:
    names = [table.name(f"{what}{side}") for what in ("model", "speed")]
    asked = {
        "model": table.get(names[0]),
        "dataset": table.get(f"dataset{side}"),
        "batchsize": _batch(table.get(f"batchsize{side}")),
        "amp": number(table.get(f"amp{side}").fill_null("0")),
        "gpus": table.get(f"gpu_num{side}").fill_null("1"),
        "speed": number(table.get(names[1])),
    }
    rows = table.text.select(**asked)
    rules = {
        f"model{side} is empty": pl.col("model").is_null(),
        f"amp{side} must be 0 or 1": ~pl.col("amp").is_in([0.0, 1.0]).fill_null(False),
        f"gpu_num{side} must be 1: only pairs on one GPU are used": number(pl.col("gpus")).ne_missing(1.0),
        f"speed{side} must be a number: 1 is the speed alone": pl.col("speed").is_null(),
        f"speed{side} must be above 0: a pair that does not run is no row": pl.col("speed") <= 0,
        f"speed{side} must be at most {SPEED_MAX:g}: 1 is the speed alone": pl.col("speed") > SPEED_MAX,
    }
    refuse_rows(f"speeds {table.source}", table, rows, rules)
    configs = [
        ("/".join(part for part in (model, dataset, batch) if part is not None), amp == 1)
        for model, dataset, batch, amp in rows.select("model", "dataset", "batchsize", "amp").iter_rows()
    ]
    return _Side(configs, [max(1, round(speed * FULL_SPEED_PPM)) for speed in rows["speed"]])


def _batch(text: pl.Expr) -> pl.Expr:
    """Return a batch size as jobs have it, 64 for 64.0; anything but a whole number as it is."""
    return pl.when(number(text) == whole(text)).then(whole(text).cast(pl.String)).otherwise(text)


def _memory_mib(table: Table) -> list[float | None]:
    rows = table.text.with_columns(written=table.get("gmem"), both_mib=number(table.get("gmem")))
    fine = (pl.col("both_mib") > 0) & (pl.col("both_mib") <= MEMORY_MIB_MAX)
    rule = f"gmem must be MiB above 0, at most {MEMORY_MIB_MAX:,}, or empty"
    wrong = pl.col("written").is_not_null() & ~fine.fill_null(False)
    refuse_rows(f"speeds {table.source}", table, rows, {rule: wrong})
    return rows["both_mib"].to_list()


def _profile(config: Config, both_mib: float | None) -> Profile:
    """Return what pairs say of a configuration: two of a kind use twice the memory of one."""
    model, amp = config
    return Profile(model, gmem_mib=None if both_mib is None else round(both_mib / 2), amp=amp)


# ---- Gavel's throughputs -------------------------------------------------------------------------

Key = tuple[str, int]  # model and GPUs


def _throughputs(stored: Stored, source: str, gpu: str) -> SpeedTable:
    try:
        found = json.loads(stored.text())
    except (ValueError, RecursionError) as problem:
        raise InputError(f"speeds {source}: is no JSON ({problem}); nothing was loaded.") from None
    types = [name for name in found if not name.endswith(_APART)]
    if not types:
        raise InputError(f"speeds {source}: has no type of GPU; nothing was loaded.")
    if not gpu and len(types) > 1:
        raise InputError(
            f"speeds {source}: has {len(types)} types of GPU, name one of {', '.join(types)} as "
            f"{stored.path}@{types[0]}; nothing was loaded."
        )
    gpu = gpu or types[0]
    if gpu not in types:
        raise UnknownName(f"type of GPU in {stored.path}", gpu, types)
    rows = {where: _rows(found.get(where, {}), source, where) for where in (gpu, f"{gpu}{_APART}")}
    together, apart = rows.values()
    alone = {key: steps for key, row in together.items() if (steps := _steps(row.get("null"), source)) > 0}
    pairs, never = _pairs(together, alone, source)
    spread: dict[str, list[tuple[int, int]]] = {}
    for (model, gpus), row in sorted(apart.items()):
        steps = _steps(row.get("null"), source)
        if gpus > 1 and steps > 0 and (model, gpus) in alone:
            spread.setdefault(model, []).append((gpus, _ppm(steps, alone[model, gpus], source)))
    if not alone:
        raise InputError(f"speeds {source}: no job of {gpu} ran alone; nothing was loaded.")
    return SpeedTable(
        source,
        stored.sha256,
        pairs,
        frozenset(never),
        {model: tuple(widths) for model, widths in spread.items()},
        tuple((1, Profile(model)) for model in sorted({model for model, _ in alone})),
    )


def _pairs(
    together: Mapping[Key, Mapping[str, Any]], alone: Mapping[Key, float], source: str
) -> tuple[dict[tuple[Config, Config], tuple[int, int]], set[tuple[Config, Config]]]:
    """Return the pairs on one GPU, in ppm of alone, and those that do not fit together (0 steps a second)."""
    pairs: dict[tuple[Config, Config], tuple[int, int]] = {}
    never: set[tuple[Config, Config]] = set()
    seen: dict[tuple[Key, Key], tuple[float, float]] = {}
    for one, other, steps in _beside(together, source):
        if (one, other) in seen:  # the other way round
            if seen[one, other] != steps:
                both = f"{one} beside {other} is not what {other} beside {one} is"
                raise InputError(f"speeds {source}: {both}; nothing was loaded.")
            continue
        seen[other, one] = steps[::-1]
        configs = (one[0], False), (other[0], False)
        if min(steps) == 0:
            never.add(configs)
        elif one in alone and other in alone:
            pairs[configs] = _ppm(steps[0], alone[one], source), _ppm(steps[1], alone[other], source)
    return pairs, never


def _beside(
    together: Mapping[Key, Mapping[str, Any]], source: str
) -> Iterator[tuple[Key, Key, tuple[float, float]]]:
    """Yield each two jobs on one GPU with the steps a second of both."""
    for one, row in together.items():
        for text, both in row.items():
            if text == "null" or one[1] != 1:
                continue
            if not isinstance(both, list) or len(both) != 2:
                raise InputError(
                    f"speeds {source}: {one} beside {text} is no pair of numbers; nothing was loaded."
                )
            yield one, _key(text, source), (_steps(both[0], source), _steps(both[1], source))


def _rows(found: Any, source: str, where: str) -> dict[Key, Mapping[str, Any]]:
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise InputError(f"speeds {source}: {where} is no table of jobs; nothing was loaded.")
    return {_key(text, source): row for text, row in found.items()}


def _key(text: str, source: str) -> Key:
    """Read a job's key, the text of a Python tuple of model and GPUs."""
    try:
        model, gpus = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        model, gpus = None, None
    if not isinstance(model, str) or not model or type(gpus) is not int or gpus < 1:
        raise InputError(f"speeds {source}: job {text[:80]!r} is no ('model', GPUs); nothing was loaded.")
    return model, gpus


def _steps(value: Any, source: str) -> float:
    """Return steps a second, 0 where there are none."""
    steps = value if isinstance(value, (int, float)) else math.nan
    if value is not None and not 0 <= steps < 1e300:
        raise InputError(
            f"speeds {source}: {repr(value)[:80]} is no number of steps a second; nothing was loaded."
        )
    return 0.0 if value is None else float(steps)


def _ppm(steps: float, alone: float, source: str) -> int:
    if steps > SPEED_MAX * alone:
        raise InputError(
            f"speeds {source}: {steps:g} steps a second where {alone:g} are usual: more than "
            f"{SPEED_MAX:g} times as fast; nothing was loaded."
        )
    return max(1, round(steps / alone * FULL_SPEED_PPM))
