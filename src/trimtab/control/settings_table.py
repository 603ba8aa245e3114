"""Values of a settings file: each key is taken once, read as what it should be, and refused in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from trimtab.errors import ConfigError, UnknownName
from trimtab.toml import toml_table
from trimtab.traces.spans import duration_ms

T = TypeVar("T")

_SIZE_MAX = 1 << 20


def toml_file(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file, and what they say.

    Raises:
        ConfigError: If it cannot be read, is too large, or is no TOML.
    """
    try:
        data = path.read_bytes()
        if len(data) > _SIZE_MAX:
            raise ConfigError(f"{path}: is larger than a settings file can be; nothing was changed.")
        return data, toml_table(data)
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror}); nothing was changed.") from None
    except ValueError as problem:
        raise ConfigError(f"{path}: is no TOML ({problem}); nothing was changed.") from None


def without_end(problem: ConfigError) -> str:
    """Return a refusal without what it says of the consequence, in one line."""
    sentence = re.sub(r";? nothing was (run|started)\.$", "", str(problem), flags=re.IGNORECASE)
    return " ".join(sentence.rstrip(".").split())


class Table:
    """A table of the file, of which each key is taken once; what is left over is refused."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self._values, self._name = dict(values), name
        self._known: list[str] = []

    def take(self, key: str, kind: Callable[[str, Any], T], otherwise: Any = ...) -> T:
        """Return a value; `kind` reads it and refuses what it should not be."""
        self._known.append(key)
        name = f"{self._name}{key}"
        if key not in self._values:
            if otherwise is ...:
                raise ConfigError(f"{name} is missing")
            return cast(T, otherwise)
        return kind(name, self._values.pop(key))

    def table(self, key: str) -> Table:
        """Return a table in this one, empty if it is not there."""
        found = self.take(key, table_of, {})
        return Table(found, f"{self._name}{key}.")

    def each(self, kind: Callable[[str, Any], T]) -> dict[str, T]:
        """Return all values, whatever their keys."""
        return {key: self.take(key, kind) for key in tuple(self._values)}

    def done(self) -> None:
        """Refuse what nobody knows."""
        for key in self._values:
            raise UnknownName("setting", f"{self._name}{key}", [f"{self._name}{one}" for one in self._known])


def table_of(name: str, value: Any) -> dict[str, Any]:
    """Read a table."""
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be a table")
    return value


def text(name: str, value: Any) -> str:
    """Read a text that can be printed."""
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise ConfigError(f"{name} = {value!r:.60}: it must be a text, and one that can be printed")
    return value


def names(name: str, value: Any) -> frozenset[str]:
    """Read a list of names."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{name} = {value!r:.60}: it must be a list of names")
    return frozenset(value)


def span(name: str, value: Any) -> int:
    """Read a length of time above nothing, in ms."""
    found = span_or_none(name, value)
    if found <= 0:
        raise ConfigError(f"{name} = {value!r}: it must be longer than nothing")
    return found


def span_or_none(name: str, value: Any) -> int:
    """Read a length of time, in ms."""
    if not isinstance(value, str):
        raise ConfigError(f'{name} = {value!r:.60}: it must be a text that tells a time, such as "90s"')
    return duration_ms(name, value)


def number(low: float, high: float) -> Callable[[str, Any], float]:
    """Return what reads a number in bounds."""

    def read(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigError(f"{name} = {value!r:.60}: it must be a number, {low:g} .. {high:g}")
        return float(value)

    return read


def whole(low: int, high: int) -> Callable[[str, Any], int]:
    """Return what reads a whole number in bounds."""

    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{name} = {value!r:.60}: it must be a whole number, {low} .. {high}")
        return value

    return read


def one_of(kind: str, known: Any) -> Callable[[str, Any], str]:
    """Return what reads one of the names that are known."""

    def read(name: str, value: Any) -> str:
        found = text(name, value)
        if found not in known:
            raise UnknownName(kind, found, known)
        return found

    return read
