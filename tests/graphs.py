"""Causal graphs made by hand, for tests of what is done with one."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.search.causal import IDENTITIES, Edge, Graph
from trimtab.search.samples import MEDIATORS

KNOBS = ("a", "b", "c", "d")


def graph_of(
    *links: tuple[str, str],
    joint: Sequence[tuple[str, str]] = (),
    frequency: float = 0.5,
    knobs: tuple[str, ...] = KNOBS,
) -> Graph:
    """Return a graph of these edges and the sum."""
    edges = [Edge(*link, frequency, "knob", link in joint, {}) for link in (*links, *joint)]
    return Graph(
        knobs=knobs,
        mediators=MEDIATORS,
        objective="wait",
        edges=(
            *edges,
            *(Edge(name, "wait", 1.0, "declared", False, {}) for name in IDENTITIES["wait"]),
        ),
        dropped=(),
        inactive=(),
        determined={},
        rows=0,
        situations=0,
        bootstraps=30,
        alpha=0.05,
        data_sha256="",
        versions={},
    )
