"""Lengths of time as people write them."""

from __future__ import annotations

import re

from trimtab.errors import ConfigError
from trimtab.traces.trace import LONGEST_MS

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(name: str, text: str) -> int:
    """Read `90s`, `30m`, `1h`, `2d`, or plain seconds.

    Raises:
        ConfigError: If the text is none of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ConfigError(
            f"{name} = {text!r}: it must be a time such as 90s, 30m, 1h or 2d; nothing was run."
        )
    time_ms = float(found[1]) * _UNITS_MS[found[2] or "s"]
    if time_ms > LONGEST_MS:
        raise ConfigError(f"{name} = {text!r}: it must be at most 1,000 years; nothing was run.")
    return round(time_ms)
