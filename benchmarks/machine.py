"""What the figures were measured on: the machine, the compiler of the core, the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_COMPILERS = re.compile(rb"GCC: \([^)]*\) [\d.]+|(?:Apple )?clang version [\d.]+")


def machine(cpu: str) -> dict[str, str | int | float]:
    """Return the machine, given its processor's name, and what was built and measured on it."""
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "compiler": compiler(),
        "commit": commit(),
    }


def processor() -> str:
    """Return the processor's name as the system tells it, `unknown` if it does not."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE) if told.exists() else None
    return found[1] if found else platform.processor() or "unknown"


def compiler() -> str:
    """Return the compiler that the core's bytes name, `unknown` if they name none."""
    core = find_spec("trimtab._core")
    found = _COMPILERS.search(Path(str(core.origin)).read_bytes()) if core else None
    return found[0].decode() if found else "unknown"


def commit() -> str:
    """Return the commit of this checkout, and whether anything under version control was changed since."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty=, tree dirty", "--exclude=*"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not said:
        return "unknown"
    return said if "dirty" in said else f"{said}, tree clean"
