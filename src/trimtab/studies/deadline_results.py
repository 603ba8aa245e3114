"""What the cells of `study deadlines` say together: differences inside cases and seeds, then over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from trimtab.report.ladder import (
    ASIDE,
    COMPARED,
    OF_PART,
    VIOLATIONS,
    ByPart,
    Compared,
    Course,
    Duel,
    StudySummary,
    Worst,
)
from trimtab.report.tables import of_group
from trimtab.simulate.deadlines import GROUPS
from trimtab.studies.deadline_grid import Case, Grid
from trimtab.studies.deadlines import Done, Study, failures

# Below this a baseline has too few violations for a ratio; so much more than it is no worse.
_FEW = 0.005
_NO_WORSE = 0.002
_WORST = 5
_RATES = ("slo_violation_rate_weighted", "slo_violation_rate")

# Metric -> case -> seed -> value, of one policy.
Values = Mapping[Case, Mapping[int, float]]


def summary_of(study: Study, done: Sequence[Done]) -> StudySummary:
    """Return what a study found."""
    grid = study.grid
    policies = tuple(label for label in study.entries)
    main = _main(grid)
    names = [one.name for one in (*COMPARED, *ASIDE, *chain.from_iterable(map(of_group, GROUPS)))]
    inside = [one for one in done if one.cell.case in main]
    return StudySummary(
        source=study.source,
        sha256=study.sha256,
        grid=grid.jsonable(),
        cells=len(done),
        policies=policies,
        means={label: {name: _mean(_of(inside, label, name)) for name in names} for label in policies},
        step_ms={label: _step_ms(done, label) for label in policies},
        duels=tuple(_duels(grid, done, main)),
        courses=tuple(_courses(grid, inside, policies)),
        axes=_by_part(done, policies, _axes(grid, main)),
        variations=_by_part(done, policies, _variations(grid, main)),
        failed=tuple(failures(done)),
    )


def cells_csv(done: Iterable[Done]) -> str:
    """Return one line a cell: the axes, policy and seed, then every metric any cell has."""
    rows: list[dict[str, Any]] = []
    for one in done:
        named = {"policy": one.cell.policy, "seed": one.cell.seed, "failed": one.failed}
        rows.append({**one.cell.case._asdict(), **named, **one.metrics})
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pl.DataFrame(columns, strict=False).write_csv()


def _main(grid: Grid) -> frozenset[Case]:
    """Return the cases of the grid itself, without the variations of its centre."""
    exact = grid.noises[0], grid.curve_noises[0], grid.thin
    return frozenset(case for case in grid.cases() if (case.noise, case.curve_noise, case.thin) == exact)


def _values(done: Iterable[Done], policy: str, metric: str) -> dict[Case, dict[int, float]]:
    found: dict[Case, dict[int, float]] = defaultdict(dict)
    for one in done:
        value = one.metrics.get(metric)
        if one.cell.policy == policy and value is not None:
            found[one.cell.case][one.cell.seed] = float(value)
    return dict(found)


def _of(done: Iterable[Done], policy: str, metric: str) -> list[float]:
    return [value for seeds in _values(done, policy, metric).values() for value in seeds.values()]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _step_ms(done: Iterable[Done], policy: str) -> float | None:
    some = [one for one in done if one.cell.policy == policy and one.events]
    return 1000 * sum(one.cpu_s for one in some) / sum(one.events for one in some) if some else None


def _duels(grid: Grid, done: Sequence[Done], main: frozenset[Case]) -> Iterable[Duel]:
    """Yield each policy against each baseline; those of the thin trace over the cases they ran in."""
    for baseline in grid.baselines:
        for policy in (*grid.policies, *grid.thin_policies):
            if policy == baseline:
                continue
            thin = policy in grid.thin_policies or baseline in grid.thin_policies
            cases = frozenset(grid.cases()) - main if thin else main
            some = [one for one in done if one.cell.case in cases]
            values = {
                one: (_values(some, policy, one.name), _values(some, baseline, one.name)) for one in COMPARED
            }
            measures = {
                one.name: compared
                for one, pair in values.items()
                if (compared := compare(*pair, rate=one.name in _RATES))
            }
            if VIOLATIONS.name in measures:
                lost = values[VIOLATIONS]
                yield Duel(
                    policy=policy,
                    baseline=baseline,
                    cases=len(paired(*lost)),
                    measures=measures,
                    worst=worst_of(*lost),
                )


def compare(mine: Values, other: Values, *, rate: bool) -> Compared | None:
    """Return one measure of a policy against that of a baseline; None where no case and seed has both.

    Args:
        mine, other: Case -> seed -> value.
        rate: Whether it is a rate of violations: a case whose baseline is below 0.5 % counts by difference.
    """
    changes: list[float] = []
    better, worse, by_seed = 0, 0, defaultdict(list)
    cases = paired(mine, other)
    for pairs in cases.values():
        for seed, (one, base) in pairs.items():
            by_seed[seed].append(one - base)
        one, base = _means(pairs)
        few = rate and base < _FEW
        better += one < base
        worse += one - base > (_NO_WORSE if few else 0)
        if not few and base > 0:
            changes.append(one / base - 1)
    if not by_seed:
        return None
    seeds = [float(np.mean(differences)) for _, differences in sorted(by_seed.items())]
    return Compared(
        change=_mean(changes),
        by_ratio=len(changes),
        difference=float(np.mean(seeds)),
        interval=interval(seeds),
        better=better,
        tied=len(cases) - better - worse,
        worse=worse,
    )


def worst_of(mine: Values, other: Values) -> tuple[Worst, ...]:
    """Return the cases in which a policy loses most more than its baseline, the worst first."""
    found = []
    for case, pairs in paired(mine, other).items():
        one, base = _means(pairs)
        if one > base:
            between = interval([value - theirs for value, theirs in pairs.values()])
            found.append(Worst(case=case.name, policy=one, baseline=base, interval=between))
    return tuple(sorted(found, key=lambda one: one.baseline - one.policy)[:_WORST])


def paired(mine: Values, other: Values) -> dict[Case, dict[int, tuple[float, float]]]:
    """Return case -> seed -> the two values, where both are known."""
    found = {
        case: {seed: (value, other[case][seed]) for seed, value in seeds.items() if seed in other[case]}
        for case, seeds in mine.items()
        if case in other
    }
    return {case: pairs for case, pairs in found.items() if pairs}


def _means(pairs: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    one, base = zip(*pairs.values(), strict=True)
    return float(np.mean(one)), float(np.mean(base))


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean (Student's t); None for a single value."""
    from scipy.special import stdtrit

    count = len(values)
    if count < 2:
        return None
    half = float(stdtrit(count - 1, 0.975)) * float(np.std(values, ddof=1)) / count**0.5
    mean = float(np.mean(values))
    return mean - half, mean + half


def _courses(grid: Grid, inside: Sequence[Done], policies: Sequence[str]) -> Iterable[Course]:
    """Yield the value lost over load, for each mix of service classes."""
    loads = tuple(sorted(grid.loads))
    if len(loads) < 2:
        return
    for classes in grid.classes:
        rows = {
            label: tuple(
                _lost([one for one in inside if _at(one.cell.case, load, classes)], label) for load in loads
            )
            for label in policies
            if label in grid.policies
        }
        yield Course(title=f"Classes {classes}", axis="load", places=loads, by_policy=rows)


def _lost(done: Iterable[Done], policy: str) -> float | None:
    return _mean(_of(done, policy, VIOLATIONS.name))


def _at(case: Case, load: float, classes: str) -> bool:
    return (case.load, case.classes) == (load, classes)


def _axes(grid: Grid, main: frozenset[Case]) -> dict[str, frozenset[Case]]:
    """Return the cases of the grid by mix of models and by kind of node."""
    return {
        f"{axis} {value}": frozenset(case for case in main if getattr(case, axis) == value)
        for axis, values in (("mix", grid.mixes), ("node", grid.nodes))
        for value in values
    }


def _variations(grid: Grid, main: frozenset[Case]) -> dict[str, frozenset[Case]]:
    """Return the centre of the grid and each variation of it."""
    centre, *others = grid.cases()
    varied = {_varied(centre, case): frozenset([case]) for case in others if case not in main}
    return {"centre": frozenset([centre]), **varied}


def _by_part(done: Sequence[Done], policies: Sequence[str], parts: Mapping[str, frozenset[Case]]) -> ByPart:
    """Return policy -> name of a part -> what is told of its cases."""
    inside = {name: [one for one in done if one.cell.case in cases] for name, cases in parts.items()}
    return {
        label: {
            name: {one.name: _mean(_of(some, label, one.name)) for one in OF_PART}
            for name, some in inside.items()
        }
        for label in policies
    }


def _varied(centre: Case, case: Case) -> str:
    if case.thin != centre.thin:
        return f"thinned to {case.thin:g}"
    if case.noise != centre.noise:
        return f"run times off by {case.noise:g}"
    return f"curves off by {case.curve_noise:g}"
