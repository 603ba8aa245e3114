"""The hand of the loop: writes settings, one at a time, each step in the journal before the next one.

Every step of a change is written down before it is taken: intent, the asking under a key that makes it once,
receipt, read-back, outcome. So this may die at any of them: it folds the journal, reads what is in force
before anything else, and goes on from there. `standing` and `changes` say what is next; this does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from trimtab.control import safety as checks
from trimtab.control.adapter import Adapter, Change, InForce, Refused
from trimtab.control.changes import Ask, Found, Settle, next_step, reconcile
from trimtab.control.deciding import no_way_back, objection, opening
from trimtab.control.orders import Orders
from trimtab.control.standing import FOLDED, Noted, Open, Purpose, Standing, fold
from trimtab.errors import JournalError
from trimtab.knobs import Knobs, Space

_STALE_READS_MAX = 2

Say = Callable[[str, Mapping[str, Any]], None]


NOTHING: Mapping[str, bytes] = MappingProxyType({})


class Journal(Protocol):
    """The journal, as far as the loop needs it; `ledger.Ledger` is one."""

    def append(
        self,
        kind: Any,
        body: Mapping[str, Any],
        *,
        at_ms: int,
        key: str | None = None,
        parts: Mapping[str, bytes] = NOTHING,
    ) -> Noted:
        """Write an entry, and parts of a state that are not there yet; all lasts when this returns."""
        ...

    def entries(self, after: int = 0, kinds: Any = None, limit: int | None = None) -> tuple[Noted, ...]:
        """Return the entries of some kinds, at most so many, oldest first."""
        ...

    def parts(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Return parts of states by name; those that are not there are left out."""
        ...

    def learned(self, model: str | None, graph: str | None) -> None:
        """Write with the entries from now on which model and causal graph they were made by."""
        ...


class Changer:
    """Knows what is in force, and is the only one that changes it.

    Args:
        adapter: The scheduler. journal: open for writing.
        knobs: The scheduler's policy's.
        orders: How to work.
        clock: The loop's own clock, in ms at the scheduler's pace; it never goes back.
        run: Names this start of the program; keys of changes begin with it.
        say: Is told what happens, for logs.

    Attributes:
        standing: How things stand, as the journal has it.
        read: What was in force when last looked at, None before the first look.
        at_ms: The scheduler's clock, for the journal.
        outcomes: How many changes had which, by purpose and outcome, since this process began.
    """

    def __init__(
        self,
        adapter: Adapter,
        journal: Journal,
        knobs: Space,
        orders: Orders,
        clock: Callable[[], int],
        run: str,
        say: Say,
    ) -> None:
        self._adapter, self._journal, self._knobs = adapter, journal, knobs
        self.orders, self._clock, self._run, self._say = orders, clock, run, say
        self.standing = Standing()
        self.read: InForce | None = None
        self.at_ms = 0
        self.outcomes: dict[tuple[str, str], int] = {}
        self._stale_reads = 0
        self._in_doubt = False
        self._written = 0  # number of the last entry that is known
        self.writes = True

    # ---- the journal -----------------------------------------------------------------------------

    def recover(self) -> None:
        """Fold what the journal holds; the next look finds out what is in force."""
        entries = tuple(self._journal.entries(0, FOLDED))
        self.standing = fold(Standing(), entries)
        self._written = max([self._written, *(entry.number for entry in entries)])
        self._in_doubt = False

    def recover_if_in_doubt(self) -> None:
        """Fold the journal again if an entry may or may not have been written."""
        if self._in_doubt:
            self.recover()

    def note(
        self,
        kind: str,
        body: Mapping[str, Any],
        key: str | None = None,
        parts: Mapping[str, bytes] = NOTHING,
    ) -> int:
        """Write an entry down and take it for true; what was not written has not happened.

        Returns:
            Its number.

        Raises:
            JournalError: If it could not be written, or that is not known.
        """
        full = {"own_ms": self._clock(), **body}
        try:
            entry = self._journal.append(kind, full, at_ms=self.at_ms, key=key, parts=parts)
        except JournalError:
            self._in_doubt = True
            raise
        self._written = entry.number
        self.standing = fold(self.standing, [entry])
        self._say(kind, {**full, **({"key": key} if key else {})})
        return entry.number

    # ---- looking ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what is in force, and write down what that says."""
        read = self._fresh_read()
        if read is not None:
            self._settle(read)

    def _fresh_read(self) -> InForce | None:
        """Return what is in force, or None for an answer that is older than the last one."""
        read, last = self._adapter.in_force(), self.read
        if last is not None and read.version < last.version and self._stale_reads < _STALE_READS_MAX:
            self._stale_reads += 1
            return None
        self.read, self._stale_reads = read, 0
        return read

    def _settle(self, read: InForce) -> None:
        """Write down what a look at the setting in force says."""
        change, torn = self.standing.open, self.standing.torn
        if change is not None:
            self._drive(change, read)
        elif torn is not None:
            self._settle_torn(torn, read)
        elif (found := reconcile(self.standing, read)) is not None:
            self._note_found(found, read)

    def _drive(self, change: Open, read: InForce) -> None:
        step = next_step(change, read, self._clock(), self.orders.safety.confirm_ms)
        if isinstance(step, Settle):
            self._close(change, read, step)
        elif isinstance(step, Ask) and (change.purpose == "rollback" or not self.standing.paused):
            self._ask(change, read)

    def _ask(self, change: Open, read: InForce) -> None:
        """Ask the scheduler for a change; asked again, it is made once. An illegal setting stops here."""
        if why := checks.illegal(change.knobs, self._knobs):
            self._close(change, read, Settle("refused", why))
            return
        try:
            receipt = self._adapter.apply(Change(change.key, change.knobs, change.expected))
        except Refused as refusal:
            read = self._adapter.in_force()
            step = next_step(change, read, self._clock(), self.orders.safety.confirm_ms)
            if not isinstance(step, Settle):
                step = Settle("refused", str(refusal), change.purpose == "rollback")
            self._close(change, read, step)
            return
        self.note("receipt", {"version": receipt.version}, change.key)
        fresh, written = self._fresh_read(), self.standing.open
        if fresh is not None and written is not None:
            step = next_step(written, fresh, self._clock(), self.orders.safety.confirm_ms)
            if isinstance(step, Settle):
                self._close(written, fresh, step)

    def _close(self, change: Open, read: InForce, step: Settle) -> None:
        said = {"outcome": step.outcome, "why": step.why, "again": step.again}
        self.note("read_back", {**_plain(read), **said}, change.key)
        count = change.purpose, step.outcome
        self.outcomes[count] = self.outcomes.get(count, 0) + 1

    def _settle_torn(self, torn: Open, read: InForce) -> None:
        """Look what became of a change of which only a part came into force."""
        if read.knobs == torn.before:
            self._close(torn, read, Settle("rolled_back", "what was in force before is in force again"))
        elif read.knobs == torn.knobs:
            self._close(torn, read, Settle("confirmed", "the rest of the change came into force late"))
        elif read.knobs != self.standing.knobs:
            self._close(torn, read, Settle("refused", "somebody else changed the setting: theirs is kept"))

    def _note_found(self, found: Found, read: InForce) -> None:
        body = {**_plain(read), "found": found.found}
        if found.change is None:
            self.note("read_back", body)
            return
        outcome = "confirmed" if found.found == "late" else "unknown"
        self.note("read_back", {**body, "outcome": outcome, "why": _WHY[found.found]}, found.change.key)

    # ---- acting ----------------------------------------------------------------------------------

    def act(self) -> None:
        """Open the breaker if it must, and go back to another setting if that was decided on."""
        if found := opening(self.standing, self.orders.safety):
            self.note("breaker", found)
        standing = self.standing
        if standing.open is not None or standing.knobs is None or self.read is None:
            return
        if standing.back is not None:
            self._go_back(standing.back.knobs, standing.back.reason)
        elif standing.torn is not None and standing.torn.before == standing.knobs:
            self._settle_torn(standing.torn, self.read)
        elif standing.torn is not None and not standing.paused and not standing.breaker:
            self._go_back(standing.torn.before, "only a part of a change is in force")

    def ask_back(self, knobs: Knobs, by: str, reason: str) -> None:
        """Write down that another setting is to be gone back to; `act` does it."""
        self.note("rollback", {"knobs": knobs.jsonable(), "by": by, "reason": reason})

    def _go_back(self, knobs: Knobs, reason: str) -> None:
        if found := no_way_back(knobs, self._knobs):
            self.note("breaker", found)
            return
        self.intend(knobs, "rollback", math.nan, reason)

    def intend(
        self,
        knobs: Knobs,
        purpose: Purpose,
        gain: float,
        reason: str,
        key: str | None = None,
        state: int | None = None,
    ) -> str:
        """Write down that a setting is wanted, and ask for it: the one way by which anything is changed.

        Args:
            state: Number of the entry that it was decided on; None for a rollback.
        """
        standing, read = self.standing, self.read
        assert standing.knobs is not None
        assert standing.open is None
        assert read is not None
        key = key or self.key()
        body = {
            "knobs": knobs.jsonable(),
            "before": standing.knobs.jsonable(),
            "expected": standing.version,
            "purpose": purpose,
            "gain": gain if math.isfinite(gain) else None,
            "reason": reason,
            "state": state,
        }
        self.note("intent", body, key)
        change = self.standing.open
        assert change is not None
        self._drive(change, read)
        return key

    def key(self) -> str:
        """Return a name for the change or proposal that the next entry tells of: no other has it.

        Who approves a key approves what was read under it, not what was proposed since.
        """
        return f"{self._run}-{self._written + 1}"

    def objection(self, knobs: Knobs, expected: int) -> str | None:
        """Say what speaks against writing a setting now, whatever it gains; None if nothing does.

        Args:
            expected: The version it was decided on.
        """
        return objection(
            self.standing, knobs, expected, self.orders, self._clock(), self._knobs, writes=self.writes
        )


_WHY = {
    "late": "a change that had been given up came into force late",
    "half": "a part of a change that had been given up came into force: it is rolled back",
}


def _plain(read: InForce) -> dict[str, Any]:
    return {"knobs": read.knobs.jsonable(), "version": read.version, "as_of_ms": read.as_of_ms}
