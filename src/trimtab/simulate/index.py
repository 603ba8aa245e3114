"""Free GPUs per level, indexed so that a best fit is a look-up instead of a scan over all nodes.

`avail[level][node]` counts the GPUs of a node not held by running jobs of that level or above: what a
pending job of the level may have if everything below gives way. The last level is what is really free.
It may be negative while a walk has promised GPUs that a lower job has not yet given up.
"""

from __future__ import annotations

from typing import Protocol

from trimtab.job import Nodes


class GpuIndex(Protocol):
    """The question every placement rule answers. `extra` are GPUs the asker may have besides."""

    def find(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        """Return a consolidated place for a gang, or None."""
        ...

    def find_spread(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        """Return a place on the nodes with most free GPUs, or None."""
        ...

    def add(self, top: int, bottom: int, nodes: Nodes, sign: int) -> None:
        """Give (sign 1) or take (-1) GPUs at the levels top .. bottom - 1."""
        ...

    def spare(self, level: int, node: int) -> int:
        """Return what a node has left at a level."""
        ...

    def total(self, level: int) -> int:
        """Return what all nodes together have left at a level."""
        ...


class CountIndex:
    """Placement `count`: GPUs are interchangeable, so there is one number a level."""

    def __init__(self, levels: int, gpus: int) -> None:
        self.avail = [gpus] * levels

    def find(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        return ((0, gpus),) if self.avail[level] + extra.get(0, 0) >= gpus else None

    def find_spread(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        return self.find(level, gpus, extra)

    def add(self, top: int, bottom: int, nodes: Nodes, sign: int) -> None:
        gpus = nodes[0][1] * sign
        for level in range(top, bottom):
            self.avail[level] += gpus

    def spare(self, level: int, node: int) -> int:
        return self.avail[level]

    def total(self, level: int) -> int:
        return self.avail[level]


class NodeIndex:
    """Placement by node: per level, each node's number and, per number, the set of nodes as a bitmap.

    The lowest set bit of the first non-empty bitmap at or above a gang's width is its best fit with ties
    by node id, whatever happened before: the index is a function of the allocations alone.
    """

    def __init__(self, levels: int, nodes: int, gpus_per_node: int) -> None:
        self.gpus_per_node = gpus_per_node
        self.avail = [[gpus_per_node] * nodes for _ in range(levels)]
        self._total = [nodes * gpus_per_node] * levels
        everyone = (1 << nodes) - 1
        self._with = [[0] * gpus_per_node + [everyone] for _ in range(levels)]

    def find(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        size = self.gpus_per_node
        if gpus <= size:
            node = self._best_fit(level, gpus, extra, 0)
            return None if node is None else ((node, gpus),)
        whole, rest = divmod(gpus, size)
        full = self._with[level][size]
        for node, more in extra.items():
            if self.avail[level][node] + more == size:
                full |= 1 << node
        if full.bit_count() < whole:
            return None
        chosen = []
        taken = 0
        for _ in range(whole):
            low = full & -full
            full ^= low
            taken |= low
            chosen.append((low.bit_length() - 1, size))
        if rest:
            node = self._best_fit(level, rest, extra, taken)
            if node is None:
                return None
            chosen.append((node, rest))
        return tuple(chosen)

    def _best_fit(self, level: int, gpus: int, extra: dict[int, int], taken: int) -> int | None:
        """Return the node with fewest GPUs that still has enough, ties by id, none of `taken`."""
        excluded = taken
        best: tuple[int, int] | None = None
        for node, more in extra.items():
            has = self.avail[level][node] + more
            excluded |= 1 << node
            if has >= gpus and not taken >> node & 1 and (best is None or (has, node) < best):
                best = has, node
        row = self._with[level]
        for has in range(gpus, self.gpus_per_node + 1):
            nodes = row[has] & ~excluded if excluded else row[has]
            if nodes:
                found = has, (nodes & -nodes).bit_length() - 1
                return min(found, best)[1] if best else found[1]
            if best and best[0] == has:
                break
        return best[1] if best else None

    def find_spread(self, level: int, gpus: int, extra: dict[int, int]) -> Nodes | None:
        spares = (
            (-(has + extra.get(node, 0)), node)
            for node, has in enumerate(self.avail[level])
            if has + extra.get(node, 0) > 0
        )
        chosen = []
        for minus_has, node in sorted(spares):
            part = min(-minus_has, gpus)
            chosen.append((node, part))
            gpus -= part
            if gpus == 0:
                return tuple(chosen)
        return None

    def add(self, top: int, bottom: int, nodes: Nodes, sign: int) -> None:
        for level in range(top, bottom):
            avail, row = self.avail[level], self._with[level]
            for node, gpus in nodes:
                self._total[level] += gpus * sign
                before = avail[node]
                after = avail[node] = before + gpus * sign
                if before > 0:
                    row[before] ^= 1 << node
                if after > 0:
                    row[after] ^= 1 << node

    def spare(self, level: int, node: int) -> int:
        return self.avail[level][node]

    def total(self, level: int) -> int:
        return self._total[level]
