"""Plans of whole leases: which jobs hold their GPUs in which lease to come [Gao et al., Chronus, SoCC'21].

Lease 0 is the first one that may still be given away. A job needs so many leases, in any of those before its
deadline; in each lease the planned GPUs of all jobs fit into the cluster. Nodes do not count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Leases = tuple[int, ...]
Plans = dict[int, Leases]


class Request(NamedTuple):
    """What a job needs of the leases to come.

    Attributes:
        id: The job. gpus: GPUs planned for it in a lease.
        leases: How many leases it needs, at least 1.
        windows: Leases before each of its deadlines, ascending; the last one is what it was promised.
        values: What each of these deadlines is worth.
    """

    id: int
    gpus: int
    leases: int
    windows: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def window(self) -> int:
        """Leases before the last of its deadlines."""
        return self.windows[-1]


def packing_order(request: Request) -> tuple[int, int, int, int]:
    """Return a job's place in the order of packing: widest, least slack, longest window, then id."""
    return -request.gpus, request.window - request.leases, -request.window, request.id


class Capacity:
    """GPUs that are not planned yet, lease by lease, without end."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._planned: list[int] = []

    def free(self, lease: int) -> int:
        """Return the GPUs of a lease that nobody is planned for."""
        return self.gpus - (self._planned[lease] if lease < len(self._planned) else 0)

    def take(self, gpus: int, leases: Leases) -> None:
        """Plan so many GPUs in each of these leases, in ascending order; below 0 gives them back."""
        if leases and leases[-1] >= len(self._planned):
            self._planned += [0] * (leases[-1] + 1 - len(self._planned))
        for lease in leases:
            self._planned[lease] += gpus

    def latest(self, gpus: int, count: int, window: int, but: Leases = ()) -> Leases:
        """Return the latest leases of a window, `count` or what there is of them, with so many GPUs free.

        Args:
            but: Leases that are left out.
        """
        found: list[int] = []
        for lease in range(window - 1, -1, -1):
            if len(found) == count:
                break
            if self.free(lease) >= gpus and lease not in but:
                found.append(lease)
        return tuple(reversed(found))

    def smallest_window(self, gpus: int, count: int) -> int:
        """Return the smallest window with `count` leases of so many free GPUs.

        Packing one job is monotone in its window, so a search by halves would find the same.
        """
        lease = 0
        while count:
            count -= self.free(lease) >= gpus
            lease += 1
        return lease


def plan_greedily(
    requests: Iterable[Request], kept: Mapping[int, Leases], gpus: int, *, maximize: bool
) -> Plans:
    """Plan each job's leases from its last one backwards, the hardest to place first.

    If a job does not find its leases, all keep those of the last plan. Then each job takes the best of its
    deadlines that the others leave it, and, to use lease 0 as much as possible, brings its earliest lease
    forward where there is room. So whoever was promised a deadline keeps its leases before it.

    Args:
        requests: The jobs.
        kept: The last plan by job; no lease twice, none below 0.
        gpus: GPUs of the cluster, at least those of each request.
        maximize: Whether lease 0 is used as much as possible; else as little.

    Returns:
        Leases in ascending order by job: as many as it needs, fewer where there are not enough.
    """
    ordered = sorted(requests, key=packing_order)
    plans = _pack(ordered, gpus) or _keep(ordered, kept, gpus)
    capacity = _left(ordered, plans, gpus)
    for request in ordered:
        if len(request.windows) > 1:
            _improve(request, plans, capacity)
    if maximize:
        for request in ordered:
            _bring_forward(request, plans, capacity)
    return plans


def _pack(ordered: Sequence[Request], gpus: int) -> Plans | None:
    capacity, plans = Capacity(gpus), Plans()
    for request in ordered:
        found = capacity.latest(request.gpus, request.leases, request.window)
        if len(found) < request.leases:
            return None
        capacity.take(request.gpus, found)
        plans[request.id] = found
    return plans


def _keep(ordered: Sequence[Request], kept: Mapping[int, Leases], gpus: int) -> Plans:
    """Return the last plan without what is no longer needed, and with what is missing as far as there is."""
    plans = {
        request.id: tuple(lease for lease in kept.get(request.id, ()) if lease < request.window)[
            -request.leases :
        ]
        for request in ordered
    }
    capacity = _left(ordered, plans, gpus)
    for request in ordered:
        has = plans[request.id]
        more = capacity.latest(request.gpus, request.leases - len(has), request.window, but=has)
        capacity.take(request.gpus, more)
        plans[request.id] = tuple(sorted((*has, *more)))
    return plans


def _left(ordered: Iterable[Request], plans: Plans, gpus: int) -> Capacity:
    capacity = Capacity(gpus)
    for request in ordered:
        capacity.take(request.gpus, plans[request.id])
    return capacity


def _improve(request: Request, plans: Plans, capacity: Capacity) -> None:
    """Move a job before the best of its deadlines that has room."""
    capacity.take(-request.gpus, plans[request.id])
    for window in request.windows:
        found = capacity.latest(request.gpus, request.leases, window)
        if len(found) == request.leases:
            plans[request.id] = found
            break
    capacity.take(request.gpus, plans[request.id])


def _bring_forward(request: Request, plans: Plans, capacity: Capacity) -> None:
    plan = plans[request.id]
    if plan and plan[0] > 0 and capacity.free(0) >= request.gpus:
        capacity.take(-request.gpus, plan[:1])
        plans[request.id] = (0, *plan[1:])
        capacity.take(request.gpus, (0,))
