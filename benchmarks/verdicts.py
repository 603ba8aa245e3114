"""A figure beside what it is to reach: the rows that `autosched.py` makes its one table of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from table import number

HEADINGS = ("what", "case", "target", "measured", "baseline", "spread", "met")


@dataclass(frozen=True)
class Target:
    """Bounds that a figure is to keep; a strict one must not be touched."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def met(self, value: float) -> bool:
        if self.strict:
            return bool(self.low < value < self.high)
        return bool(self.low <= value <= self.high)

    def text(self) -> str:
        """Return the bounds as people write them."""
        if self.low > -math.inf and self.high < math.inf:
            return f"{number(self.low)}..{number(self.high)}"
        sign, bound = ("<", self.high) if self.low == -math.inf else (">", self.low)
        return f"{sign if self.strict else sign + '='} {number(bound)}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row: what was measured, in a unit that target, baseline and spread share.

    `spread` is the least and the most of what `measured` is the mean of. `measured` is None where there is
    nothing to measure; `note` says why.
    """

    what: str
    case: str
    measured: float | None
    unit: str = ""
    target: Target | None = None
    baseline: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @classmethod
    def of(cls, values: Iterable[float | None], note: str = "", **told: Any) -> Verdict:
        """Return the row of the mean of several values, with their spread; what is no number is left out."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return cls(measured=None, note=note, **told)
        spread = (min(known), max(known)) if len(known) > 1 else None
        return cls(measured=sum(known) / len(known), spread=spread, **told)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing was measured."""
        return None if self.target is None or self.measured is None else self.target.met(self.measured)

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts, one a heading."""
        return (
            self.what,
            self.case,
            self.target.text() if self.target else "",
            f"{number(self.measured)} {self.unit}".strip() if self.measured is not None else self.note,
            number(self.baseline),
            "..".join(map(number, self.spread)) if self.spread else "",
            {None: "", True: "yes", False: "NO"}[self.met],
        )

    def jsonable(self) -> dict[str, Any]:
        """Return the row as plain values; the target as the text that the table shows."""
        return {**asdict(self), "target": self.target.text() if self.target else None, "met": self.met}
