"""The picture of a causal graph: layers, widths and dashes say what the graph says."""

from __future__ import annotations

import json
from dataclasses import replace

from graphs import graph_of
from trimtab.report.graph import evidence_table, graph_chart

GRAPH = graph_of(("a", "queue_s"), ("b", "restart_s"), joint=[("queue_s", "restart_s")])


def test_layers_run_from_knobs_to_the_objective() -> None:
    *_, nodes = graph_chart(GRAPH).data
    x = dict(zip(nodes["text"], nodes["x"], strict=True))
    assert (x["a"], x["d"], x["queue_s"], x["wait"]) == (0, 0, 1, 2)


def test_edges_are_as_wide_as_they_are_frequent_and_dashed_where_open() -> None:
    edges = {one["text"].split(":")[0]: one for one in graph_chart(GRAPH).data[:-1]}
    assert len(edges) == len(GRAPH.edges)
    knob, pair, known = (edges[name] for name in ("a → queue_s", "queue_s and restart_s", "queue_s → wait"))
    assert knob["line"]["width"] < known["line"]["width"]
    assert [one["line"]["dash"] for one in (knob, pair, known)] == ["solid", "dash", "solid"]
    assert knob["marker"]["symbol"][-1] == "arrow"
    assert "arrow" not in pair["marker"]["symbol"]
    assert "(knob)" in knob["text"]


def test_what_never_changed_is_named_and_not_drawn() -> None:
    chart = graph_chart(replace(GRAPH, inactive=("slowdown_s",)))
    assert "slowdown_s" not in chart.data[-1]["text"]
    assert "Never changed: slowdown_s." in chart.caption
    assert len(chart.data) == len(GRAPH.edges)  # one edge fewer, and the nodes


def test_it_is_plain_values() -> None:
    assert json.loads(json.dumps(graph_chart(GRAPH).jsonable("graph")))["id"] == "graph"


def test_the_evidence_names_every_edge_and_how_often_it_was_drawn() -> None:
    seen = replace(GRAPH.edges[0], frequency=0.9, marks={"-->": 27})
    table = str(evidence_table(replace(GRAPH, edges=(*GRAPH.edges[1:], seen))))
    assert table.count("<tr>") == 1 + len(GRAPH.edges)
    assert "--&gt; 27" in table
    assert table.index("a → queue_s") < table.index("queue_s and restart_s") < table.index("queue_s → wait")
