"""What a person is told of the loop: plain values, for the command line and the page."""

from __future__ import annotations

import math
from typing import Any

from trimtab import __version__
from trimtab.control.loop import Loop
from trimtab.control.safety import corrected
from trimtab.control.standing import Open, Proposal


def status_of(loop: Loop, now_ms: int) -> dict[str, Any]:
    """Return how things stand, as of an instant on the loop's own clock; numbers are finite or None."""
    standing = loop.standing
    desired, written, in_force = standing.stages
    return {
        "trimtab": __version__,
        "mode": loop.orders.mode,
        "desired": desired.jsonable() if desired else None,
        "written": written.jsonable() if written else None,
        "in_force": in_force.jsonable() if in_force else None,
        "version": standing.version,
        "in_force_for_s": (now_ms - standing.since_ms) / 1000 if in_force else None,
        "change": _change(standing.open, now_ms),
        "torn": _change(standing.torn, now_ms),
        "rollback": {"by": standing.back.by, "reason": standing.back.reason} if standing.back else None,
        "proposal": _proposal(standing.proposal, now_ms),
        "before": standing.left[0][0].jsonable() if standing.left else None,
        "paused": standing.paused or None,
        "breaker": standing.breaker or None,
        "trouble": dict(loop.trouble),
        "last_round": dict(loop.last) or None,
        "gains": {
            "scored": len(standing.pairs),
            "last": list(standing.pairs[-1]) if standing.pairs else None,
            "believed_of_1.1": corrected(1.1, standing.pairs),
            "losses_in_a_row": standing.losses,
        },
        "jobs_known": len(loop.register),
        "jobs_let_go": loop.register.let_go,
        "events": loop.register.events,
    }


def _change(change: Open | None, now_ms: int) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "key": change.key,
        "purpose": change.purpose,
        "knobs": change.knobs.jsonable(),
        "asked_for_s": (now_ms - change.since_ms) / 1000,
        "written_version": change.written,
    }


def _proposal(proposal: Proposal | None, now_ms: int) -> dict[str, Any] | None:
    if proposal is None:
        return None
    return {
        "key": proposal.key,
        "knobs": proposal.knobs.jsonable(),
        "gain": None if math.isnan(proposal.gain) else proposal.gain,
        "reason": proposal.reason,
        "proposed_for_s": (now_ms - proposal.since_ms) / 1000,
    }
