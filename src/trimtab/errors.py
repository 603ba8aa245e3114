"""Everything Trimtab refuses, as one tree.

    TrimtabError
    ├── InputError        a file, row or window that cannot be used
    ├── ConfigError       a setting that is not allowed
    │   ├── UnknownName   a name nobody knows; carries the nearest known one
    │   ├── KnobError     a knob's value outside its rule
    │   └── Thrashing     settings under which jobs are preempted without end
    ├── TrialsLost        what trials were running on is gone, or would answer otherwise
    │   └── Interrupted   somebody stopped a search that was under way
    ├── OutputError       a result that could not be written
    ├── JournalError      the control loop's journal cannot be opened, read or written
    └── InvariantError    Trimtab contradicts itself: a bug, never the user's fault

Each message is one line that names the thing, the value, the rule and what happens now.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrimtabError(Exception):
    """Any refusal of ours; the command line prints it as one line and exits with 1."""


class InputError(TrimtabError):
    """A file, a row or a window cannot be used as asked."""


class ConfigError(TrimtabError):
    """A setting is not allowed."""


class UnknownName(ConfigError):
    """A name is not among the known ones; the nearest is offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}."
        super().__init__(f"unknown {kind} {name!r}; {hint} Nothing was run.")


class KnobError(ConfigError):
    """A knob's value breaks its rule."""


class Thrashing(ConfigError):
    """Under these settings jobs take turns and hardly work: nobody would run them."""


class TrialsLost(TrimtabError):
    """Workers are gone or would give other answers; what they should have found is not known."""


class Interrupted(TrialsLost):
    """A search was stopped; `after` is how many calls for trials it had made."""

    def __init__(self, why: str, after: int) -> None:
        super().__init__(why)
        self.after = after


class OutputError(TrimtabError):
    """A result could not be written; nothing half-written was left behind."""


class JournalError(TrimtabError):
    """The control loop's journal cannot be opened, read or written; no entry is there in part."""


class InvariantError(TrimtabError):
    """An invariant of the simulation does not hold: the result would be wrong, so there is none."""
