"""Knobs: what may be set on a scheduler, which values are legal, and the one way to write each of them.

A `Space` declares a policy's knobs. `Space.project` turns any values in the right shape into legal ones
(types, bounds, order, dependencies), is total and idempotent, and its result is canonical: two settings
that mean the same schedule compare equal. `Space.parse` is for people: it refuses instead of repairing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from trimtab.errors import KnobError, UnknownName

Value = int | float | str | bool | tuple[int, ...]
Kind = Literal["int", "fraction", "choice", "bool", "list"]
_FRACTION_DIGITS = 6  # fractions are whole parts per million


class Knobs(Mapping[str, Value]):
    """One setting of every knob: immutable, hashable, in the order its space declares."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)
        self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Knobs) and self._values == other._values

    def __reduce__(self) -> tuple[Any, ...]:
        return (Knobs, (self._values,))

    def __repr__(self) -> str:
        return f"Knobs({self.text()})"

    def integer(self, name: str) -> int:
        """Return a whole-number knob."""
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def fraction(self, name: str) -> float:
        """Return a fraction knob."""
        value = self._values[name]
        assert isinstance(value, int | float)
        return float(value)

    def choice(self, name: str) -> str:
        """Return a choice knob."""
        value = self._values[name]
        assert isinstance(value, str)
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list knob."""
        value = self._values[name]
        assert isinstance(value, tuple)
        return value

    def text(self) -> str:
        """Return `name=value,...` as the command line takes it; lists are joined by `/`."""
        return ",".join(f"{name}={write(value)}" for name, value in self._values.items())

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON; infinity becomes the text `inf`."""
        return {name: plain_value(value) for name, value in self._values.items()}


def write(value: Value) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, tuple):
        return "/".join(str(item) for item in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")
    return str(value)


def plain_value(value: Value) -> Any:
    """Return a value for JSON; infinity becomes the text `inf`."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting: its values, what it trades, and what a hot update does."""

    name: str
    kind: Kind
    default: Value
    trades: str  # what a larger value buys and costs
    takes_effect: str  # immediate | next pass | next tick | new placements
    in_flight: str  # what happens to jobs already there
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    unit: str = ""

    def rule(self) -> str:
        """Return the legal values as a person would say them."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "on or off"
        bounds = f"{self.low:.10g} .. {self.high:.10g}{f' {self.unit}' if self.unit else ''}"
        return f"{'strictly ascending whole numbers, each ' if self.kind == 'list' else ''}{bounds}"

    def parse(self, text: str) -> Value:
        """Read a value as the command line writes it.

        Raises:
            KnobError: If it breaks the rule.
        """
        try:
            value = self._read(text.strip())
        except (ValueError, KeyError):
            raise self._refusal(text) from None
        if value != self.project(value):
            raise self._refusal(text)
        return value

    def project(self, value: Any) -> Value:
        """Return the nearest legal value of this knob alone; total on values of the right shape."""
        match self.kind:
            case "choice":
                return value if value in self.choices else self.default
            case "bool":
                return bool(value)
            case "list":
                return tuple(sorted({int(self._clip(item)) for item in value}))
            case "int":
                return int(self._clip(value))
            case "fraction":
                clipped = self._clip(value)
                return round(clipped, _FRACTION_DIGITS) + 0.0  # a float, and no negative zero

    def _clip(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        whole = self.kind != "fraction"
        if value != value or (whole and clipped in (-math.inf, math.inf)):  # no number, or no nearest one
            default = self.default if isinstance(self.default, int | float) else 0
            clipped = min(max(default, self.low), self.high)
        return round(clipped) if whole else clipped

    def _read(self, text: str) -> Value:
        match self.kind:
            case "choice":
                if text not in self.choices:
                    raise ValueError(text)
                return text
            case "bool":
                return {"on": True, "true": True, "off": False, "false": False}[text.lower()]
            case "list":
                return tuple(int(part) for part in text.split("/")) if text else ()
            case "int":
                return int(text)
            case "fraction":
                number = math.inf if text in ("inf", "off") else float(text)
                return number if math.isinf(number) else round(number, _FRACTION_DIGITS)

    def _refusal(self, text: str) -> KnobError:
        rule = f"{'a whole number, ' if self.kind == 'int' else ''}{self.rule()}"
        return KnobError(f"knob {self.name} = {text!r:.60} breaks its rule ({rule}); nothing was run.")


def _keep(values: dict[str, Value]) -> dict[str, Value]:
    return values


class Fault(NamedTuple):
    """Why a setting is not legal.

    Attributes:
        kind: `type`: a value is of so wrong a kind that nothing can be told of a single knob; `missing`: the
            knob is not named; `unknown`: there is no such knob; `value`: it is not what it would have to be.
        name: The knob. given, nearest: its value, and the legal one nearest to it.
    """

    kind: Literal["type", "missing", "unknown", "value"]
    name: str = ""
    given: Value = ""
    nearest: Value = ""


@dataclass(frozen=True)
class Space:
    """A policy's knobs, and the rules that hold between them.

    Attributes:
        knobs: The knobs, in the order they are shown.
        settle: Makes a setting whose single values are legal consistent and canonical: orders, lengths,
            and a fixed value for each knob that another one has made inert. Must be idempotent.
        imply: Adds what the named values say about knobs not named, e.g. a list's length.
    """

    knobs: tuple[Knob, ...] = ()
    settle: Callable[[dict[str, Value]], dict[str, Value]] = _keep
    imply: Callable[[dict[str, Value]], dict[str, Value]] = _keep

    @cached_property
    def by_name(self) -> dict[str, Knob]:
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def defaults(self) -> Knobs:
        return self.project({})

    def project(self, values: Mapping[str, Any]) -> Knobs:
        """Return the legal, canonical setting nearest to `values`; knobs not named take their default."""
        named = self.imply(dict(values))
        legal = {knob.name: knob.project(named.get(knob.name, knob.default)) for knob in self.knobs}
        return Knobs(self.settle(legal))

    def fault(self, values: Mapping[str, Any]) -> Fault | None:
        """Return the first thing that keeps a setting from being its own projection, None if it is legal."""
        try:
            legal = self.project(values)
        except (TypeError, ValueError, OverflowError):
            return Fault("type")
        for name in dict.fromkeys((*legal, *values)):
            if name not in values:
                return Fault("missing", name)
            if name not in legal:
                return Fault("unknown", name)
            given, nearest = values[name], legal[name]
            if type(given) is not type(nearest) or given != nearest:
                return Fault("value", name, given, nearest)
        return None

    def parse_text(self, text: str) -> Knobs:
        """Read a setting as `Knobs.text` writes it.

        Raises:
            UnknownName, KnobError: As `parse`.
        """
        pairs = (part.partition("=") for part in text.split(",") if part)
        return self.parse({name: value for name, _, value in pairs})

    def parse(self, texts: Mapping[str, str], base: Knobs | None = None) -> Knobs:
        """Read settings a person wrote, refusing what projection would have to change.

        Raises:
            UnknownName: If a knob does not exist.
            KnobError: If a value breaks its knob's rule or another knob's.
        """
        given: dict[str, Value] = {}
        for name, text in texts.items():
            if name not in self.by_name:
                raise UnknownName("knob", name, self.by_name)
            given[name] = self.by_name[name].parse(text)
        settled = self.project({**(base or {}), **self.imply(dict(given))})
        for name, value in given.items():
            if settled[name] != value and not self.is_inert(name, settled):
                raise KnobError(
                    f"knob {name} = {write(value)} does not go with the others "
                    f"(it would become {write(settled[name])}); nothing was run."
                )
        return settled

    def is_inert(self, name: str, setting: Mapping[str, Value]) -> bool:
        """Whether no value of this knob changes a legal setting: it is ignored, not refused."""
        probes = _probes(self.by_name[name])
        others = (probe for probe in probes if probe != setting[name])
        return all(self.project({**setting, name: probe}) == setting for probe in others)

    def silencers(self, name: str) -> dict[str, tuple[Value, ...]]:
        """Return other knob -> the values of it beside which this one makes no difference.

        All others are as by default or, where the knob makes none there, with one change that wakes it.
        """
        changes = self._changes
        if self.is_inert(name, self.defaults):
            awake = next((one for _, _, one in changes if not self.is_inert(name, one)), None)
            changes = () if awake is None else tuple(self._changes_of(awake))
        found: dict[str, tuple[Value, ...]] = {}
        for other, value, setting in changes:
            if other != name and self.is_inert(name, setting):
                found[other] = (*found.get(other, ()), value)
        return found

    @cached_property
    def _changes(self) -> tuple[tuple[str, Value, Knobs], ...]:
        return tuple(self._changes_of(self.defaults))

    def _changes_of(self, setting: Knobs) -> Iterator[tuple[str, Value, Knobs]]:
        """Yield the legal settings with another value for one knob: which, and its value."""
        for knob in self.knobs:
            for value in dict.fromkeys(map(knob.project, (knob.default, *_probes(knob)))):
                changed = self.project({**setting, knob.name: value})
                if changed[knob.name] == value != setting[knob.name]:
                    yield knob.name, value, changed


def _probes(knob: Knob) -> list[Value]:
    match knob.kind:
        case "choice":
            return list(knob.choices)
        case "bool":
            return [True, False]
        case "list":
            return [(), (int(knob.low),), (int(_top(knob)),)]
        case _:
            return [knob.low, min(knob.high, max(4 * knob.low, 1.0)), _top(knob)]


def _top(knob: Knob) -> float:
    return knob.high if math.isfinite(knob.high) else 1e9 * max(abs(knob.low), 1.0)
