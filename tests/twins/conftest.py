"""The twins need the compiled core; where it was not built they are skipped, unless it is required."""

from __future__ import annotations

import os

import pytest

from trimtab.simulate.fast import compiled_available


@pytest.fixture(autouse=True)
def _core() -> None:
    if compiled_available():
        return
    if os.environ.get("TRIMTAB_REQUIRE_CORE"):
        pytest.fail("TRIMTAB_REQUIRE_CORE is set, and the compiled core is not built")
    pytest.skip("the compiled core is not built in this installation")
