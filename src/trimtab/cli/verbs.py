"""The verbs of the command line by name, each with the module that is loaded when it is asked for.

Help and version are there at once: what a verb needs takes longer to load than most of them to run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Verb(NamedTuple):
    """Where a verb is, and what it does in a line of help."""

    module: str
    does: str


VERBS = {
    "demo": Verb("demo", "Tune a scheduler on built-in data and write a report."),
    "trace": Verb("trace", "List, describe, convert, generate and fetch job histories."),
    "policies": Verb("inspect", "List the policies."),
    "knobs": Verb("inspect", "Show a policy's knobs and what each of them trades."),
    "simulate": Verb("run", "Simulate one policy on a trace."),
    "compare": Verb("run", "Simulate several policies or settings on the same jobs."),
    "admit": Verb("admit", "Say which deadline a job could be promised."),
    "tune": Verb("tuning", "Search better settings for one moment of a trace."),
    "evaluate": Verb("tuning", "Walk through a window hour by hour and compare ways of tuning."),
    "study": Verb("study", "Simulate a grid of cases and compare policies over all of it."),
    "replay": Verb("records", "Decide again from a journal of evaluate or serve."),
    "diagnose": Verb("records", "Say what went wrong in the worst hours of a line."),
    "serve": Verb("serve", "Run the control loop beside a scheduler, until stopped."),
    "status": Verb("serve", "Show what a running serve wants, has written and sees."),
    "approve": Verb("serve", "Make the change that a running serve proposes."),
    "rollback": Verb("serve", "Go back to the setting before the one in force."),
    "pause": Verb("serve", "Let a running serve change nothing until resume."),
    "resume": Verb("serve", "Let changes be made again."),
    "reload": Verb("serve", "Let a running serve read its settings file again."),
    "slurm": Verb("slurm", "Look at a live Slurm, read its history, submit and dispatch its jobs."),
    "doctor": Verb("inspect", "Say what this installation is and has."),
}


class Verbs(TyperGroup):
    """A group whose commands are loaded one by one, when they are run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": dict.fromkeys(VERBS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb's command, None if there is none of this name."""
        return _load(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.does) for name, verb in VERBS.items()])


def _load(name: str) -> Any:
    module = import_module(f"trimtab.cli.{VERBS[name].module}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(rich_markup_mode=None, add_completion=False)
        group.command(name)(getattr(module, name))
    return get_command(group)
