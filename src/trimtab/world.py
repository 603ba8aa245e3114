"""The only door for time and chance: nothing else in Trimtab reads a clock or opens a random stream."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Seeds:
    """Independent random streams by name: adding one never shifts another."""

    root: int

    def stream(self, *name: object) -> np.random.Generator:
        """Return the stream called `name` (its parts are joined by `/`), always from its start."""
        text = "/".join(str(part) for part in name)
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return np.random.default_rng([self.root, int.from_bytes(digest, "big")])


def cpu_s() -> float:
    """Return the CPU seconds this process has used."""
    return time.process_time()


def wall_s() -> float:
    """Return wall-clock seconds from an arbitrary origin, for durations only."""
    return time.monotonic()


def epoch_ms() -> int:
    """Return the wall clock in ms since 1970, UTC; it may jump, and is for what people read."""
    return time.time_ns() // 1_000_000
