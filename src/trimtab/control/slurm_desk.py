"""The folder through which a dispatcher is told its knobs, and says which it goes by.

`wanted.json` holds the settings that were written, newest last: by whoever tunes, or by the dispatcher for
its own settings file. `in-force.json` is what the dispatcher decided with last, and when. `memory.json` is
what the policy wants to be remembered beside jobs. All are replaced whole: none is ever there in part.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.control.adapter import Unreachable
from trimtab.errors import ConfigError
from trimtab.world import epoch_ms

_KEPT = 200
_SIZE_MAX = 16 << 20
FILE_KEY = "file"


@dataclass(frozen=True, slots=True)
class Write:
    """A setting that was written. `key` names the change for ever; `knobs` as `Knobs.text` writes them."""

    key: str
    version: int
    knobs: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a dispatcher says it goes by.

    Attributes:
        asked: What its settings file asked for then. as_of_ms: when it decided with it last.
        interval_ms: How often it decides.
    """

    policy: str
    knobs: str
    version: int
    asked: str
    as_of_ms: int
    interval_ms: int


class Desk:
    """A dispatcher's folder.

    Raises:
        ConfigError: If it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(
                f"folder {folder}: cannot be made ({problem.strerror}); nothing was started."
            ) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other dispatchers out of this folder.

        Raises:
            ConfigError: If one is in it.
        """
        with self._locked("dispatch.lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    # ---- knobs -------------------------------------------------------------------------------------

    def writes(self) -> list[Write]:
        """Return what was written, oldest first.

        Raises:
            Unreachable: If the file is there and cannot be read.
        """
        found = self._read("wanted.json")
        try:
            return [] if found is None else [Write(**one) for one in found["writes"]]
        except (TypeError, KeyError):
            raise Unreachable(f"{self.folder / 'wanted.json'}: is none of ours; move it away.") from None

    @contextmanager
    def writing(self) -> Iterator[list[Write]]:
        """Change the list of what was written, one at a time; it is stored when the block ends well."""
        with self._locked("wanted.lock", fcntl.LOCK_EX):
            found = self.writes()
            before = list(found)
            yield found
            if found != before:
                self._replace("wanted.json", {"writes": [asdict(one) for one in found[-_KEPT:]]})

    def said(self) -> Said | None:
        """Return what the dispatcher said last, None if it never has.

        Raises:
            Unreachable: If the file is there and cannot be read.
        """
        found = self._read("in-force.json")
        try:
            return None if found is None else Said(**found)
        except TypeError:
            raise Unreachable(f"{self.folder / 'in-force.json'}: is none of ours; move it away.") from None

    def say(self, said: Said) -> None:
        """Say what is gone by."""
        self._replace("in-force.json", asdict(said))

    # ---- memory ------------------------------------------------------------------------------------

    def memories(self) -> dict[str, tuple[int, ...]]:
        """Return what is remembered of each virtual cluster.

        Raises:
            Unreachable: If the file is there and cannot be read.
        """
        found = self._read("memory.json") or {}
        try:
            return {str(name): tuple(map(int, values)) for name, values in found.items()}
        except (TypeError, ValueError):
            raise Unreachable(f"{self.folder / 'memory.json'}: is none of ours; move it away.") from None

    def remember(self, memories: Mapping[str, Sequence[int]]) -> None:
        """Replace what is remembered."""
        self._replace("memory.json", {name: list(values) for name, values in memories.items()})

    # ---- files -------------------------------------------------------------------------------------

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise Unreachable(f"{path}: cannot be read ({problem.strerror}).") from None
        with suppress(ValueError, RecursionError):
            found = json.loads(data) if len(data) <= _SIZE_MAX else None
            if isinstance(found, dict):
                return found
        raise Unreachable(f"{path}: is none of ours; move it away.")

    def _replace(self, name: str, value: object) -> None:
        path, new = self.folder / name, self.folder / f".{name}.{os.getpid()}"
        try:
            with new.open("w") as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as problem:
            with suppress(OSError):
                new.unlink()
            raise Unreachable(f"{path}: cannot be written ({problem.strerror}).") from None

    @contextmanager
    def _locked(self, name: str, how: int) -> Iterator[None]:
        try:
            file = (self.folder / name).open("w")
        except OSError as problem:
            raise Unreachable(f"{self.folder / name}: cannot be written ({problem.strerror}).") from None
        with file:
            try:
                fcntl.flock(file, how)
            except BlockingIOError:
                raise ConfigError(
                    f"folder {self.folder}: another dispatcher is at work in it; nothing was started."
                ) from None
            yield


def next_version(writes: Sequence[Write]) -> int:
    """Return the version of the next write: the instant, and above all before."""
    return max(epoch_ms(), writes[-1].version + 1 if writes else 0)
