"""What an evaluation leaves behind, and what reads it: the journal, the graph; `replay` and `diagnose`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from trimtab import __version__
from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.cluster import check_size
from trimtab.control.journal import Journal, Recorded, exists_already, plain, read_journal
from trimtab.errors import ConfigError, InputError
from trimtab.objective import find_objective
from trimtab.report.lines import Evaluation
from trimtab.simulate.trials import open_trials
from trimtab.studies.ablations import check_names
from trimtab.studies.diagnose import PARTS, Diagnosis, Hour
from trimtab.studies.diagnose import diagnose as take_apart
from trimtab.studies.lines import Note, silent
from trimtab.studies.replay import Replayed
from trimtab.studies.replay import replay as again
from trimtab.studies.request import Request
from trimtab.traces.trace import Trace

if TYPE_CHECKING:
    from trimtab.studies.replay_loop import Redone  # which loads SQLAlchemy

_SQLITE = b"SQLite format 3\0"  # how such a file begins
_CAUSAL = "trimtab"  # the line that learns a graph


def check_outputs(journal: Path | None, graph: Path | None, lines: Sequence[str]) -> None:
    """Refuse before long work a journal that is there already, and a graph that no line learns.

    Raises:
        OutputError: If the journal is there.
        ConfigError: If no line learns a graph.
    """
    check_names(lines, ())
    if journal is not None and journal.exists():
        raise exists_already(journal)
    if graph is not None and _CAUSAL not in lines:
        raise ConfigError(f"--graph needs the line {_CAUSAL}, which learns one; nothing was run.")


@contextmanager
def open_journal(path: Path | None, request: Request) -> Iterator[Note]:
    """Give what writes records to a journal, or forgets them where none is asked for."""
    if path is None:
        yield silent
        return
    with Journal(path, request.jsonable()) as journal:
        yield journal.add


def write_graph(path: Path, found: Evaluation) -> None:
    """Write the causal graph that was learned last; say so on stderr if there is none."""
    graph = next((line.graph for line in found.lines if line.name == _CAUSAL), None)
    if graph is None:
        reason = "too little was measured, or causal-learn is not installed"
        show.notice(f"{path}: not written, no causal graph was learned ({reason}).", False)
        return
    show.write_text(path, json.dumps(plain(graph.jsonable()), indent=1, allow_nan=False) + "\n")


JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="What evaluate --journal wrote.")]


def replay(
    journal: Annotated[
        str, typer.Argument(metavar="JOURNAL", help="What evaluate --journal wrote, or serve's journal.")
    ],
    executor: o.Executor = "processes",
    workers: o.Workers = None,
    address: o.Address = None,
    seed: o.NoSeed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Decide again from a journal, of `evaluate` or of `serve`: every decision must come out the same.

    Example: trimtab replay journal.jsonl
    """
    path = Path(journal)
    if url := _database(journal, path):
        _replay_loop(url, format, quiet)
        return
    recorded, request = _opened(path, quiet)
    count = o.make_workers(executor, workers, address)
    trace = _trace_of(request)
    kind = request.world.engine
    with open_trials(executor, count, kind, address) as trials, show.progress(quiet) as advance:
        found = again(request, recorded, trace, trials, advance)
    if format == "json":
        show.print_json(found.jsonable())
    else:
        _print_replayed(found)
    if found.difference:
        raise InputError(f"{journal}: {found.difference.text()}.")


def _database(journal: str, path: Path) -> str | None:
    """Return the URL of the database that a journal of `serve` is in; None for a file of `evaluate`."""
    if "://" in journal:
        return journal
    try:
        with path.open("rb") as file:
            return f"sqlite:///{path}" if file.read(len(_SQLITE)) == _SQLITE else None
    except OSError:
        return None  # whoever opens it next says so


def _replay_loop(url: str, format: o.OutputFormat, quiet: bool) -> None:
    from trimtab.control.ledger import Ledger  # SQLAlchemy: optional, and slow to load
    from trimtab.studies.replay_loop import redo

    with Ledger.open(url, write=False) as ledger, show.progress(quiet) as advance:
        entries, moved = ledger.everything()
        states, size = ledger.state_bytes()
        found = redo(entries, lambda names: {**ledger.parts(names), **moved}, advance)
    bytes_a_state = size // states if states else None
    if format == "json":
        show.print_json({**found.jsonable(), "bytes_a_state": bytes_a_state})
    else:
        _print_redone(found, bytes_a_state)
    if found.other:
        raise InputError(f"{ledger.name}: {found.other.text()}.")


def _print_redone(found: Redone, bytes_a_state: int | None) -> None:
    told = {
        "rounds decided again": found.same["verdict"],
        "forecasts": found.same["forecast"],
        "changes": found.same["intent"],
        "scores": found.same["trial"],
        "breakers": found.same["breaker"],
        "rounds without a state": found.unseen,
        "rounds by other versions, left out": found.left_out,
        "bytes a state": bytes_a_state,
    }
    for name, count in told.items():
        if count:
            show.print_entry(name, f"{count:,}")
    if found.other is None:
        show.out.print("identical: every decision came out as it did then")


def _trace_of(request: Request) -> Trace:
    """Open the trace that was evaluated, with the models it was evaluated with."""
    world = request.world
    return o.with_models(o.open_trace(request.source, None, request.zone, request.thin, world.seed), world)


def _print_replayed(found: Replayed) -> None:
    for line, count in found.rounds.items():
        show.out.print(f"{line}: {count} rounds identical", markup=False)
    if found.difference is None and not found.whole:
        show.out.print("the journal ends before the evaluation did; the rest was not run")
    elif found.difference is None:
        show.out.print("identical to the end: every round, every result, every event of the timelines")


def _opened(path: Path, quiet: bool) -> tuple[Recorded, Request]:
    """Read a journal and what was asked, which must keep the rules of options; say on stderr what is odd."""
    recorded = read_journal(path)
    o.open_policy(str(recorded.header.get("policy")))  # a policy of one's own may refuse in its own way
    request = Request.of(recorded.header)
    world = request.world
    cost, speed = str(world.restart_cost_s), world.spread_speed
    o.make_world(
        *(world.placement, cost, world.estimates, speed, world.seed, world.engine),
        *(world.speeds, world.models, world.curves, world.mix, world.curve_noise, world.adjust_cost_s),
        world.site,
    )
    check_size(request.cluster)
    check_names(request.lines, request.ablate)
    for note in recorded.notes:
        show.notice(note, quiet)
    if request.trimtab != __version__:
        show.notice(f"{path}: was written by Trimtab {request.trimtab}, this is {__version__}", quiet)
    return recorded, request


def diagnose(
    journal: JournalPath,
    hours: Annotated[int, typer.Option(help="How many of the worst hours to take apart.")] = 5,
    line: Annotated[
        str | None, typer.Option(help="trimtab-plus | trimtab; default: the first there is.")
    ] = None,
    executor: o.Executor = "processes",
    workers: o.Workers = None,
    address: o.Address = None,
    seed: o.NoSeed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Say what went wrong in the worst hours of a forecasting line: forecast, search or application.

    Example: trimtab diagnose journal.jsonl --hours 3
    """
    recorded, request = _opened(journal, quiet)
    count = o.make_workers(executor, workers, address)
    trace = _trace_of(request)
    kind = request.world.engine
    with open_trials(executor, count, kind, address) as trials, show.progress(quiet) as advance:
        found = take_apart(request, recorded, trace, trials, hours, line, advance)
    if format == "json":
        show.print_json(found.jsonable())
    else:
        _print_diagnosis(found)


def _print_diagnosis(found: Diagnosis) -> None:
    objective = find_objective(found.objective)
    unit = objective.unit
    show.out.print(
        f"{found.line}: {len(found.hours)} worst of {found.rounds} hours; lost: {objective.title}, {unit}",
        markup=False,
    )
    if not found.hours:
        show.out.print("no hour lost anything: the running settings were the best known each time")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("hour", "lost", "gain", *PARTS):
        table.add_column(heading, justify="right", no_wrap=True)
    for hour in found.hours:
        shares = [_share(hour.parts[name], hour.lost_s) for name in PARTS]
        lost = show.number(hour.lost_s, 1)
        table.add_row(f"{hour.time_s / 3600:g}", lost, f"{hour.gain:.2f}", *shares)
    sums = found.sums()
    total = sums.pop("lost_s")
    table.add_row("sum", f"{total:,.1f}", "", *(_share(sums[name], total) for name in PARTS))
    table.add_row(unit, "", "", *(f"{sums[name]:,.1f}" for name in PARTS))
    show.out.print(table)
    for hour in found.hours:
        show.out.print(
            f"hour {hour.time_s / 3600:g}: "
            f"true arrivals alone would have gained {hour.arrivals_s:,.1f} {unit}, "
            f"true remaining times alone {hour.remaining_s:,.1f} {unit}; {hour.settings} settings compared"
            f"{_fidelity(hour)}",
            soft_wrap=True,
        )


def _share(part_s: float, lost_s: float) -> str:
    """Return a part of what was lost; nothing to tell where a setting made jobs thrash."""
    share = part_s / lost_s if lost_s else 0.0
    return f"{share:.0%}" if math.isfinite(share) else "-"


def _fidelity(hour: Hour) -> str:
    """Return what waiting came up to the next round beside what was simulated of it."""
    if hour.simulated_s is None or hour.realised_s is None:
        return ""
    return f"; mean wait to the next round {hour.realised_s:,.1f} s, simulated {hour.simulated_s:,.1f} s"
