"""What an evaluation was asked to do, as a journal's header keeps it: enough to ask the same again."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab import __version__
from trimtab.cluster import Cluster
from trimtab.errors import InputError, TrimtabError
from trimtab.knobs import Knobs
from trimtab.objective import Objective, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate.run import World
from trimtab.studies.lines import Plan
from trimtab.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that an evaluation's result depends on.

    Attributes:
        source: The trace as it was named, with `zone` and `thin` as given beside it.
        sha256: Of the trace's source; `kept`: how many jobs were left of it.
        window, cluster, policy, base, world, plan, lines, ablate: As `studies.evaluate.evaluate` takes them.
        trimtab: The version that was asked.
    """

    source: str
    zone: str | None
    thin: float | None
    sha256: str
    kept: int
    window: str
    cluster: Cluster
    policy: str
    base: Knobs
    world: World
    plan: Plan
    lines: tuple[str, ...]
    ablate: tuple[str, ...] = ()
    trimtab: str = __version__

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for a journal's header."""
        return {
            "trimtab": self.trimtab,
            "trace": {name: getattr(self, name) for name in _TRACE},
            "window": self.window,
            "cluster": self.cluster.jsonable(),
            "policy": self.policy,
            "knobs": self.base.text(),
            "world": _plain(self.world),
            "plan": _plain(self.plan),
            "lines": list(self.lines),
            "ablate": list(self.ablate),
        }

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Request:
        """Read a journal's header.

        Raises:
            InputError: If something is missing in it, or is not what it should be.
        """
        try:
            trace, policy = header["trace"], header["policy"]
            kinds = typing.get_type_hints(cls)
            return cls(
                **{name: _rebuilt(kinds[name], trace[name]) for name in _TRACE},
                window=_rebuilt(str, header["window"]),
                cluster=_cluster(header["cluster"]),
                policy=policy,
                base=find_policy(policy).space.parse_text(header["knobs"]),
                world=_rebuilt(World, header["world"]),
                plan=_rebuilt(Plan, header["plan"]),
                lines=_names(header["lines"]),
                ablate=_names(header["ablate"]),
                trimtab=_rebuilt(str, header["trimtab"]),
            )
        except TrimtabError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            raise InputError(
                f"the journal's header cannot be used ({type(problem).__name__}: {problem}); nothing was run."
            ) from None

    def check(self, trace: Trace) -> None:
        """Refuse a trace that is not the one that was evaluated.

        Raises:
            InputError: If its source has changed since.
        """
        found = trace.provenance.sha256, len(trace)
        if found != (self.sha256, self.kept):
            raise InputError(
                f"{self.source}: has changed since the journal was written "
                f"({self.kept:,} jobs, sha256 {self.sha256[:12]} then; {found[1]:,}, {found[0][:12]} now); "
                "nothing was run."
            )


_TRACE = ("source", "zone", "thin", "sha256", "kept")


def _cluster(plain: Mapping[str, Any]) -> Cluster:
    sizes = [
        (
            _rebuilt(str, vc["name"]),
            *(vc["nodes"], vc["gpus_per_node"]),
            *(vc.get("cores_per_node", 0), vc.get("memory_mib_per_node", 0)),
        )
        for vc in plain["vcs"]
    ]
    return Cluster.pool(*sizes[0][1:]) if _rebuilt(bool, plain["pooled"]) else Cluster.partitioned(sizes)


def _plain(value: Any) -> Any:
    """Return a dataclass as plain values; an objective is its name."""
    if isinstance(value, Objective):
        return value.name
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return (
        [_plain(item) for item in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )


def _names(plain: Any) -> tuple[str, ...]:
    if not isinstance(plain, list):
        raise TypeError(f"{plain!r} is no list of names")
    return tuple(_rebuilt(str, name) for name in plain)


def _rebuilt(kind: Any, plain: Any) -> Any:
    """Return what `_plain` was made from, given its type.

    Raises:
        TypeError: If it was made from no such type.
    """
    if kind is Objective:
        return find_objective(_rebuilt(str, plain))
    if dataclasses.is_dataclass(kind):
        if not isinstance(plain, dict):
            raise TypeError(f"{plain!r} is no {typing.cast(type, kind).__name__}")
        kinds = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(**{name: _rebuilt(kinds[name], item) for name, item in plain.items()})
    if not any(_is_a(plain, one) for one in typing.get_args(kind) or (kind,)):
        raise TypeError(f"{plain!r} is no {getattr(kind, '__name__', kind)}")
    return plain


def _is_a(plain: Any, kind: Any) -> bool:
    """Whether a value of JSON is of a plain type, or of the type of a Literal's choice."""
    if not isinstance(kind, type):
        kind = type(kind)
    if kind is float:
        return isinstance(plain, int | float) and not isinstance(plain, bool) and math.isfinite(plain)
    return type(plain) is kind
