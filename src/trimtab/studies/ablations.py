"""Ablations: the forecasting lines once more, each time with one part left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from trimtab.errors import ConfigError, UnknownName
from trimtab.studies.lines import LINES, Plan


@dataclass(frozen=True)
class Ablation:
    """One part left out.

    Attributes:
        instead: What stands in its place, for people.
        lines: The lines that have the part.
        change: Plan -> the plan without it.
    """

    instead: str
    lines: tuple[str, ...]
    change: Callable[[Plan], Plan]


def _forecasting(**changes: Any) -> Callable[[Plan], Plan]:
    """Return a change of what both lines forecast; each looks at its own part of the plan alone."""
    return lambda plan: replace(
        plan, paper=replace(plan.paper, **changes), plus=replace(plan.plus, **changes)
    )


def _rules(**changes: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, rules=replace(plan.rules, **changes))


def _plan(**changes: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, **changes)


_PAPER, _PLUS = "trimtab", "trimtab-plus"

# To leave out another part, add it here.
ABLATIONS = {
    "global": Ablation("the last hour's arrivals again", (_PAPER, _PLUS), _forecasting(arrivals="last-hour")),
    "local": Ablation(
        "every job expected to run on for as long as it ran", (_PAPER, _PLUS), _forecasting(remaining="lindy")
    ),
    "causal": Ablation("what is proposed is simulated, in as many rounds", (_PAPER,), _rules(learning=False)),
    "identity": Ablation(
        "the cost predicted itself, not the parts it adds up from", (_PAPER,), _rules(identity=False)
    ),
    "aggregator": Ablation("all jobs simulated one by one", (_PAPER,), _plan(aggregate=False)),
    "background": Ablation("no search between the hours", (_PAPER,), _plan(paper_background_ms=None)),
    "common-futures": Ablation(
        "each setting tried on futures of its own", (_PLUS,), _forecasting(common=False)
    ),
}


class Variant(NamedTuple):
    """A line as it is to be run: under its own name, or with a part left out under another."""

    line: str
    name: str
    meaning: str
    plan: Plan


def variants(lines: Sequence[str], parts: Sequence[str], plan: Plan) -> list[Variant]:
    """Return the lines, behind each of them its ablations; raises what `check_names` does."""
    check_names(lines, parts)
    return list(_variants(lines, parts, plan))


def check_names(lines: Sequence[str], parts: Sequence[str]) -> None:
    """Refuse lines and parts that cannot be evaluated.

    Raises:
        UnknownName: If there is no such line or part.
        ConfigError: If no line is named, one is named twice, or no line has a part that is to be left out.
    """
    if not lines:
        raise ConfigError("no line is named; nothing was run.")
    for what, names, known in (("line", lines, LINES), ("part", parts, ABLATIONS)):
        for name in names:
            if name not in known:
                raise UnknownName(what, name, known)
            if names.count(name) > 1:
                raise ConfigError(f"{what} {name} is named twice; nothing was run.")
    for part in parts:
        if not set(lines) & set(ABLATIONS[part].lines):
            with_it = " or ".join(ABLATIONS[part].lines)
            raise ConfigError(f"ablate {part}: only {with_it} has it; name it in --lines; nothing was run.")


def _variants(lines: Sequence[str], parts: Sequence[str], plan: Plan) -> Iterator[Variant]:
    for line in lines:
        yield Variant(line, line, LINES[line], plan)
        for part in parts:
            if line in ABLATIONS[part].lines:
                left_out = ABLATIONS[part]
                meaning = f"{line} with {left_out.instead}"
                yield Variant(line, f"{line} without {part}", meaning, left_out.change(plan))
