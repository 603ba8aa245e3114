"""Synergy OPT: the most speed that CPU and memory can buy, by integer programs [Mohan et al., OSDI'22].

    max sum_j W_j(y_j)   s.t.   one share y_j for each job, sum of cores <= C, sum of memory <= M,
                                W_j(y_j) >= W_j(proportional)

Jobs with the same choices are counted together, so there is one variable for each choice of each kind of job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from trimtab.cluster import VirtualCluster
from trimtab.policies.shares import Ladder, Option, Room, Seat

_NODES_MAX = 2000  # of branch and bound; a limit in seconds would not give the same answer everywhere
_GAP = 1e-6

Kinds = tuple[tuple[Ladder, int], ...]


def pool(rooms: Sequence[Room], vc: VirtualCluster) -> dict[int, Option]:
    """Return what each job would have if all nodes were one, by job id: the paper's first program."""
    seats = [seat for room in rooms for seat in room.seats]
    cores, memory_mib = vc.nodes * vc.cores_per_node, vc.nodes * vc.memory_mib_per_node
    return {seat.id: option for seat, option in _solved(seats, cores, memory_mib)}


def improved(rooms: list[Room]) -> list[Room]:
    """Return the rooms with the shares on each node that add up to most speed, if that is more than now."""
    for room in rooms:
        cores = room.cores + sum(seat.at.cores for seat in room.seats)
        memory_mib = room.memory_mib + sum(seat.at.memory_mib for seat in room.seats)
        found = _solved(room.seats, cores, memory_mib)
        now_ppm = sum(seat.at.speed_ppm for seat, _ in found)
        if sum(option.speed_ppm for _, option in found) > now_ppm:
            for seat, option in found:
                room.give(seat, option)
    return rooms


def _solved(seats: Sequence[Seat], cores: int, memory_mib: int) -> list[tuple[Seat, Option]]:
    """Return the best options of all jobs that have a choice; of equal jobs, the first has the fastest."""
    for seat in seats:
        if seat.ladder is None:
            cores, memory_mib = cores - seat.at.cores, memory_mib - seat.at.memory_mib
    able = [(seat, seat.ladder) for seat in seats if seat.ladder is not None]
    counted = Counter(choices for _, choices in able)
    kinds = tuple(sorted(counted.items()))
    counts = _optimum(kinds, cores, memory_mib)
    if counts is None:
        return []
    given = {
        choices: [option for option, n in zip(choices.options, numbers, strict=True) for _ in range(n)]
        for (choices, _), numbers in zip(kinds, counts, strict=True)
    }
    for options in given.values():
        options.sort(key=lambda option: (option.speed_ppm, option))
    return [(seat, given[choices].pop()) for seat, choices in able]


@lru_cache(maxsize=4096)
def _optimum(kinds: Kinds, cores: int, memory_mib: int) -> tuple[tuple[int, ...], ...] | None:
    """Return how many jobs of each kind have each of its options, None if none was found."""
    if not kinds:
        return ()
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    columns = [(place, option) for place, (choices, _) in enumerate(kinds) for option in choices.options]
    most = np.array([kinds[place][1] for place, _ in columns], dtype=float)
    jobs = np.zeros((len(kinds), len(columns)))
    jobs[[place for place, _ in columns], np.arange(len(columns))] = 1.0
    needs = np.array([[option.cores for _, option in columns], [option.memory_mib for _, option in columns]])
    counts = [count for _, count in kinds]
    found = milp(
        c=-np.array([option.speed_ppm for _, option in columns], dtype=float),
        integrality=np.ones(len(columns), dtype=np.int64),
        bounds=Bounds(0, most),
        constraints=[LinearConstraint(jobs, counts, counts), LinearConstraint(needs, ub=[cores, memory_mib])],
        options={"mip_rel_gap": _GAP, "node_limit": _NODES_MAX},
    )
    if found.x is None:
        return None
    whole = np.rint(found.x).astype(np.int64)
    needed = needs @ whole
    if needed[0] > cores or needed[1] > memory_mib or (jobs @ whole != counts).any():
        return None  # within the solver's tolerance, not within the node
    rows: list[list[int]] = [[] for _ in kinds]
    for (place, _), number in zip(columns, whole.tolist(), strict=True):
        rows[place].append(number)
    return tuple(tuple(row) for row in rows)
