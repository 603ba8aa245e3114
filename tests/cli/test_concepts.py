"""What the concept pages quote of `trimtab knobs`, and of their pictures' makers, is what these print."""

from __future__ import annotations

from importlib import import_module
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


@pytest.mark.parametrize(
    ("page", "module", "maker"),
    [("themis", "pictures", "themis_pictures"), ("lucid", "lucid_picture", "lucid_picture")],
)
def test_a_page_quotes_what_its_picture_prints(
    page: str, module: str, maker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(PAGES[page].parent))
    getattr(import_module(module), maker)()
    printed = capsys.readouterr().out.rstrip()
    assert printed
    assert f"```text\n{printed}\n```" in PAGES[page].read_text()
