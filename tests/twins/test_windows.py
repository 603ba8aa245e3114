"""The twins on the real windows: every policy, the same events on both engines."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from trimtab.cluster import Cluster, Placement
from trimtab.forecast.throughput import Throughput
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.models import assign_models
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.traces import helios, pai, table
from trimtab.world import Seeds

_LOADERS = {
    "philly-a": lambda shared: table.load(shared / "peers" / "philly_2w.csv.gz"),
    "venus": lambda shared: helios.load(shared / "data/helios/venus_gpu_jobs_until_2020-08-09.csv.gz").window(
        "2020-07-26..2020-08-09"
    ),
    "pai": lambda shared: pai.load(shared / "data/pai/pai_gpu_tasks_sample_days_0_45.csv.gz").window(
        "32d..46d"
    ),
}


@lru_cache
def _workload(name: str, shared: Path, most: int | None = None) -> Workload:
    trace = assign_models(_LOADERS[name](shared), BUILTIN, "draw", Seeds(0)).trace
    whole = Workload.of(trace, 500_000)
    return Workload(whole.facts[:most], whole.duration_ms[:most])


def _check(
    workload: Workload, nodes: int, policy: str, texts: dict[str, str], placement: Placement = "consolidated"
) -> None:
    found = find_policy(policy)
    environment = Environment(
        placement=placement,
        restart_ms=flat_restart(62_000),
        estimator=OracleEstimator(workload.duration_ms),
        speeds=BUILTIN,
        pace=Throughput.of([facts.submit_ms for facts in workload.facts]),
    )
    cluster, knobs = Cluster.pool(nodes, 8), found.space.parse(texts)
    engines = [
        engine(workload, cluster, found, knobs, environment, timeline=True) for engine in (Engine, FastEngine)
    ]
    for engine in engines:
        engine.run()
    reference, core = engines
    assert reference.timeline is not None
    assert core.timeline is not None
    assert core.timeline.events == reference.timeline.events
    assert core.timeline.digest() == reference.timeline.digest()
    assert core.records == reference.records
    assert (core.events, core.held_gpu_ms) == (reference.events, reference.held_gpu_ms)


@pytest.mark.parametrize(
    ("nodes", "policy", "texts"),
    [
        (100, "fifo", {}),
        (80, "fifo", {}),
        (80, "fifo", {"backfill": "skip"}),
        (100, "sjf", {}),
        (80, "qssf", {"backfill": "skip"}),
        (100, "srtf", {}),
        (80, "srsf", {"min_run": "60"}),
        (100, "tiresias", {}),
        (80, "tiresias", {}),
        (80, "tiresias", {"queue_thresholds": "3250/7200", "in_queue_order": "start"}),
        (80, "tiresias", {"promote_knob": "2", "quantum": "60", "min_run": "30"}),
    ],
)
def test_philly_a(shared: Path, nodes: int, policy: str, texts: dict[str, str]) -> None:
    _check(_workload("philly-a", shared), nodes, policy, texts)


def test_philly_a_by_gittins_index(shared: Path) -> None:
    """The index is slow in Python, so the first days only."""
    _check(_workload("philly-a", shared, 1500), 60, "tiresias", {"priority": "gittins"})


@pytest.mark.parametrize(
    ("texts", "placement"),
    [
        ({"lease": "600"}, "consolidated"),
        ({"lease": "600", "fairness_f": "0.2", "hidden_payment": "on", "auction_delay": "60"}, "relaxed"),
    ],
)
def test_philly_a_by_auctions(shared: Path, texts: dict[str, str], placement: Placement) -> None:
    """The reference engine looks at every job in every pass, so the first days on few nodes only."""
    _check(_workload("philly-a", shared, 500), 8, "themis", texts, placement)


@pytest.mark.parametrize(
    ("texts", "placement"),
    [
        ({}, "consolidated"),
        ({"gsc": "4", "share_off_below": "0", "pack_preference": "pack_first"}, "relaxed"),
        (
            {
                "prof_nodes": "1",
                "prof_autoscale": "on",
                "backfill": "strict",
                "partner": "first",
                "share_off_below": "0",
                "pack_preference": "forecast",
            },
            "consolidated",
        ),
    ],
)
def test_philly_a_in_pairs(shared: Path, texts: dict[str, str], placement: Placement) -> None:
    """The reference engine looks at every job in every pass, so the first days on few nodes only."""
    _check(_workload("philly-a", shared, 500), 8, "lucid", texts, placement)


@pytest.mark.parametrize("placement", ["count", "relaxed"])
def test_philly_a_placed_otherwise(shared: Path, placement: Placement) -> None:
    _check(_workload("philly-a", shared), 80, "tiresias", {}, placement)


@pytest.mark.parametrize(("name", "nodes"), [("venus", 70), ("pai", 70)])
@pytest.mark.parametrize("texts", [{}, {"queue_thresholds": "600/3600/36000"}])
def test_gangs_of_many_widths(shared: Path, name: str, nodes: int, texts: dict[str, str]) -> None:
    _check(_workload(name, shared), nodes, "tiresias", texts)
