"""TOML that somebody wrote by hand: read whole, or refused with the reason in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

_WHOLE_MAX = 2**63


def toml_table(data: bytes) -> dict[str, Any]:
    """Return what a TOML file says; a byte order mark is no part of it.

    Raises:
        ValueError: If it is no TOML, has a whole number beyond 64 bits, or tables inside each other without
            end; with the reason.
    """
    try:
        found = tomllib.loads(data.decode("utf-8-sig"))
        fits = all(-_WHOLE_MAX <= number < _WHOLE_MAX for number in _whole_numbers(found))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text at byte {error.start:,}") from None
    except RecursionError:
        raise ValueError("its tables lie too deep inside each other") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # more digits than Python reads
        fits = False
    if not fits:
        raise ValueError("a whole number in it is beyond 64 bits")
    return found


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(one)
