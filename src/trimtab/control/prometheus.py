"""The loop's numbers as Prometheus reads them: text, every name with its unit and a help line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trimtab import __version__
from trimtab.control.loop import Loop
from trimtab.control.safety import MODES, corrected
from trimtab.job import JobState
from trimtab.knobs import Value

Labels = Mapping[str, str]
_STAGES = ("desired", "written", "in_force")


class _Text:
    """Metrics, one after another, in the text format 0.0.4."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, name: str, kind: str, help: str, samples: Sequence[tuple[Labels, float | None]]) -> None:
        """Add a metric; a sample without a value is left out."""
        self.lines += [f"# HELP trimtab_{name} {help}", f"# TYPE trimtab_{name} {kind}"]
        for labels, value in samples:
            if value is not None:
                shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                self.lines.append(
                    f"trimtab_{name}{{{shown}}} {_number(value)}"
                    if shown
                    else f"trimtab_{name} {_number(value)}"
                )

    def one(self, name: str, kind: str, help: str, value: float | None) -> None:
        """Add a metric that has no labels."""
        self.add(name, kind, help, [({}, value)])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(float(value)).removesuffix(".0")


def metrics_text(loop: Loop, now_ms: int) -> str:
    """Return all metrics, as of an instant on the loop's own clock."""
    text, standing, counts = _Text(), loop.standing, loop.counts
    text.add("build_info", "gauge", "The version that runs.", [({"version": __version__}, 1)])
    modes = [({"mode": mode}, float(mode == loop.orders.mode)) for mode in MODES]
    text.add("mode_info", "gauge", "1 for the mode it works in.", modes)
    text.one(
        "up", "gauge", "1 if the scheduler answered the last time.", float("scheduler" not in loop.trouble)
    )
    text.one(
        "journal_up",
        "gauge",
        "1 if the journal was written the last time.",
        float("journal" not in loop.trouble),
    )
    text.one("last_look_timestamp_seconds", "gauge", "When it last looked at the scheduler.", loop.looked_s)
    text.one("paused", "gauge", "1 while a person has paused changes.", float(bool(standing.paused)))
    text.one("breaker_open", "gauge", "1 while the circuit breaker is open.", float(bool(standing.breaker)))
    text.one(
        "change_in_flight", "gauge", "1 while a change has no outcome.", float(standing.open is not None)
    )
    text.one(
        "proposal_waiting",
        "gauge",
        "1 while a proposal waits for a person.",
        float(standing.proposal is not None),
    )
    age_s = (now_ms - standing.since_ms) / 1000 if standing.knobs is not None else None
    text.one("setting_age_seconds", "gauge", "How long the setting has been in force.", age_s)
    _add_settings(text, loop)
    rounds = [
        ({"search": search, "decision": decision}, n)
        for (search, decision), n in sorted(counts.rounds.items())
    ]
    text.add("rounds_total", "counter", "Rounds by what they came to.", rounds)
    outcomes = loop.changer.outcomes
    changes = [
        ({"purpose": purpose, "outcome": outcome}, n) for (purpose, outcome), n in sorted(outcomes.items())
    ]
    text.add("changes_total", "counter", "Changes by their outcome.", changes)
    text.one("search_seconds_total", "counter", "Time spent searching.", counts.search_s)
    text.one("unreachable_total", "counter", "Times the scheduler did not answer.", counts.unreachable)
    text.one(
        "journal_failures_total", "counter", "Times the journal was not written.", counts.journal_failures
    )
    text.one("events_total", "counter", "Job events taken, each once.", loop.register.events)
    text.one("jobs_known", "gauge", "Jobs remembered.", len(loop.register))
    text.one(
        "jobs_let_go_total",
        "counter",
        "Jobs forgotten sooner than by their age, for want of room.",
        loop.register.let_go,
    )
    _add_state(text, loop)
    _add_gains(text, loop)
    return "\n".join(text.lines) + "\n"


def _add_settings(text: _Text, loop: Loop) -> None:
    """Add the three settings: desired, written, in force."""
    stages = dict(zip(_STAGES, loop.standing.stages, strict=True))
    samples = [
        ({"knob": name, "stage": stage}, _plain(value))
        for stage, knobs in stages.items()
        if knobs is not None
        for name, value in knobs.items()
    ]
    text.add("knob_value", "gauge", "Knobs that are numbers, in the knob's own unit.", samples)
    differs = [({"stage": stage}, float(stages[stage] != stages["in_force"])) for stage in _STAGES[:2]]
    text.add("setting_differs", "gauge", "1 if a setting is not the one in force.", differs)


def _plain(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _add_state(text: _Text, loop: Loop) -> None:
    if loop.seen is None:
        return
    jobs = loop.seen.snapshot.jobs
    for state in (JobState.PENDING, JobState.RUNNING):
        count = sum(job.state is state for job in jobs)
        text.one(f"{state.value}_jobs", "gauge", f"Jobs {state.value} when last decided.", count)
    age_s = (loop.changer.at_ms - loop.seen.snapshot.now_ms) / 1000
    text.one("state_age_seconds", "gauge", "Age of the state last decided on.", age_s)


def _add_gains(text: _Text, loop: Loop) -> None:
    pairs = loop.standing.pairs
    predicted, realised = pairs[-1] if pairs else (None, None)
    text.one("predicted_gain_ratio", "gauge", "Gain predicted of the change scored last.", predicted)
    text.one("realised_gain_ratio", "gauge", "Gain it had on what came.", realised)
    text.one(
        "believed_gain_ratio", "gauge", "What a predicted gain of 1.1 is taken for.", corrected(1.1, pairs)
    )
    text.one("losses_in_a_row", "gauge", "Changes in a row that lost.", loop.standing.losses)
