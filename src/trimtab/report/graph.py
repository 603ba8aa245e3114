"""A causal graph as a chart: knobs, what waiting is made of, the objective, from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.report.charts import Chart, Trace, colour
from trimtab.report.markup import Html, label
from trimtab.report.tables import plain_table
from trimtab.search.causal import Edge, Graph

_ROW = 46  # pixels between two nodes of a layer
_BEND = 0.22  # how far an edge inside a layer swings out, in layers
_WIDEST = 7.0  # of an edge that all bootstrap samples have, in pixels

# What an edge's rule means, for people.
_RULES = {
    "knob": "knobs are set by us: they act, nothing acts on them",
    "declared": "a part of the sum: known, not learned",
    "objective": "the objective comes last",
    "majority": "most samples point that way",
    "open": "the samples do not agree on a direction",
    "determined": "follows from columns that are functions of each other",
}

Place = tuple[float, float]


def graph_chart(graph: Graph) -> Chart:
    """Return the chart; columns that never changed are named in its caption and not drawn."""
    mediators = [name for name in graph.mediators if name not in graph.inactive]
    layers = (list(graph.knobs), mediators, [graph.objective])
    places = {name: place for at, layer in enumerate(layers) for name, place in _column(at, layer).items()}
    edges = [edge for edge in graph.edges if edge.cause in places and edge.effect in places]
    data = [_edge(edge, places, graph) for edge in edges] + [_nodes(places)]
    axis = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {**axis, "range": [-0.55, 2.45]},
        "yaxis": {**axis, "range": [-0.1, 1.1]},
        "showlegend": False,
        "hovermode": "closest",
    }
    height = 60 + _ROW * max(map(len, layers))
    return Chart(
        title="What acts on what",
        caption=_caption(graph),
        data=data,
        layout=layout,
        height=height,
        wide=True,
    )


def evidence_table(graph: Graph) -> Html:
    """Return the edges with what speaks for them, those that were learned first, the most frequent on top."""
    shown = sorted(graph.edges, key=lambda edge: (edge.rule == "declared", -edge.frequency))
    rows = [
        [
            f"{edge.cause} {_between(edge)} {edge.effect}",
            f"{edge.frequency:.2f}",
            _RULES.get(edge.rule, edge.rule),
            ", ".join(f"{mark} {count}" for mark, count in edge.marks.items()) or "\u00a0",
        ]
        for edge in shown
    ]
    titles = ("Edge", "Frequency", "Why it looks so", f"As drawn in {graph.bootstraps} bootstrap samples")
    return plain_table(titles, rows, "Every edge, and what speaks for it", {1})


def _between(edge: Edge) -> str:
    return "and" if edge.joint else "→"


def _caption(graph: Graph) -> str:
    still = ", ".join(graph.inactive)
    never = f" Never changed: {still}." if still else ""
    return (
        f"Learned from {graph.rows} simulations of {graph.situations} situations. The thicker a line, "
        f"the more of {graph.bootstraps} bootstrap samples have it; dashed where its direction is open. "
        f"What adds up to the objective is known, not learned.{never}"
    )


def _column(layer: int, names: Sequence[str]) -> dict[str, Place]:
    """Return places of a layer's nodes, top down."""
    return {name: (float(layer), 1 - (row + 0.5) / len(names)) for row, name in enumerate(names)}


def _edge(edge: Edge, places: Mapping[str, Place], graph: Graph) -> Trace:
    start, end = places[edge.cause], places[edge.effect]
    corners = [start, end]
    if start[0] == end[0]:
        corners.insert(1, (start[0] + _BEND, (start[1] + end[1]) / 2))
    kind = 0 if edge.rule == "declared" else 1 if edge.cause in graph.knobs else 3
    marks = ", ".join(f"{mark} {count}" for mark, count in edge.marks.items())
    why = f"{edge.rule}: {marks}" if marks else edge.rule
    text = f"{edge.cause} {_between(edge)} {edge.effect}: {edge.frequency:.2f} ({why})"
    ends = ["circle"] * (len(corners) - 1) + ["circle" if edge.joint else "arrow"]
    sizes = [0] * (len(corners) - 1) + [0 if edge.joint else 11]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [x for x, _ in corners],
        "y": [y for _, y in corners],
        "line": {
            "color": colour(kind),
            "width": round(max(1.0, _WIDEST * edge.frequency), 2),
            "dash": "dash" if edge.joint else "solid",
            "shape": "spline" if len(corners) > 2 else "linear",
        },
        "marker": {
            "symbol": ends,
            "size": sizes,
            "angleref": "previous",
            "standoff": 12,
            "color": colour(kind),
        },
        "opacity": 0.75,
        "hoverinfo": "text",
        "text": label(text, 120),
    }


def _nodes(places: Mapping[str, Place]) -> Trace:
    sides = {0.0: "middle left", 1.0: "top center", 2.0: "middle right"}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [x for x, _ in places.values()],
        "y": [y for _, y in places.values()],
        "text": [label(name) for name in places],
        "textposition": [sides[x] for x, _ in places.values()],
        "marker": {"size": 13, "color": "@ink"},
        "hoverinfo": "skip",
    }
