"""A small schedule of Lucid as a picture: who is profiled, who runs where, and who shares GPUs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.policies.lucid import Lucid
from trimtab.profile import Profile
from trimtab.report import charts
from trimtab.report.charts import Chart, Trace
from trimtab.simulate.engine import Engine
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

NODES, GPUS_PER_NODE = 2, 4
KNOBS = {"prof_nodes": 1, "t_prof": 200, "prof_factor": 2, "share_off_below": 0.0}
# Label, submitted at (s), runs (s), GPUs, GPU and memory utilisation in %.
JOBS = (
    ("A", 0, 1500, 4, 20.0, 5.0),
    ("B", 60, 150, 1, 20.0, 5.0),
    ("C", 120, 900, 2, 20.0, 5.0),
    ("D", 180, 100, 1, 20.0, 5.0),
    ("E", 300, 700, 4, 20.0, 5.0),
    ("F", 400, 600, 2, 90.0, 60.0),
)
_THICK = 18


@dataclass(frozen=True)
class Stretch:
    """A job on some GPUs of the picture, from an instant to another."""

    job: int
    rows: tuple[int, ...]
    from_s: float
    until_s: float
    is_guest: bool


def lucid_picture() -> Chart:
    """Return the schedule, GPUs from bottom to top, and print its events."""
    engine = _simulated()
    assert engine.timeline is not None
    print(engine.timeline.text())
    traces = [_bar(one, row) for one in _stretches(engine) for row in one.rows]
    gpus = NODES * GPUS_PER_NODE
    names = [f"node {row // GPUS_PER_NODE}, GPU {row % GPUS_PER_NODE}" for row in range(gpus)]
    layout = {
        "xaxis": {"title": {"text": "seconds"}},
        "yaxis": {"tickvals": list(range(gpus)), "ticktext": names, "range": [-0.6, gpus - 0.4]},
        "margin": {"l": 110, "r": 16, "t": 30, "b": 48},
        "showlegend": True,
    }
    return Chart(title="", caption="", data=_each_named_once(traces), layout=layout, height=360)


def _simulated() -> Engine:
    facts = [
        JobFacts(label, 1000 * submit_s, gpus, profile=Profile(gpu_util=gpu, gmem_util=memory))
        for label, submit_s, _, gpus, gpu, memory in JOBS
    ]
    workload = Workload(facts, [1000 * run_s for _, _, run_s, *_ in JOBS])
    world = Environment(estimator=OracleEstimator(workload.duration_ms), speeds=BUILTIN)
    cluster, knobs = Cluster.pool(NODES, GPUS_PER_NODE), Lucid.space.project(KNOBS)
    engine = Engine(workload, cluster, Lucid(), knobs, world, timeline=True)
    engine.run()
    return engine


def _stretches(engine: Engine) -> list[Stretch]:
    """Give each start GPUs of its nodes: free ones, or those of the job beside which it starts."""
    assert engine.timeline is not None
    labels = engine.timeline.labels
    taken: dict[int, tuple[int, ...]] = {}
    crowd: dict[int, int] = defaultdict(int)
    began: dict[int, tuple[float, bool]] = {}
    found = []
    for event in engine.timeline.events:
        job, now_s = event.job, event.time_ms / 1000
        if job is None:
            continue
        if event.kind == "start":
            beside = event.detail.removeprefix("beside ")
            rows = taken[labels.index(beside)] if beside else _free(event.nodes, crowd)
            taken[job], began[job] = rows, (now_s, bool(beside))
            for row in rows:
                crowd[row] += 1
        elif event.kind in ("preempt", "finish"):
            found.append(Stretch(job, taken[job], began[job][0], now_s, began[job][1]))
            for row in taken.pop(job):
                crowd[row] -= 1
    return found


def _free(nodes: tuple[tuple[int, int], ...], crowd: dict[int, int]) -> tuple[int, ...]:
    rows: list[int] = []
    for node, gpus in nodes:
        of_node = range(node * GPUS_PER_NODE, (node + 1) * GPUS_PER_NODE)
        rows += [row for row in of_node if not crowd[row]][:gpus]
    return tuple(rows)


def _bar(one: Stretch, row: int) -> Trace:
    height = row + (0.2 if one.is_guest else -0.2)
    width = _THICK / 2
    return charts.curve(
        one.job, JOBS[one.job][0], [one.from_s, one.until_s], [height, height], line={"width": width}
    )


def _each_named_once(traces: list[Trace]) -> list[Trace]:
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = trace["name"] not in seen
        trace["legendgroup"] = trace["name"]
        seen.add(trace["name"])
    return traces
