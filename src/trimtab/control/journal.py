"""The journal of an evaluation: a file of JSON lines that holds enough to run it again and to say why.

The first line is a header: what was asked. Then follow, as they happen, a `start` for each line of the
evaluation, a `round` for each of its searches, and an `end`. Each is flushed as soon as it is written: a run
that is killed leaves whole records, but for the last one perhaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from trimtab.errors import InputError, OutputError

SCHEMA = 1

# What clocks say: it differs from run to run, and is never compared.
CLOCKS = frozenset({"search_s", "seconds"})


def plain(value: Any) -> Any:
    """Return a value for JSON; a number that is not finite becomes null."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


class Journal:
    """A journal being written; the file is made with the first record.

    Args:
        path: Where; a file that is there already is never overwritten.
        header: What was asked: all that is needed to run it again.

    Raises:
        OutputError: On leaving, if what was written could not be kept.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path, self._header = path, header
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as problem:  # what `add` has said already, or the first that is heard of it
            if error is None:
                raise self._lost(problem) from None

    def add(self, record: Mapping[str, Any]) -> None:
        """Write a record down.

        Raises:
            OutputError: If the file is there already, or cannot be written.
        """
        try:
            if self._file is None:
                self._begin()
            self._write(record)
        except FileExistsError:
            raise exists_already(self._path) from None
        except OSError as problem:
            raise self._lost(problem) from None

    def _begin(self) -> None:
        """Make the file, with its header; none is left if there is no room for that."""
        self._file = self._path.open("xb")
        try:
            self._write({"schema": SCHEMA, "kind": "header", **self._header})
        except OSError:
            self._path.unlink()
            raise

    def _lost(self, problem: OSError) -> OutputError:
        reason = problem.strerror or str(problem)
        return OutputError(f"{self._path}: cannot be written ({reason}); the run ends here.")

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file is not None
        line = json.dumps(plain(record), separators=(",", ":"), allow_nan=False)
        self._file.write(f"{line}\n".encode())
        self._file.flush()


def exists_already(path: Path) -> OutputError:
    """Return the refusal to write over a journal."""
    return OutputError(f"{path}: is there already, and a journal is never overwritten; nothing was run.")


@dataclass(frozen=True)
class Recorded:
    """A journal as read.

    Attributes:
        header: What was asked.
        records: What happened, in order.
        notes: What is to be said about the file, in sentences.
    """

    header: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    def of(self, line: str) -> tuple[Mapping[str, Any], ...]:
        """Return the records of one line."""
        return tuple(record for record in self.records if record["line"] == line)


def read_journal(path: Path) -> Recorded:
    """Read a journal; a last line that is cut short is left out, and `notes` says so.

    Raises:
        InputError: If it cannot be read, is no journal, or is of another schema.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; nothing was run.") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); nothing was run.") from None
    if not data.strip():
        raise InputError(f"{path}: is empty; nothing was run.")
    lines = list(_lines(path, data))
    if not lines:
        raise InputError(f"{path}: its only line is cut short; nothing was run.")
    header, *records = lines
    if header.get("kind") != "header":
        raise InputError(f"{path}: is no journal, its first line is no header; nothing was run.")
    if header.get("schema") != SCHEMA or isinstance(header["schema"], bool):
        raise InputError(
            f"{path}: is a journal of schema {header.get('schema')}, this Trimtab reads {SCHEMA}; "
            "nothing was run."
        )
    for number, record in enumerate(records, 2):
        if record.get("kind") not in ("start", "round", "end") or not isinstance(record.get("line"), str):
            raise InputError(f"{path}: line {number} is no record of a journal; nothing was run.")
    torn = "" if len(lines) == len(data.splitlines()) else "its last line is cut short and left out"
    return Recorded(header, tuple(records), (f"{path}: {torn}.",) if torn else ())


def _lines(path: Path, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file's lines; the last line may be cut short, no other one."""
    rows = data.splitlines()
    for number, row in enumerate(rows, 1):
        try:
            found = json.loads(row)
            if not isinstance(found, dict):
                raise ValueError
        except (ValueError, RecursionError):
            if number == len(rows) and not data.endswith(b"\n"):
                return
            raise InputError(f"{path}: line {number} is not a JSON object; nothing was run.") from None
        yield found
