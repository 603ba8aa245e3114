"""The hostile days of the benchmark serve the tests as well; they are loaded by their file.

A folder of benchmarks on the path would hide the test folders of the same names.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_SPEC = spec_from_file_location("hostile", Path(__file__).resolve().parents[2] / "benchmarks" / "hostile.py")
assert _SPEC is not None
assert _SPEC.loader is not None
sys.modules["hostile"] = module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules["hostile"])
