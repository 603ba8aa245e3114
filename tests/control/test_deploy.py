"""What is deployed goes with what is served: names and labels of metrics, and the command that is started."""

from __future__ import annotations

import configparser
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostile import HOUR_MS, ORDERS, Theatre
from trimtab.control.prometheus import metrics_text
from trimtab.control.safety import Safety

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_NAME = re.compile(r"\btrimtab_\w+")
_LABELS = re.compile(r"(trimtab_\w+)\{([^}]*)\}")
_BY = re.compile(r"by \(([^)]*)\) \(\w+\((trimtab_\w+)")


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Names of the metrics that a loop serves, and the labels each was seen with."""
    safety = Safety(history_min_ms=0)
    theatre = Theatre(1, hours=12, orders=replace(ORDERS, mode="auto", safety=safety, background_ms=None))
    theatre.run_until(6 * HOUR_MS)
    text = metrics_text(theatre.loop, theatre.now_ms)
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\w+)", text, re.M)}
    for name, labels in re.findall(r"^(\w+)\{(.*)\}", text, re.M):
        found[name] |= set(re.findall(r'(\w+)="', labels))
    return found


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return found


def questions() -> dict[str, str]:
    """Everything that Prometheus is asked, by where it is asked."""
    asked = {rule["alert"]: rule["expr"] for rule in alerts()}
    return asked | {
        f"{panel['title']} {one['refId']}": one["expr"] for panel in panels() for one in panel["targets"]
    }


def test_every_metric_is_looked_at_and_no_other(served: dict[str, set[str]]) -> None:
    named = {name for asked in questions().values() for name in _NAME.findall(asked)}
    assert named == set(served)


def test_labels_are_those_that_are_served(served: dict[str, set[str]]) -> None:
    checked = 0
    for panel in panels():
        for one in panel["targets"]:
            (name,) = set(_NAME.findall(one["expr"]))
            wanted = set(re.findall(r"\{\{(\w+)\}\}", one["legendFormat"]))
            wanted |= {
                label for _, labels in _LABELS.findall(one["expr"]) for label in re.findall(r"(\w+)=", labels)
            }
            wanted |= {label for labels, _ in _BY.findall(one["expr"]) for label in labels.split(", ")}
            assert wanted <= served[name], panel["title"]
            checked += len(wanted)
    assert checked > 8


def test_counters_are_asked_for_their_growth_and_only_they() -> None:
    for where, asked in questions().items():
        for name in _NAME.findall(asked):
            grows = re.search(rf"(increase|rate)\({name}\[", asked) is not None
            assert grows == name.endswith("_total"), where


def test_alerts_say_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"].endswith(".")


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_unit_and_container_start_the_same_command() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "trimtab.service")
    container = (DEPLOY / "Containerfile").read_text()
    parts = [json.loads(one) for one in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", container, re.M)]
    assert unit["Service"]["ExecStart"].split() == [word for part in parts for word in part]
    assert unit["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert re.search(r"^USER trimtab$", container, re.M)
    assert unit["Service"]["User"] == "trimtab"
