"""The application: its verbs, and how it ends. 0 success, 1 a refusal or failure, 2 wrong usage."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from types import FrameType

import typer

from trimtab import __version__
from trimtab.cli.verbs import Verbs
from trimtab.errors import InvariantError, TrimtabError
from trimtab.policies import USER_MODULE

# What a shell reports for a program ended by Ctrl-C.
_INTERRUPTED = 130

app = typer.Typer(
    name="trimtab",
    cls=Verbs,
    help="Tunes a GPU cluster's scheduler from the cluster's own job history.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help and usage errors: they survive pipes and narrow terminals
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    # Worker threads that an interruption tears down have nothing to say; others do, at the end.
    held: list[threading.ExceptHookArgs] = []
    threading.excepthook = held.append
    signal.signal(signal.SIGTERM, _stop)
    try:
        _run()
    except SystemExit as ending:
        if ending.code != _INTERRUPTED:
            for one in held:
                threading.__excepthook__(one)
        raise


def _stop(number: int, frame: FrameType | None) -> None:
    """Take `kill` as Ctrl-C is taken: workers and files go with the command."""
    raise KeyboardInterrupt


def _run() -> None:
    try:
        try:
            app(prog_name="trimtab")
        finally:
            sys.stdout.flush()
    except SystemExit as ending:
        if ending.code == _INTERRUPTED:
            _end("interrupted; nothing half-written was left behind.", _INTERRUPTED)
        if where := _origin(ending):
            _end(f"a policy's own code asks Python to exit{where}; the run ends here.", 1)
        raise
    except KeyboardInterrupt:
        _end("interrupted; nothing half-written was left behind.", _INTERRUPTED)
    except InvariantError as error:
        _end(f"internal contradiction, please report it: {error}", 1)
    except TrimtabError as error:
        _end(f"{error}{_origin(error.__cause__)}", 1)
    except MemoryError:
        _end("there is not enough memory for this; nothing was written.", 1)
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except OSError as error:
        _close_stdout()
        where = f": {error.filename}" if error.filename else ""
        _end(f"{error.strerror or error}{where}; the result is lost.", 1)


def _end(text: str, code: int) -> None:
    print(f"trimtab: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(code)


def _close_stdout() -> None:
    """Let nothing be written any more: Python would try again at its end, and complain again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _origin(error: BaseException | None) -> str:
    """Return where in a user's own policy an error began, or nothing."""
    frames = traceback.walk_tb(error.__traceback__) if error is not None else ()
    own = [
        (frame, line)
        for frame, line in frames
        if str(frame.f_globals.get("__name__")).startswith(USER_MODULE)
    ]
    return f" ({own[-1][0].f_code.co_filename}:{own[-1][1]})" if own else ""
