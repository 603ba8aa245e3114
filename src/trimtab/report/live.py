"""The page at the address of `serve`: a shell without data, which fetches them for whoever has a token.

Nothing of a scheduler is in it; its script sets text only, never markup, and the browser refuses it anything
else (`require-trusted-types-for`).
"""

from __future__ import annotations

from trimtab.report.assets import asset, policy
from trimtab.report.markup import Html, document, join, tag

_MORE = "connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'none'"


def live_page() -> tuple[str, str]:
    """Return the page, and the Content-Security-Policy it must be sent with."""
    script = asset("live.js")
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", "Trimtab"),
        Html(f"<style>{asset('page.css')}{asset('live.css')}</style>"),
    )
    body = join(
        tag(
            "header",
            tag("p", "Trimtab serve", class_="kicker"),
            tag("h1", "Not connected", id="headline"),
            tag("p", id="old", class_="warn", role="alert", hidden=""),
            tag("div", id="warnings", aria_live="polite"),
            _token(),
            tag("dl", id="facts", class_="facts", hidden=""),
        ),
        tag("main", _setting(), _decisions(), _forecasts(), _gains(), id="data", hidden=""),
        tag("footer", "Times are those of this browser's clock. The token stays in this tab."),
        Html(f"<script>{script}</script>"),
    )
    return document(head, body), policy(script, more=_MORE)


def _token() -> Html:
    label = tag("label", "Token (from the file that the settings name)", for_="token")
    field = tag("input", id="token", type="password", autocomplete="off", spellcheck="false", required="")
    said = tag("p", id="refused", class_="bad", role="alert")
    return tag("form", label, field, tag("button", "Show", type="submit"), said, id="ask")


def _setting() -> Html:
    buttons = (
        _button("approve", "Approve", "first"),
        _button("rollback", "Roll back"),
        _button("pause", "Pause changes"),
        _button("resume", "Resume changes"),
        tag("button", "Forget the token", type="button", id="forget"),
    )
    return tag(
        "section",
        tag("h2", "Setting"),
        tag("div", tag("table", id="setting", class_="plain"), class_="scroll", tabindex=0),
        tag("div", id="proposal", class_="proposal", hidden=""),
        tag("div", *buttons, class_="acts", role="group", aria_label="Commands"),
        tag("p", id="said", role="status"),
    )


def _button(name: str, shown: str, kind: str | None = None) -> Html:
    return tag("button", shown, type="button", data_act=name, class_=kind, disabled="")


def _decisions() -> Html:
    table = tag("table", id="decisions", class_="plain log")
    return tag(
        "section", tag("h2", "Decisions, the latest first"), tag("div", table, class_="scroll", tabindex=0)
    )


def _forecasts() -> Html:
    lead = (
        "Each main round forecasts who comes in the next hour, in one future or several: the bar goes from "
        "the least to the most of them, the dot is what came. GPU time is what those jobs have run so far."
    )
    return _drawn("Forecast against what came", lead, "forecasts")


def _gains() -> Html:
    lead = (
        "A change is scored an hour later, on the jobs that really came: what the setting before it and "
        "the one after it give there. Above 1 the change was better."
    )
    return _drawn("Gains against what came", lead, "gains")


def _drawn(title: str, lead: str, name: str) -> Html:
    """Return a section whose pictures the script draws under that name."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), tag("div", id=name))
