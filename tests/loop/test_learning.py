"""The causal line learns Themis and Lucid: through what their knobs act, and a model of what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from histories import days, plan, walk
from trimtab.cluster import Cluster
from trimtab.objective import find_objective
from trimtab.search.tuner import Tuning
from trimtab.simulate.models import assign_models
from trimtab.simulate.speed import BUILTIN
from trimtab.world import Seeds

# Policy, objective -> what the graph must have, and what the model's ranks must be good for at their best.
LEARNED = [
    # Without profiler nodes nobody is stopped; pairs are slower, and that is part of how long jobs take.
    ("lucid", "jct", {("prof_nodes", "preemptions"), ("slowdown_s", "jct")}, 0.5),
    # An auction that is put off lets GPUs stand idle.
    ("themis", "wait", {("auction_delay", "queue_s")}, 0.5),
    # Shorter leases stop more jobs, which costs restarts. No sum gives rho: its edges are learned, too.
    (
        "themis",
        "rho",
        {("lease", "preemptions"), ("preemptions", "restart_s"), ("auction_delay", "rho")},
        0.1,
    ),
]


@pytest.mark.parametrize(("policy", "objective", "edges", "ranks"), LEARNED)
def test_graph_and_model_are_learned(
    policy: str, objective: str, edges: set[tuple[str, str]], ranks: float
) -> None:
    pytest.importorskip("causallearn", reason="causal-learn is not installed")
    tuning = Tuning(objective=find_objective(objective), budget=45)
    how = replace(plan(), tuning=tuning, paper_background_ms=None, aggregate=False)
    trace = assign_models(days(5, 1), BUILTIN, "draw", Seeds(0)).trace
    cluster = Cluster.pool(4, 4)
    line = walk(trace, "trimtab", how=how, window="102h..105h", cluster=cluster, policy=policy).lines[0]
    assert line.graph is not None
    assert edges <= {(edge.cause, edge.effect) for edge in line.graph.edges}
    models = [event for one in line.rounds for event in one.record["events"] if event["kind"] == "model"]
    assert max(event["spearman"] for event in models) > ranks
