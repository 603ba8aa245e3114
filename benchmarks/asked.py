"""What the benchmarks' options have in common: names out of a list, and numbers of at least 1."""

from __future__ import annotations

import argparse
from collections.abc import Collection


def names(options: argparse.ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    """Return the names in a text, each once; one that is not known ends the program."""
    asked = list(dict.fromkeys(one.strip() for one in text.split(",")))
    for one in asked:
        if one not in known:
            options.error(f"--{option} {one}: known are {', '.join(known)}; nothing was measured.")
    return asked


def at_least_one(options: argparse.ArgumentParser, given: argparse.Namespace, *numbers: str) -> None:
    """End the program if one of the numbers is below 1."""
    for name in numbers:
        if getattr(given, name) < 1:
            options.error(f"--{name} {getattr(given, name)}: it must be at least 1; nothing was measured.")
