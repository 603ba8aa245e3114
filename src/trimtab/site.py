"""What a site has decided about partitions, qualities of service and accounts, by Slurm's own names.

It is a fact of the cluster, not a knob: the same for all policies of a comparison. Names that a site does
not list have Slurm's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trimtab.errors import ConfigError
from trimtab.toml import toml_table

_FACTOR_MAX = 65_533  # of partitions; 16 bits less what Slurm keeps for itself
_QOS_MAX = 4_294_967_293
_SHARES_MAX = 1_000_000
_MINUTES_MAX = 527_040_000  # a thousand years
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition: who is in a higher tier goes first, a larger factor raises the priority.

    Attributes:
        limit_ms: The time limit of jobs that ask for none (`DefaultTime`), None for no limit.
    """

    tier: int = 1
    factor: int = 1
    limit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service; `preempts` names those whose jobs it may take the GPUs of, "" jobs of none."""

    priority: int = 0
    preempts: tuple[str, ...] = ()


_USUAL_PARTITION, _USUAL_QOS = SlurmPartition(), Qos()


@dataclass(frozen=True)
class Site:
    """Partitions, qualities of service, and the shares of accounts (1 where none are told), by name."""

    partitions: Mapping[str, SlurmPartition] = field(default_factory=dict)
    qualities: Mapping[str, Qos] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, path: str) -> Site:
        """Read `[[partition]]`, `[[qos]]` and `[[account]]` tables, each with a `name`.

        Raises:
            ConfigError: If the file cannot be read, has other keys or a value out of range.
        """
        try:
            tables = toml_table(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"site file {path}: {error}; nothing was run.") from None
        return cls.of_tables(f"site file {path}", tables)

    @classmethod
    def of_tables(cls, source: str, tables: Mapping[str, Any]) -> Site:
        """Read the tables of a site file, as `tables` returns them.

        Args:
            source: Where they are from, for refusals.

        Raises:
            ConfigError: If they have other keys or a value out of range.
        """
        odd = sorted(set(tables) - _KEYS.keys())
        if odd or not all(isinstance(rows, list) for rows in tables.values()):
            raise ConfigError(
                f"{source}: it must hold [[partition]], [[qos]] and [[account]] tables and nothing "
                f"else{f', not {odd[0]!r}' if odd else ''}; nothing was run."
            )
        read = {kind: _read(source, kind, tables.get(kind, [])) for kind in _KEYS}
        partitions = {
            name: SlurmPartition(
                row.get("PriorityTier", 1),
                row.get("PriorityJobFactor", 1),
                _MINUTE_MS * row["DefaultTime"] if "DefaultTime" in row else None,
            )
            for name, row in read["partition"].items()
        }
        qualities = {
            name: Qos(row.get("Priority", 0), tuple(row.get("Preempt", ())))
            for name, row in read["qos"].items()
        }
        unknown = {one for qos in qualities.values() for one in qos.preempts} - qualities.keys()
        if unknown:
            raise ConfigError(
                f"{source}: Preempt names {min(unknown)!r}, which is no [[qos]] of it; nothing was run."
            )
        return cls(partitions, qualities, {k: row.get("Fairshare", 1) for k, row in read["account"].items()})

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of a site file that says this, as plain values."""
        partitions = [
            {"name": name, "PriorityTier": one.tier, "PriorityJobFactor": one.factor}
            | ({} if one.limit_ms is None else {"DefaultTime": one.limit_ms // _MINUTE_MS})
            for name, one in self.partitions.items()
        ]
        qualities = [
            {"name": name, "Priority": one.priority, "Preempt": list(one.preempts)}
            for name, one in self.qualities.items()
        ]
        accounts = [{"name": name, "Fairshare": share} for name, share in self.shares.items()]
        return {"partition": partitions, "qos": qualities, "account": accounts}

    def text(self) -> str:
        """Return the site file that says this."""
        return "\n".join(
            f"[[{kind}]]\n"
            + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in row.items())
            for kind, rows in self.tables().items()
            for row in rows
        )

    def partition(self, name: str | None) -> SlurmPartition:
        """Return what is known of a partition."""
        return self.partitions.get(name or "", _USUAL_PARTITION)

    def qos(self, name: str | None) -> Qos:
        """Return what is known of a quality of service."""
        return self.qualities.get(name or "", _USUAL_QOS)

    @cached_property
    def factor_max(self) -> int:
        """The largest factor of a partition, by which the others are divided; at least 1."""
        return max((1, *(one.factor for one in self.partitions.values())))

    @cached_property
    def qos_max(self) -> int:
        """The largest priority of a quality of service, by which the others are divided; at least 1."""
        return max((1, *(one.priority for one in self.qualities.values())))


PLAIN_SITE = Site()


def _within(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# Kind of table -> its keys, what they must be, and how to see it.
_KEYS: Mapping[str, Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "partition": {
        "PriorityTier": (f"a whole number 0 .. {_FACTOR_MAX}", _within(0, _FACTOR_MAX)),
        "PriorityJobFactor": (f"a whole number 0 .. {_FACTOR_MAX}", _within(0, _FACTOR_MAX)),
        "DefaultTime": ("whole minutes, at least 1", _within(1, _MINUTES_MAX)),
    },
    "qos": {
        "Priority": (f"a whole number 0 .. {_QOS_MAX}", _within(0, _QOS_MAX)),
        "Preempt": ("a list of names", _are_names),
    },
    "account": {"Fairshare": (f"a whole number 1 .. {_SHARES_MAX}", _within(1, _SHARES_MAX))},
}


def _read(source: str, kind: str, rows: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of one kind by name, checked."""
    found: dict[str, dict[str, Any]] = {}
    rules = _KEYS[kind]
    for row in rows:
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or name in found:
            raise ConfigError(
                f"{source}: each [[{kind}]] needs a name of its own, not {name!r}; nothing was run."
            )
        for key, value in row.items():
            if key == "name":
                continue
            if key not in rules:
                raise ConfigError(
                    f"{source}: {kind} {name!r} has {key!r}; it may have {', '.join(rules)}; nothing was run."
                )
            rule, is_right = rules[key]
            if not is_right(value):
                raise ConfigError(
                    f"{source}: {kind} {name!r} has {key} = {value!r}, which must be {rule}; nothing was run."
                )
        found[name] = row
    return found
