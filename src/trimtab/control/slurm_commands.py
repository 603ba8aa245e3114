"""Slurm's own commands, run one at a time: with a time-out, in a known environment, and read as text."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimtab.control.adapter import Unreachable
from trimtab.errors import ConfigError
from trimtab.world import wall_s

ANSWER_MAX = 64 << 20
_USUAL = "/etc/slurm/slurm.conf"

# What a user sets for himself must not change what the commands print, as SQUEUE_FORMAT would.
_OWN_SETTINGS = ("SLURM", "SQUEUE", "SINFO", "SPRIO", "SACCT", "SCONTROL", "SBATCH", "SDIAG")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    errors: str

    @property
    def complaint(self) -> str:
        """Its last line on stderr that says something, shortened: what it ended for comes last."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"it ended with {self.code} and said nothing"


@dataclass(frozen=True)
class Commands:
    """Slurm's commands for one cluster.

    Attributes:
        conf: The cluster's slurm.conf.
        folder: Where the commands are; None for those on the path.
        deadline_s: How long each may take; then it is killed with all that it started.

    Raises:
        ConfigError: If the deadline is not possible.
    """

    conf: Path
    folder: Path | None = None
    deadline_s: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s <= 3600:
            raise ConfigError(f"deadline {self.deadline_s} s: it must be above 0, at most an hour.")

    def run(self, program: str, *words: str, conf: Path | None = None) -> Answer:
        """Run a command, by another slurm.conf if one is named.

        Raises:
            Unreachable: If there is no such command, it does not end in time, or says too much.
        """
        line = [str(self.folder / program) if self.folder else program, *words]
        began_s = wall_s()
        try:
            started = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(conf or self.conf),
                start_new_session=True,
            )
        except OSError as problem:
            raise Unreachable(f"{program}: cannot be run ({problem.strerror}).") from None
        try:
            out, errors = started.communicate(timeout=self.deadline_s)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{program}: no answer in {self.deadline_s:g} s.") from None
        finally:
            if started.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
                started.wait()
                for stream in (started.stdout, started.stderr):
                    if stream is not None:
                        stream.close()
        if len(out) > ANSWER_MAX:
            raise Unreachable(f"{program}: said {len(out):,} bytes in {wall_s() - began_s:.1f} s: too much.")
        return Answer(started.returncode, out.decode(errors="replace"), errors.decode(errors="replace"))

    def ask(self, program: str, *words: str) -> str:
        """Return what a command prints.

        Raises:
            Unreachable: If it does not answer, or ends with an error.
        """
        answer = self.run(program, *words)
        if answer.code != 0:
            raise Unreachable(f"{program}: {answer.complaint}")
        return answer.out

    def check_up(self) -> None:
        """Ask whether slurmctld is there.

        Raises:
            Unreachable: If it does not say so.
        """
        answer = self.run("scontrol", "ping")
        if answer.code != 0 or " is UP" not in answer.out:
            raise Unreachable(f"scontrol ping: slurmctld does not answer ({answer.complaint}).")

    def table(self, program: str, names: tuple[str, ...], *words: str) -> list[dict[str, str]]:
        """Return the rows that a command with `-O` prints, by the names of these columns.

        Raises:
            Unreachable: If it does not answer, or with another table.
        """
        # Another mark each time: nobody can name a job so that a part of its name looks like another field.
        mark = "t" + hashlib.sha256(f"{os.getpid()} {wall_s()}".encode()).hexdigest()[:12]
        return rows(program, self.ask(program, *words, "-O", columns(mark, names)), mark, names)


def commands_for(conf: Path | None, deadline_s: float) -> Commands:
    """Return the commands for a slurm.conf; SLURM_CONF, or the usual one, if none is named."""
    return Commands(conf or Path(os.environ.get("SLURM_CONF") or _USUAL), deadline_s=deadline_s)


def _environment(conf: Path) -> dict[str, str]:
    """Return this process's environment without what would change an answer; times are in UTC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)}
    return {**kept, "SLURM_CONF": str(conf), "LC_ALL": "C", "TZ": "UTC"}


def rows(program: str, text: str, mark: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a table that was asked for with `columns`, by column.

    Fields end at the mark and nowhere else: a job's name or comment may hold anything, line breaks as well,
    and a warning printed first is no part of the first field. The heading must be there, so that no answer
    is not taken for an empty table.

    Raises:
        Unreachable: If there is no heading, or a row has another number of fields.
    """
    *fields, _ = text.split(f"|{mark}|")
    width = len(names)
    if not fields or any("\n" in field for field in fields[1:width]):
        raise Unreachable(f"{program}: answers without a heading, so it is not known what it says.")
    if len(fields) % width:
        raise Unreachable(f"{program}: answers with {len(fields)} fields in rows of {width}.")
    found = []
    for begin in range(width, len(fields), width):
        first, *others = fields[begin : begin + width]
        row = (first.rpartition("\n")[2], *others)
        found.append({name: field.strip() for name, field in zip(names, row, strict=True)})
    return found


def columns(mark: str, names: tuple[str, ...]) -> str:
    """Return names as `-O` takes them, each field as long as it is."""
    return ",".join(f"{name}:|{mark}|" for name in names)


def read_config(commands: Commands) -> dict[str, str]:
    """Return what `scontrol show config` prints, by key in lower case.

    Raises:
        Unreachable: If it does not answer, or not as it should.
    """
    lines = commands.ask("scontrol", "show", "config").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    found = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "slurm_version" not in found or "schedulerparameters" not in found:
        raise Unreachable("scontrol show config: answers what cannot be read.")
    return found


def nodes_of(text: str) -> list[str]:
    """Return the hosts that a list such as `g[1-3,07],login` names, in its order.

    Raises:
        Unreachable: If it is no such list.
    """
    found: list[str] = []
    for part in _split(text):
        found += _expanded(part)
    return found


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    if depth:
        raise Unreachable(f"host list {text!r:.80}: its brackets do not match.")
    return [part for part in (*parts, text[begin:]) if part]


def _expanded(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    ends = _expanded(tail) if tail else [""]
    return [f"{head}{number}{end}" for number in _numbers(inside) for end in ends]


def _numbers(text: str) -> list[str]:
    found = []
    for span in text.split(","):
        low, dash, high = span.partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal()) or not 0 <= int(high) - int(low) < 100_000:
            raise Unreachable(f"host list [{text!r:.80}]: cannot be read.")
        found += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return found
