"""Every guardrail of the loop as a table: what it lets through, and the sentence with which it does not."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trimtab.control import changer, changes, deciding, register, safety
from trimtab.control.adapter import InForce
from trimtab.control.changes import Ask, Settle, Wait, mixed, next_step, reconcile
from trimtab.control.safety import (
    Safety,
    Step,
    breaks,
    corrected,
    disappoints,
    dwells,
    illegal,
    moves_too_much,
    within,
)
from trimtab.control.standing import Open, Standing
from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy

CONCEPTS = Path(__file__).resolve().parents[2] / "docs" / "concepts"
SPACE = find_policy("tiresias").space
TWO = SPACE.project({"num_queues": 2, "queue_thresholds": (3600,)})
FOUR = SPACE.project({"num_queues": 4, "queue_thresholds": (1000, 2000, 90_000)})


# ---- one change at most so far ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "before", "after", "reached"),
    [
        (Step.of("k", 1), 2, 5, 3),
        (Step.of("k", 1), 5, 2, 4),
        (Step.of("k", 0.5), 5, 2, 5),  # a whole number that no step reaches stays
        (Step.of("k", 3), 2, 5, 5),
        (Step.of("k", "x4"), 100, 1000, 400),
        (Step.of("k", "x4"), 100, 3, 25),
        (Step.of("k", "x4"), 0.5, 8.0, 2.0),
        (Step.of("k", "x4"), 100, 350, 350),
        (Step.of("k", "x2"), (100, 200), (1000, 100, 7), (200, 100, 7)),
        (Step.of("k", 1), "fifo", "las", "las"),
        (Step.of("k", 1), False, True, True),
        (Step.of("k", 1), 2.0, math.inf, math.inf),  # off is no distance
    ],
)
def test_a_step_is_as_large_as_it_may_be(step: Step, before: Any, after: Any, reached: Any) -> None:
    assert step.toward(before, after) == reached
    assert step.allows(before, reached)
    assert step.allows(before, after) == (reached == after)


@pytest.mark.parametrize("text", [0, -1, True, "x1", "x0.5", "y3", "xinf", "", None, math.inf])
def test_a_step_that_is_none_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match=r"k = .*: a step is"):
        Step.of("k", text)


LIMITED = Safety(steps={"num_queues": Step.of("num_queues", 1)})


@pytest.mark.parametrize(
    ("safety", "mode", "says"),
    [
        (Safety(), "auto", None),
        (LIMITED, "auto", "num_queues would go from 2 to 4: at most 1 in one change"),
        (
            Safety(read_only=frozenset({"num_queues"})),
            "auto",
            "num_queues would go from 2 to 4: it is read-only",
        ),
        (
            Safety(canary="in_queue_order"),
            "canary",
            "num_queues would go from 2 to 4: mode canary changes in_queue_order alone",
        ),
        (Safety(canary="in_queue_order"), "auto", None),
    ],
)
def test_too_much_in_one_change(safety: Safety, mode: Any, says: str | None) -> None:
    assert moves_too_much(TWO, FOUR, SPACE, safety, mode) == says
    near = within(TWO, FOUR, SPACE, safety, mode)
    assert moves_too_much(TWO, near, SPACE, safety, mode) is None
    assert illegal(near, SPACE) is None
    assert near == FOUR or says is not None


def test_half_way_is_legal_and_on_the_way() -> None:
    near = within(TWO, FOUR, SPACE, LIMITED, "auto")
    assert near["num_queues"] == 3
    assert near == SPACE.project(near)


def test_canary_moves_its_knob_alone() -> None:
    best = SPACE.project({**FOUR, "in_queue_order": "submit"})
    near = within(TWO, best, SPACE, Safety(canary="in_queue_order"), "canary")
    assert {name for name in near if near[name] != TWO[name]} == {"in_queue_order"}


@pytest.mark.parametrize(
    ("safety", "mode", "error"),
    [
        (Safety(read_only=frozenset({"num_queue"})), "auto", UnknownName),
        (Safety(steps={"nothing": Step(difference=1)}), "auto", UnknownName),
        (Safety(), "canary", ConfigError),
        (Safety(canary="min_run", read_only=frozenset({"min_run"})), "canary", ConfigError),
    ],
)
def test_limits_that_do_not_go_with_the_policy(safety: Safety, mode: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        safety.check(mode, SPACE)


# ---- never illegal ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        ({"num_queues": 99}, "never written"),
        ({"queue_thresholds": (9, 3)}, "never written"),
        ({"queue_thresholds": "many"}, "values of the wrong kind"),
        ({"in_queue_order": "best"}, "in_queue_order = best is not legal"),
        ({"new_knob": 1}, "has an unknown knob new_knob"),
        ({"min_run": math.nan}, "never written"),
        ({"min_run": False}, "never written"),
    ],
)
def test_an_illegal_setting_is_never_written(changed: dict[str, Any], says: str | None) -> None:
    found = illegal(Knobs({**TWO, **changed}), SPACE)
    assert found is None if says is None else says in (found or "")


def test_a_setting_that_lacks_a_knob_is_never_written() -> None:
    assert "lacks knob min_run" in (
        illegal(Knobs({k: v for k, v in TWO.items() if k != "min_run"}), SPACE) or ""
    )


# ---- dwell, gains, breaker --------------------------------------------------------------------------


def test_dwell() -> None:
    assert dwells(1_800_000, 1_800_000) is None
    assert dwells(1_799_999, 1_800_000) == "the last change was 1800 s ago, dwell is 1800 s"


def test_gains_are_believed_as_far_as_they_came_true() -> None:
    assert corrected(1.2, []) == pytest.approx(1.2)
    assert corrected(1.2, [(1.1, 1.1)] * 9) == pytest.approx(1.2)
    assert corrected(1.2, [(1.5, 1.5)] * 9) == pytest.approx(1.2)
    assert corrected(1.2, [(1.1, 1.3)] * 9) == pytest.approx(1.2)  # never more than predicted
    assert corrected(1.21, [(1.1, 1.0)]) == pytest.approx(1.1)  # one of two kept its word
    assert corrected(1.2, [(1.1, 0.5)] * 9) == 1.0
    assert corrected(math.inf, [(1.1, 0.5)]) == math.inf
    assert disappoints(1.21, [], 1.1) is None
    assert disappoints(1.2, [(1.1, 1.0)], 1.1) == (
        "gain 1.200 is 1.095 by what 1 earlier gains came to, which is under 1.1"
    )
    assert disappoints(1.0, [], 1.0) is not None
    assert disappoints(1.3, [(1.1, 0.5)] * 3, 1.0) is not None  # believed to be nothing


@pytest.mark.parametrize(
    ("losses", "failures", "says"),
    [
        (0, 0, None),
        (2, 2, None),
        (3, 0, "3 changes in a row lost"),
        (0, 3, "3 changes in a row were not confirmed"),
    ],
)
def test_the_breaker(losses: int, failures: int, says: str | None) -> None:
    found = breaks(losses, failures, Safety())
    assert found is None if says is None else (found or "").startswith(says)


# ---- a change in flight -----------------------------------------------------------------------------

THREE = SPACE.project({"num_queues": 3, "queue_thresholds": (1000, 2000)})
ASKED = Open("k", FOUR, TWO, expected=7, since_ms=0, purpose="change", gain=1.2)
WRITTEN = Open("k", FOUR, TWO, expected=7, since_ms=0, purpose="change", gain=1.2, written=8)
BACK = Open("k", FOUR, TWO, expected=7, since_ms=0, purpose="rollback", gain=math.nan, written=8)
HALF = Knobs({**FOUR, "num_queues": 2})


@pytest.mark.parametrize(
    ("change", "knobs", "version", "now_ms", "step"),
    [
        (ASKED, TWO, 7, 1000, Ask()),
        (WRITTEN, TWO, 7, 1000, Wait()),
        (WRITTEN, TWO, 8, 1000, Wait()),  # written and not yet in force
        (ASKED, FOUR, 8, 1000, "confirmed"),
        (ASKED, FOUR, 1, 1000, "confirmed"),  # the scheduler has restarted meanwhile
        (WRITTEN, FOUR, 8, 10**9, "confirmed"),
        (ASKED, TWO, 7, 120_000, "not in force after 120 s: what is in force is kept"),
        (WRITTEN, TWO, 7, 120_000, "acknowledged, but not in force after 120 s"),
        (ASKED, TWO, 3, 1000, "version 3 is in force, not 7: nothing was changed"),
        (WRITTEN, HALF, 8, 1000, "only a part of the change is in force"),
        (ASKED, HALF, 8, 1000, "only a part of the change is in force"),
        (
            WRITTEN,
            THREE,
            8,
            1000,
            "only a part of the change is in force",
        ),  # its own version, another setting
        (WRITTEN, THREE, 9, 1000, "somebody else changed the setting meanwhile: theirs is kept"),
        (BACK, HALF, 8, 1000, "only a part of the rollback is in force: it is tried again"),
    ],
)
def test_what_is_next_for_a_change(change: Open, knobs: Knobs, version: int, now_ms: int, step: Any) -> None:
    found = next_step(change, InForce(knobs, version, 0), now_ms, 120_000)
    if not isinstance(step, str):
        assert found == step
        return
    assert isinstance(found, Settle)
    assert step in (found.why, found.outcome) or found.why.startswith(step)
    assert found.again == (change.purpose == "rollback" and found.outcome == "refused")


def test_what_is_made_of_two_settings() -> None:
    assert mixed(HALF, TWO, FOUR)
    assert not mixed(TWO, TWO, FOUR)
    assert not mixed(FOUR, TWO, FOUR)
    assert not mixed(THREE, TWO, FOUR)


@pytest.mark.parametrize(
    ("knobs", "version", "found"),
    [
        (TWO, 7, None),
        (TWO, 1, "restarted"),
        (FOUR, 8, "late"),
        (HALF, 8, "half"),
        (THREE, 8, "foreign"),
    ],
)
def test_what_a_setting_is_that_was_not_expected(knobs: Knobs, version: int, found: str | None) -> None:
    standing = Standing(knobs=TWO, version=7, given_up=(WRITTEN,))
    seen = reconcile(standing, InForce(knobs, version, 0))
    assert (seen.found if seen else None) == found


def test_what_is_seen_first() -> None:
    seen = reconcile(Standing(), InForce(TWO, 1, 0))
    assert seen is not None
    assert seen.found == "seen"


@pytest.mark.parametrize("module", [safety, deciding, changes, changer, register])
def test_the_operators_page_has_every_sentence(module: ModuleType) -> None:
    """The longest piece of each text that is said stands there, or on the page of the search's guardrails."""
    pages = " ".join(" ".join((CONCEPTS / name).read_text() for name in ("safety.md", "verdict.md")).split())
    tree = ast.parse(inspect.getsource(module))
    not_said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    errors = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and "Torn" not in ast.dump(node)]
    not_said |= {id(part) for error in errors for part in ast.walk(error)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for text in texts for part in ast.walk(text)} - {id(text) for text in texts}
    said = [
        max(
            (str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)),
            key=len,
            default="",
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in not_said | inside
    ]
    sentences = {one.strip() for one in said if one.count(" ") > 2}
    assert len(sentences) > 2
    assert {one for one in sentences if one not in pages} == set()
