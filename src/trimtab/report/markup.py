"""Markup that is safe by construction: whatever is not `Html` already is text, and gets escaped."""

from __future__ import annotations

import html
import re
import unicodedata

_VOID = frozenset({"meta", "link", "br", "input"})
_BREAKS = re.compile(r"([,:=/&?_])(?=.)")


class Html(str):
    """Markup made by this module. A plain `str` next to it is text."""

    __slots__ = ()


NO_HTML = Html("")


def clean(text: str) -> str:
    """Return text that can be shown: no control or lone surrogate characters, which file names may hold."""
    shown = ("�" if unicodedata.category(one) in {"Cc", "Cs"} and one not in "\n\t" else one for one in text)
    return "".join(shown)


def escape(text: str) -> Html:
    """Return text as markup; what is markup already stays."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text), quote=True))


def tag(name: str, /, *children: str, **attributes: str | int | float | None) -> Html:
    """Return an element. Attributes that are None are left out; `class_` and `data_x` lose their `_`."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{named}>")
    return Html(f"<{name}{named}>{join(*children)}</{name}>")


def join(*parts: str) -> Html:
    """Return parts in a row, text escaped."""
    return Html("".join(escape(part) for part in parts))


def document(head: Html, body: Html) -> str:
    """Return a whole page."""
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def breakable(text: str) -> Html:
    """Return a long setting or path that may break after its separators."""
    parts = _BREAKS.split(clean(text))
    return Html("".join(f"{escape(part)}{'<wbr>' if index % 2 else ''}" for index, part in enumerate(parts)))


def label(text: str, longest: int = 60) -> str:
    """Return text for a chart, which reads a small html dialect; too long a text loses its middle."""
    shown = clean(text).replace("\n", " ")
    if len(shown) > longest:
        half = (longest - 1) // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return html.escape(shown, quote=False).replace("%{", "% {")
