"""What a run of the command line looks like to a test; the fixtures are in `cli/conftest.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Read stdout as JSON, which has no NaN and no Infinity."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


# A command line, as one would type it after `trimtab`.
Trimtab = Callable[[str], Ran]
