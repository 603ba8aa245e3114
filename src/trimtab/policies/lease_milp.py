"""Plans of whole leases as a mixed-integer program, solved by HiGHS [Gao et al., Chronus, SoCC'21].

    max   sum value_i S_i  +- sum g_i X_i0 / R
    with  sum_t X_it = n_i S_i  for each row i = (job, deadline), t inside its window only
          sum_i g_i X_it <= R_t for each lease t
          sum_i S_i = 1         over the rows of each job

R_t: the GPUs that jobs outside the program leave. Variables stand only inside windows, so their number is
that of the leases jobs may use, not jobs x longest window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.policies.lease_plan import Leases, Plans, Request

Column = NDArray[np.int64]

NODES_MAX = 200  # of the branch-and-bound tree; with it, the same input gives the same plan
_OPTIMAL = 0  # SciPy's status; it has one for the limit of seconds, none for that of nodes


@dataclass(slots=True)
class Solves:
    """What became of the solves of a run.

    Attributes:
        solves: How many. failed: those without a plan. limited: those with one that ended at their limit.
        worst_gap: Largest relative gap to the bound among the plans, 0 where all are optimal.
    """

    solves: int = 0
    limited: int = 0
    failed: int = 0
    worst_gap: float = 0.0

    def metrics(self) -> dict[str, float | int | None]:
        """Return them as metrics of the run; nothing where no program was solved."""
        if not self.solves:
            return {}
        counts = {"solves": self.solves, "solves_limited": self.limited, "solves_failed": self.failed}
        return {**counts, "solver_gap_max": self.worst_gap}


_RECORD: ContextVar[Solves | None] = ContextVar("solves", default=None)


@contextmanager
def recorded() -> Iterator[Solves]:
    """Count the solves inside the block; policies keep no state, so whoever wants the numbers asks here."""
    record = Solves()
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan with its value in the objective, and the relative gap to what might be possible."""

    plans: Plans
    value: float
    gap: float
    is_limited: bool


def solve(
    requests: Sequence[Request],
    kept: Mapping[int, Leases],
    gpus: int,
    *,
    maximize: bool,
    rows_max: int,
    limit_s: int = 0,
) -> Solution | None:
    """Return the best plan found, None if there is none within the limit.

    Args:
        requests, kept, gpus, maximize: As in `plan_greedily`.
        rows_max: Most rows of the program; beyond it the widest jobs with the longest windows stand as kept.
        limit_s: Seconds after which the best plan so far counts; 0: `NODES_MAX` nodes instead.
    """
    by_size = sorted(requests, key=lambda request: (request.gpus, request.window, request.id))
    inside, rows = [], 0
    for request in by_size:
        rows += len(request.windows)
        if rows <= rows_max or request.id not in kept:
            inside.append(request)
    aside = {request.id for request in requests} - {request.id for request in inside}
    program = _Program(inside)
    left = np.full(program.leases, gpus, dtype=np.int64)
    for request in requests:
        for lease in kept[request.id] if request.id in aside else ():
            if lease < program.leases:
                left[lease] -= request.gpus
    solution = program.solve(left, gpus, maximize=maximize, limit_s=limit_s)
    _count(solution)
    if solution is None:
        return None
    plans = {request.id: solution.plans.get(request.id, kept.get(request.id, ())) for request in requests}
    return Solution(plans, solution.value, solution.gap, solution.is_limited)


def _count(solution: Solution | None) -> None:
    record = _RECORD.get()
    if record is None:
        return
    record.solves += 1
    record.failed += solution is None
    if solution is not None:
        record.limited += solution.is_limited
        record.worst_gap = max(record.worst_gap, solution.gap)


class _Program:
    """The rows of one program and where their variables stand: first X row by row, then S."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        rows = [(place, option) for place, one in enumerate(requests) for option in range(len(one.windows))]
        self.job = np.array([place for place, _ in rows], dtype=np.int64)
        self.needs = np.array([requests[place].leases for place, _ in rows], dtype=np.int64)
        self.values = np.array([requests[place].values[option] for place, option in rows], dtype=np.int64)
        windows = np.array([requests[place].windows[option] for place, option in rows], dtype=np.int64)
        self.leases = int(windows.max(initial=0))
        # By X: its row, its lease, its GPUs.
        self.row = np.repeat(np.arange(len(rows)), windows)
        self.lease = np.arange(len(self.row)) - np.repeat(np.cumsum(windows) - windows, windows)
        self.gpus = np.array([requests[place].gpus for place, _ in rows], dtype=np.int64)[self.row]

    def solve(self, left: Column, gpus: int, *, maximize: bool, limit_s: int) -> Solution | None:
        from scipy.optimize import Bounds, LinearConstraint, milp

        if not self.requests:
            return Solution({}, 0.0, 0.0, False)
        needed, fits, one_each = self._matrices()
        sign = 1 if maximize else -1
        weights = np.concatenate((sign * self.gpus * (self.lease == 0) / gpus, self.values))
        least_step = 0.5 / gpus  # two plans of different value differ by more
        options: Any = {"mip_rel_gap": least_step / (1 + np.abs(weights).sum())}
        options |= {"time_limit": float(limit_s)} if limit_s else {"node_limit": NODES_MAX}
        found = milp(
            -weights,
            integrality=np.ones(len(weights), dtype=np.int64),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(needed, 0, 0),
                LinearConstraint(fits, -np.inf, left),
                LinearConstraint(one_each, 1, 1),
            ],
            options=options,
        )
        if found.x is None:
            return None
        plans = self._plans(np.flatnonzero(found.x[: len(self.row)] > 0.5))
        return Solution(plans, -float(found.fun), float(found.mip_gap or 0), found.status != _OPTIMAL)

    def _matrices(self) -> tuple[Any, Any, Any]:
        """Return the left sides: leases a row needs, GPUs in a lease, rows of a job."""
        from scipy.sparse import csr_array

        cells, rows = len(self.row), len(self.job)
        width, own = cells + rows, np.arange(rows)
        x, s = np.arange(cells), cells + own
        needs = np.concatenate((np.ones(cells), -self.needs))
        at = np.concatenate((self.row, own)), np.concatenate((x, s))
        return (
            csr_array((needs, at), shape=(rows, width)),
            csr_array((self.gpus, (self.lease, x)), shape=(self.leases, width)),
            csr_array((np.ones(rows), (self.job, s)), shape=(len(self.requests), width)),
        )

    def _plans(self, cells: Column) -> Plans:
        plans: dict[int, list[int]] = {request.id: [] for request in self.requests}
        for cell in cells.tolist():
            plans[self.requests[self.job[self.row[cell]]].id].append(int(self.lease[cell]))
        return {job_id: tuple(sorted(leases)) for job_id, leases in plans.items()}
