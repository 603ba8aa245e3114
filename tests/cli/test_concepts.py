"""What the concept pages quote of `trimtab knobs` is what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Trimtab
from trimtab.policies.catalog import POLICIES

PAGES = {page.stem: page for page in (Path(__file__).resolve().parents[2] / "docs" / "concepts").glob("*.md")}


@pytest.mark.parametrize("policy", sorted(PAGES.keys() & POLICIES))
def test_a_page_on_a_policy_lists_its_knobs(policy: str, trimtab: Trimtab) -> None:
    """Word by word: lines may be broken elsewhere."""
    fences = PAGES[policy].read_text().split("```")[1::2]
    quoted = [fence.split() for fence in fences if " takes effect: " in fence]
    command = ["text", "$", "trimtab", "knobs", policy]
    printed = trimtab(f"knobs {policy}").out.split()
    assert quoted in ([["text", *printed]], [[*command, *printed]])
