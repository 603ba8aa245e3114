"""Style sheets and scripts of the pages, and the policy that lets a page run these and nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources


def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return resources.files("trimtab.report").joinpath(name).read_text(encoding="utf-8")


def policy(*scripts: str, more: str = "") -> str:
    """Return a Content-Security-Policy under which only these scripts run and nothing is fetched.

    Args:
        more: Directives beside those, such as `connect-src 'self'`.
    """
    hashes = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    rules = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"{rules}; {more}" if more else rules
