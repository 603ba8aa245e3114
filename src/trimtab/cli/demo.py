"""`demo`: the main job on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.cli.tuning import evaluation_json, print_evaluation
from trimtab.cluster import Cluster
from trimtab.errors import OutputError
from trimtab.policies.catalog import find_policy
from trimtab.report.evaluate import evaluate_page
from trimtab.report.page import write_page
from trimtab.simulate.fast import compiled_available
from trimtab.simulate.trials import open_trials
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import LINES
from trimtab.traces.loader import load

_SOURCE = "synthetic:philly?days=11&seed=3"
_NODES = 40


class _Size(NamedTuple):
    """How much the demo does: enough to see something, little enough to wait for."""

    window: str
    interval: str
    budget: int


_COMPILED = _Size("7d..11d", "3h", 20)
_REFERENCE = _Size("7d..9d", "6h", 6)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report; made if missing.")] = Path("trimtab-demo"),
    seed: o.Seed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Tune a cluster's scheduler on built-in data and write a report.

    Example: trimtab demo --out my-demo
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out}: {error.strerror}; nothing was run.") from None
    show.check_writable([out / "report.html"])
    world = o.make_world("consolidated", "62", "oracle", 0.5, seed, "auto")
    size = _COMPILED if compiled_available() else _REFERENCE
    trace = load(_SOURCE)
    plan = o.make_plan("wait", "bluefin", size.budget, size.interval, "24h", "48h", 1.0, "30m")
    policy = find_policy("tiresias")
    workers = o.make_workers("processes", None, None)
    with open_trials("processes", workers) as trials, show.progress(quiet) as advance:
        found = evaluate(
            trace,
            size.window,
            Cluster.pool(_NODES, 8),
            policy.name,
            policy.space.defaults,
            world,
            plan,
            list(LINES),
            trials,
            advance,
        )
    write_page(out / "report.html", evaluate_page(found))
    if format == "json":
        show.print_json({"report": str(out / "report.html"), **evaluation_json(found)})
        return
    print_evaluation(found)
    show.out.print(f"report: {out / 'report.html'}", soft_wrap=True, markup=False)
