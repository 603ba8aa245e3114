"""The application: its verbs, and how it ends. 0 success, 1 a refusal or failure, 2 wrong usage."""

from __future__ import annotations

import os
import sys

import typer

from trimtab import __version__
from trimtab.cli import demo, inspect, run, trace, tuning
from trimtab.errors import InvariantError, TrimtabError

app = typer.Typer(
    name="trimtab",
    help="Tunes a GPU cluster's scheduler from the cluster's own job history.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.add_typer(trace.app, name="trace")
app.command()(inspect.policies)
app.command()(inspect.knobs)
app.command()(run.simulate)
app.command()(run.compare)
app.command()(tuning.tune)
app.command()(tuning.evaluate)
app.command()(inspect.doctor)


def _version(value: bool) -> None:
    if value:
        print(f"trimtab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; each refusal is one line on stderr."""
    try:
        app()
    except InvariantError as error:
        _end(f"internal contradiction, please report it: {error}", 1)
    except TrimtabError as error:
        _end(str(error), 1)
    except KeyboardInterrupt:
        _end("interrupted; nothing half-written was left behind.", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _end(f"{error.strerror or error}{where}; the result is lost.", 1)


def _end(text: str, code: int) -> None:
    print(f"trimtab: {text}", file=sys.stderr)
    sys.exit(code)
