"""What a scheduler that is tuned must be able to do: the contract between the loop and any adapter.

Desired, written and in force are three things. The loop desires a setting, an adapter writes it, and only
what the scheduler itself says it goes by is in force. An adapter may fail at any call, and what it returns
may be old: it says when it was true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from trimtab.cluster import Cluster
from trimtab.errors import TrimtabError
from trimtab.job import JobFacts
from trimtab.knobs import Fault, Knobs, Space, write
from trimtab.simulate.state import Snapshot
from trimtab.site import PLAIN_SITE, Site

_KEY_MAX = 200  # characters

EventKind = Literal["submit", "start", "preempt", "finish", "cancel"]


class Unreachable(TrimtabError):
    """The scheduler did not answer, or not in time: nothing is known of what it did."""


class Refused(TrimtabError):
    """The scheduler answered that it will not do what was asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which scheduler this is.

    Attributes:
        name: As people call it. policy: which of our policies it is modelled by.
        writes: Whether it lets its settings be changed at all.
        site: What its partitions, qualities of service and accounts are worth.
    """

    name: str
    policy: str
    cluster: Cluster
    writes: bool
    site: Site = PLAIN_SITE


@dataclass(frozen=True, slots=True)
class InForce:
    """The setting a scheduler goes by.

    Attributes:
        version: Rises with every change, whoever makes it.
        as_of_ms: When that was true, on the scheduler's clock.
    """

    knobs: Knobs
    version: int
    as_of_ms: int


@dataclass(frozen=True, slots=True)
class State:
    """A scheduler at an instant: who runs where, and who waits.

    Attributes:
        snapshot: Its jobs; `snapshot.now_ms` is when this was true. `snapshot.knobs` are those in force.
        labels: The scheduler's own ids of the snapshot's jobs, in the same order.
    """

    snapshot: Snapshot
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job. Events may come twice, late or out of order, and never unnumbered.

    Attributes:
        number: Of the event, rising; the same event has the same number.
        label: The job. facts: what was submitted, with the event `submit`.
        ran_ms: Work done by a job that finished, in ms at full speed.
    """

    number: int
    kind: EventKind
    time_ms: int
    label: str
    facts: JobFacts | None = None
    ran_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A setting to be written.

    Attributes:
        key: Names this change for ever: asked twice, it is made once.
        expected: The version it was decided on; with another one in force it is refused.
    """

    key: str
    knobs: Knobs
    expected: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an adapter says became of a change: written, which is not yet in force.

    Attributes:
        version: The version it has, or had when it was asked for before.
    """

    key: str
    version: int


class Adapter(Protocol):
    """A scheduler as the loop sees it. Every call may raise `Unreachable`."""

    def identity(self) -> Identity:
        """Return which scheduler this is."""
        ...

    def now_ms(self) -> int:
        """Return the scheduler's clock."""
        ...

    def in_force(self) -> InForce:
        """Return the setting it goes by, read back from it."""
        ...

    def state(self) -> State:
        """Return its jobs."""
        ...

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        """Return at most so many events with larger numbers, oldest first; none if there are none."""
        ...

    def apply(self, change: Change) -> Receipt:
        """Write a setting.

        Raises:
            Refused: If another version is in force, or the setting is not legal there.
        """
        ...


def refuse_key(change: Change) -> None:
    """Refuse a change whose key cannot be kept in a line.

    Raises:
        Refused: If it is empty or too long.
    """
    if not 0 < len(change.key) <= _KEY_MAX:
        raise Refused(f"change {change.key[:40]!r}…: its key is empty or too long.")


def refuse_illegal(space: Space, knobs: Knobs) -> None:
    """Refuse a setting that is not, knob for knob, what its own projection is.

    Raises:
        Refused: If it is not; the message names the first knob.
    """
    match space.fault(knobs):
        case Fault("type"):
            raise Refused(f"setting {knobs.text()!r:.200}: a value is of the wrong kind.")
        case Fault("missing", name):
            raise Refused(f"knob {name}: is not named; a setting names every knob.")
        case Fault("unknown", name):
            raise Refused(f"knob {name!r:.60}: there is no such knob.")
        case Fault("value", name, given, nearest):
            raise Refused(f"knob {name} = {write(given)!r:.60}: is not legal, {write(nearest)} would be.")
