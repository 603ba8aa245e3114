"""The command line: one verb a stage, one module a group of verbs."""

from trimtab.cli.app import main

__all__ = ["main"]
