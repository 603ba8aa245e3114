"""What processes do to a journal before they are killed, and what must be found there afterwards."""

from __future__ import annotations

import resource
from multiprocessing.connection import Connection
from typing import Any

from trimtab.control.ledger import Entry, Ledger
from trimtab.errors import JournalError


def nth(number: int) -> dict[str, Any]:
    """Return what entry `number` holds: short, or several pages long."""
    return {"n": number, "pad": "x" * (number * 7919 % 23_000)}


def append_until_killed(url: str, says: Connection) -> None:
    """Say 0, open, append for ever, and say the number of each entry once it was written."""
    says.send(0)
    with Ledger.open(url) as ledger:
        while True:
            number = ledger.last + 1
            written = ledger.append("forecast", nth(number), at_ms=number, key=f"k{number}")
            says.send(written.number)


def append_with_small_files(url: str, most: int, says: Connection) -> None:
    """Append while no file may grow beyond so many bytes; send the refusal, and the last number written."""
    with Ledger.open(url) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        try:
            while ledger.last < 10_000:
                number = ledger.last + 1
                ledger.append("forecast", nth(number), at_ms=number, key=f"k{number}")
        except JournalError as refusal:
            says.send((str(refusal), ledger.last))


def assert_whole(entries: tuple[Entry, ...], acknowledged: int) -> None:
    """Check that entries are all that was acknowledged, at most one more, each whole and in its place."""
    assert acknowledged <= len(entries) <= acknowledged + 1
    for number, entry in enumerate(entries, 1):
        assert (entry.number, entry.at_ms, entry.kind) == (number, number, "forecast")
        assert (entry.key, entry.body) == (f"k{number}", nth(number))
