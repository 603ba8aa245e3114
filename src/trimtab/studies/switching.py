"""What a line's changes of settings were like: how long settings stayed, what was undone, what came true."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trimtab.control.rounds import Round

# A knob that has its earlier value again so soon was changed in vain.
FLAP_S = 10_800.0


def switching_of(rounds: Sequence[Round], dwell_s: float) -> dict[str, float | None]:
    """Return statistics of a line's changes; None where there is nothing to take one of.

    `dwell_s_mean`: how long settings that were replaced had stayed. `flapping_share`: the share of changes
    after which a knob has its earlier value again within three hours. `realised_over_predicted`: the sum
    of the logarithms of gains on the true future over that of predicted gains, of changes that stayed at
    least `dwell_s`; what is not finite is left out.
    """
    changes = [one for one in rounds if one.switched]
    if not changes:
        return {"dwell_s_mean": None, "flapping_share": None, "realised_over_predicted": None}
    times_s = [one.time_s for one in changes]
    stays_s = np.diff([*times_s, math.inf])
    stayed = [one for one, stay_s in zip(changes, stays_s.tolist(), strict=True) if stay_s >= dwell_s]
    undone = [_undone(one, changes[place + 1 :]) for place, one in enumerate(changes)]
    return {
        "dwell_s_mean": (times_s[-1] - rounds[0].time_s) / len(changes),
        "flapping_share": float(np.mean(undone)),
        "realised_over_predicted": _came_true(stayed),
    }


def _undone(change: Round, later: Sequence[Round]) -> bool:
    """Return whether one of the knobs changed goes back within `FLAP_S`."""
    before, after = change.knobs_before, change.knobs_after
    moved = [name for name in after if after[name] != before.get(name)]
    soon = [one for one in later if one.time_s - change.time_s <= FLAP_S]
    return any(one.knobs_after.get(name) == before.get(name) for one in soon for name in moved)


def _came_true(changes: Sequence[Round]) -> float | None:
    pairs = [(one.realised_gain, one.gain) for one in changes if one.realised_gain is not None]
    logs = [
        (math.log(realised), math.log(predicted))
        for realised, predicted in pairs
        if 0 < realised < math.inf and 0 < predicted < math.inf
    ]
    realised, predicted = (math.fsum(column) for column in zip(*logs, strict=True)) if logs else (0.0, 0.0)
    return realised / predicted if predicted else None
