"""Submission of a job that our own policies are to start: held, with its user's wishes in the comment."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trimtab.control.slurm_ticket import Record, Ticket, make_service, model_name, write_comment
from trimtab.errors import ConfigError, InputError
from trimtab.traces.spans import duration_ms

_DEADLINE_S = 60.0
_NEVER_CHANGED = "its CPU and memory could not be changed later; say --mincpus and --mem"
_OURS = "stands before sbatch's own options"
# What sbatch may not be told, and why.
_REFUSED = {
    "--comment": "the comment is where the dispatcher reads what is wanted",
    **dict.fromkeys(("-c", "--cpus-per-task", "--cpus-per-gpu"), _NEVER_CHANGED),
    **dict.fromkeys(("--mem-per-cpu", "--mem-per-gpu"), _NEVER_CHANGED),
    **dict.fromkeys(("-W", "--wait"), "the job is held, and may start much later"),
    ":": "jobs of several parts are not dispatched",
    **dict.fromkeys(
        ("--deadline", "--class", "--value", "--estimate", "--preemptable", "--model", "--conf"), _OURS
    ),
}


def make_ticket(
    now_ms: int,
    kind: str | None,
    deadline: str | None,
    value: str | None,
    estimate: str | None,
    preemptable: bool,
    model: str | None,
) -> Ticket:
    """Return what a user tells, as a ticket.

    Args:
        now_ms: The present, from which `2h` counts.
        deadline: Lengths of time from now, or instants, joined by `/`. value: whole numbers joined by `/`.

    Raises:
        ConfigError: If it cannot be wanted.
    """
    try:
        deadlines_ms = tuple(_deadline_ms(part, now_ms) for part in deadline.split("/")) if deadline else ()
        service = make_service(kind, deadlines_ms, _values(value))
        name = None if model is None else model_name(model)
    except ValueError as problem:
        raise ConfigError(f"{problem}; nothing was submitted.") from None
    estimate_ms = None if estimate is None else _longer_than_nothing("--estimate", estimate)
    late = [ms for ms in deadlines_ms if ms <= now_ms]
    if late:
        raise ConfigError(f"--deadline {deadline}: it has passed already; nothing was submitted.")
    if deadlines_ms and estimate_ms is not None and now_ms + estimate_ms > deadlines_ms[-1]:
        raise ConfigError(
            f"--estimate {estimate}: a job that runs so long cannot meet --deadline {deadline}; "
            "nothing was submitted."
        )
    return Ticket(service, estimate_ms, preemptable, name)


def sbatch_line(ticket: Ticket, words: Sequence[str]) -> list[str]:
    """Return the command that submits a job held.

    Raises:
        ConfigError: If sbatch is told what does not go together with that.
    """
    for word in _options(words):
        name = word.partition("=")[0]
        name = name[:2] if re.match(r"-[cW]", name) else name
        if name in _REFUSED:
            raise ConfigError(f"{word}: {_REFUSED[name]}; nothing was submitted.")
        if name == "--no-requeue" and ticket.preemptable:
            raise ConfigError("--no-requeue: a preemptable job is requeued; nothing was submitted.")
    if not words:
        raise ConfigError("no script: a job is what sbatch takes; nothing was submitted.")
    requeue = ["--requeue"] if ticket.preemptable else []
    return ["sbatch", "--hold", f"--comment={write_comment(ticket, Record())}", *requeue, *words]


def submit(line: Sequence[str], conf: Path | None) -> str:
    """Submit a job as its user; return what sbatch says.

    Raises:
        InputError: If sbatch refuses, or does not answer.
    """
    environment = {**os.environ, **({} if conf is None else {"SLURM_CONF": str(conf)})}
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=_DEADLINE_S)
    except OSError as problem:
        raise InputError(f"sbatch: cannot be run ({problem.strerror}); nothing was submitted.") from None
    except subprocess.TimeoutExpired:
        raise InputError(
            f"sbatch: no answer in {_DEADLINE_S:g} s; squeue shows whether the job was submitted."
        ) from None
    if done.returncode:
        said = [text.strip() for text in done.stderr.splitlines() if text.strip()]
        raise InputError(f"{said[-1] if said else 'sbatch: ended with an error'}; nothing was submitted.")
    return done.stdout.strip()


def _options(words: Sequence[str]) -> list[str]:
    """Return the words before the script: those up to the first that names a file."""
    end = next((place for place, word in enumerate(words) if Path(word).is_file()), len(words))
    return [word for word in words[:end] if word == ":" or word.startswith("-")]


def _values(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if not re.fullmatch(r"[1-9]\d{0,8}(/[1-9]\d{0,8})*", text):
        raise ValueError(f"--value {text!r:.40}: it must be whole numbers from 1 on, joined by /")
    return tuple(map(int, text.split("/")))


def _deadline_ms(text: str, now_ms: int) -> int:
    """Return an instant in whole seconds, as ms; what is told as a length of time counts from now."""
    if "-" not in text:
        return -(-(now_ms + _longer_than_nothing("--deadline", text)) // 1000) * 1000
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(
            f"--deadline {text!r:.40}: it must be a time such as 2h, or an instant with its zone such as "
            "2026-11-30T18:00:00Z"
        )
    return round(found.astimezone(UTC).timestamp()) * 1000


def _longer_than_nothing(name: str, text: str) -> int:
    try:
        time_ms = duration_ms(name, text)
    except ConfigError as problem:
        raise ConfigError(str(problem).replace("nothing was run", "nothing was submitted")) from None
    if time_ms < 1000:
        raise ConfigError(f"{name} {text!r:.40}: it must be 1 s or longer; nothing was submitted.")
    return time_ms
