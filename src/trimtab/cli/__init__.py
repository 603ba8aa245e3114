"""The command line: one verb a stage, one module a group of verbs."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; its modules are loaded inside, where Ctrl-C is answered already."""
    try:
        from trimtab.cli.app import main as run
    except KeyboardInterrupt:
        print("trimtab: interrupted; nothing was run.", file=sys.stderr)
        sys.exit(130)
    run()
