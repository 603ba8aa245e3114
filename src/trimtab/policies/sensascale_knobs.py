"""SensaScale's knobs, and what they amount to in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.adjust import Adjusting
from trimtab.policies.backfill import NEVER_MS
from trimtab.policies.policy import ppm
from trimtab.policies.sensitivity import Thresholds
from trimtab.policies.units import Pairing
from trimtab.policies.urgency import Beliefs

# Choices, in the order of the enums in core/sensascale.hpp.
ORDERS = ("lst", "edf", "fifo", "srtf")
REFERENCES = ("prop", "unit", "best")
SCOPES = ("class", "all", "off")
BACKFILLS = ("lst", "easy", "conservative", "none")
BE_ORDERS = ("srsf", "fifo", "las")

_NEXT = "next pass"
_SHARES = "shares of running jobs change at the next pass over their node"
_ORDER = "running jobs stay; jobs that wait are ordered anew"


def _fraction(name: str, default: float, high: float, trades: str, in_flight: str, unit: str = "") -> Knob:
    return Knob(
        name=name,
        kind="fraction",
        default=default,
        low=0,
        high=high,
        unit=unit,
        trades=trades,
        takes_effect=_NEXT,
        in_flight=in_flight,
    )


def _whole(
    name: str, default: int, bounds: tuple[int, int], trades: str, in_flight: str, unit: str = ""
) -> Knob:
    return Knob(
        name=name,
        kind="int",
        default=default,
        low=bounds[0],
        high=bounds[1],
        unit=unit,
        trades=trades,
        takes_effect=_NEXT,
        in_flight=in_flight,
    )


def _choice(name: str, choices: tuple[str, ...], default: str, trades: str, in_flight: str) -> Knob:
    return Knob(
        name=name,
        kind="choice",
        default=default,
        choices=choices,
        trades=trades,
        takes_effect=_NEXT,
        in_flight=in_flight,
    )


def _switch(name: str, default: bool, trades: str, in_flight: str) -> Knob:
    return Knob(
        name=name, kind="bool", default=default, trades=trades, takes_effect=_NEXT, in_flight=in_flight
    )


KNOBS = (
    _choice(
        "order",
        ORDERS,
        "lst",
        "lst: latest start first; edf: deadline first; fifo: arrival, deadlines do not count; srtf: "
        "those who must start soon, then least time left: least waiting, needs good estimates",
        _ORDER,
    ),
    _fraction(
        "theta",
        0.1,
        1,
        "gain above which a job is sensitive; larger: fewer jobs get more than their part",
        _SHARES,
    ),
    _fraction(
        "delta",
        0,
        0.1,
        "loss that counts as none; larger: more to spare, insensitive jobs slow down",
        _SHARES,
    ),
    _fraction(
        "best_eps",
        0.02,
        0.1,
        "how far below its top speed a job's best demand may stay; larger: cheaper demands",
        _SHARES,
    ),
    _choice(
        "lst_ref",
        REFERENCES,
        "prop",
        "speed by which latest starts are reckoned; best: later, more risk",
        _ORDER,
    ),
    _choice(
        "unit_mode",
        ("node", "explicit"),
        "node",
        "explicit: pairs are made while they wait and start together; node: who shares a node shares "
        "its spare "
        "CPU and memory",
        "explicit units of jobs that wait are made anew; " + _SHARES,
    ),
    _choice(
        "pair_scope",
        SCOPES,
        "class",
        "inside which classes CPU and memory are exchanged; all: more pairs, best effort may take "
        "from deadlines",
        _SHARES,
    ),
    _whole(
        "pair_window",
        50,
        (1, 500),
        "jobs of a kind that are looked at for pairs; more: better pairs, slower passes",
        "waiting units are made anew",
    ),
    _choice(
        "match",
        ("greedy", "hungarian"),
        "greedy",
        "hungarian: the best set of pairs instead of one after another; slower",
        "waiting units are made anew",
    ),
    _fraction(
        "w_mem", 0.5, 2, "weight of memory beside CPU in a pair's score", "waiting units are made anew"
    ),
    _fraction("lambda_t", 0.3, 2, "penalty for unlike run times in a pair", "waiting units are made anew"),
    _fraction(
        "lambda_l", 0.3, 2, "penalty for unlike latest starts in a pair", "waiting units are made anew"
    ),
    _fraction(
        "urgent",
        60,
        math.inf,
        "latest starts within it go first, whoever else waits (beside promises: with srtf only); longer: "
        "deadlines before GPU use",
        _ORDER,
        "min",
    ),
    _choice(
        "backfill",
        BACKFILLS,
        "lst",
        "lst may eat the slack of those who wait; easy keeps the first one's start, and no promises but its; "
        "conservative everybody's; none: who has no promise starts only where nobody waits",
        _ORDER,
    ),
    _whole("depth", 8, (1, 64), "units that wait and are kept safe; more: safer and slower passes", _ORDER),
    _fraction(
        "reserve", 0, 0.5, "part of a unit's run time kept back from its slack; larger: less backfill", _ORDER
    ),
    _fraction(
        "hopeless_share",
        1,
        1,
        "how much of its best gain a job is trusted to reach; smaller: deadlines are given up sooner",
        _ORDER,
    ),
    _choice(
        "hopeless",
        ("demote", "drop", "keep"),
        "demote",
        "deadlines that cannot be met: behind best effort, only when nobody else waits, or kept in the order",
        "at once; hopeless running jobs go on",
    ),
    _choice(
        "be_order",
        BE_ORDERS,
        "srsf",
        "best effort and hopeless jobs: least service left, arrival, least service had",
        _ORDER,
    ),
    _switch("adjust", True, "on: jobs at risk borrow CPU and memory from others on their node", _SHARES),
    _fraction(
        "guard_rel",
        0.1,
        0.5,
        "slack to keep, as a part of the run time left; larger: help comes earlier",
        _SHARES,
    ),
    _whole("guard_abs", 300, (0, 3600), "slack to keep at least; larger: help comes earlier", _SHARES, "s"),
    Knob(
        name="floor",
        kind="fraction",
        default=0.34,
        low=0.1,
        high=1,
        trades="part of its proportional share that a lender keeps; smaller: more to lend",
        takes_effect=_NEXT,
        in_flight=_SHARES,
    ),
    Knob(
        name="donate_max",
        kind="fraction",
        default=0.34,
        low=0.1,
        high=1,
        trades="part of its share that a lender gives at most; larger: more to lend",
        takes_effect=_NEXT,
        in_flight=_SHARES,
    ),
    _whole("cooldown", 300, (0, 3600), "time a changed share stays; longer: fewer changes", _SHARES, "s"),
    Knob(
        name="hysteresis",
        kind="fraction",
        default=2.0,
        low=1,
        high=4,
        trades="slack, in guards, above which what was borrowed goes back; larger: fewer changes",
        takes_effect=_NEXT,
        in_flight=_SHARES,
    ),
    _switch("free_pool", True, "on: CPU and memory nobody has go to jobs that gain", _SHARES),
    _whole(
        "tick",
        600,
        (60, 3600),
        "time after which it is looked again; shorter: help comes sooner, more passes",
        "counts from the last pass",
        "s",
    ),
    _choice(
        "preempt",
        ("off", "rescue", "slack"),
        "off",
        "rescue: best effort and hopeless jobs give way to a deadline that would be missed; slack: so do "
        "jobs with much left to jobs with little, if their deadlines can wait: less waiting, more restarts",
        "running jobs may lose their GPUs at the next pass",
    ),
    _whole(
        "max_evictions",
        3,
        (0, 100),
        "how often a job may lose its GPUs; more: less waiting, more restarts",
        "counts what was before",
    ),
    Knob(
        name="outlast",
        kind="fraction",
        default=1.0,
        low=1,
        high=10,
        trades="with slack, a job gives way if its time left is so many times the other's; larger: fewer "
        "restarts, more waiting",
        takes_effect=_NEXT,
        in_flight="running jobs may lose their GPUs at the next pass",
    ),
    _fraction(
        "margin", 0, 1, "added to run times left; larger: earlier starts, for uncertain estimates", _ORDER
    ),
    _fraction("overrun", 0, 1, "work left, as a part of what is done, once an estimate is used up", _ORDER),
    _switch(
        "admission",
        False,
        "on: jobs that fit into what is promised already are promised their deadline, and go first",
        "promises stay",
    ),
)

_OF_PAIRS = ("pair_window", "match", "w_mem", "lambda_t", "lambda_l")
_OF_LOANS = ("floor", "donate_max", "hysteresis")
_OF_DEADLINES = ("lst_ref", "urgent", "hopeless_share", "hopeless", "be_order", "preempt", "admission")


def make_space(defaults: Mapping[str, Value]) -> Space:
    """Return the space of SensaScale's knobs with other defaults for some of them."""
    knobs = tuple(replace(knob, default=defaults.get(knob.name, knob.default)) for knob in KNOBS)
    usual = {knob.name: knob.default for knob in knobs}

    def settle(values: dict[str, Any]) -> dict[str, Value]:
        values.update({name: usual[name] for name in _inert(values)})
        if values["order"] == "fifo":
            values.update(hopeless="keep", preempt="off", admission=False)
        if values["preempt"] == "off":
            values["max_evictions"] = usual["max_evictions"]
        if values["preempt"] != "slack":
            values["outlast"] = usual["outlast"]
        return values

    return Space(knobs=knobs, settle=settle)


def _inert(values: Mapping[str, Any]) -> list[str]:
    """Return the knobs that make no difference beside the others."""
    names: list[str] = []
    if values["order"] == "fifo":
        names += _OF_DEADLINES
    if values["order"] == "edf":
        names += ["lst_ref"]
    has_urgent = values["order"] == "srtf" or (values["order"] == "lst" and not values["admission"])
    if not has_urgent and values["preempt"] != "slack":
        names += ["urgent"]
    if values["order"] == "srtf":
        names += ["lst_ref", "be_order"]
    if values["pair_scope"] == "off" or values["unit_mode"] == "node":
        names += _OF_PAIRS
    if not values["adjust"]:
        names += _OF_LOANS
    if values["backfill"] != "lst":
        names += ["reserve"]
    return names


@dataclass(frozen=True, slots=True)
class Rules:
    """Knobs in whole ms and ppm."""

    order: str
    reference: str
    be_order: str
    urgent_ms: int
    backfill: str
    depth: int
    reserve_ppm: int
    drops: bool
    rescues: bool
    displaces: bool
    outlast_ppm: int
    max_evictions: int
    tick_ms: int
    explicit: bool
    admits: bool
    beliefs: Beliefs
    pairing: Pairing
    adjusting: Adjusting

    @classmethod
    def of(cls, knobs: Knobs) -> Rules:
        """Return what a setting amounts to."""

        def of_ppm(name: str) -> int:
            return ppm(knobs.fraction(name))

        urgent_min = knobs.fraction("urgent")
        return cls(
            order=knobs.choice("order"),
            reference=knobs.choice("lst_ref") if knobs.choice("order") == "lst" else "prop",
            be_order=knobs.choice("be_order"),
            urgent_ms=round(min(NEVER_MS, 60_000 * urgent_min)),
            backfill=knobs.choice("backfill"),
            depth=knobs.integer("depth"),
            reserve_ppm=of_ppm("reserve"),
            drops=knobs.choice("hopeless") == "drop",
            rescues=knobs.choice("preempt") != "off",
            displaces=knobs.choice("preempt") == "slack",
            outlast_ppm=of_ppm("outlast"),
            max_evictions=knobs.integer("max_evictions"),
            tick_ms=1000 * knobs.integer("tick"),
            explicit=knobs.choice("unit_mode") == "explicit",
            admits=bool(knobs["admission"]),
            beliefs=Beliefs(
                at=Thresholds(of_ppm("theta"), of_ppm("delta"), of_ppm("best_eps")),
                margin_ppm=of_ppm("margin"),
                overrun_ppm=of_ppm("overrun"),
                share_ppm=of_ppm("hopeless_share"),
                keeps=knobs.choice("hopeless") == "keep",
            ),
            pairing=Pairing(
                scope=knobs.choice("pair_scope") if knobs.choice("unit_mode") == "explicit" else "off",
                window=knobs.integer("pair_window"),
                is_best=knobs.choice("match") == "hungarian",
                memory_ppm=of_ppm("w_mem"),
                time_ppm=of_ppm("lambda_t"),
                latest_ppm=of_ppm("lambda_l"),
            ),
            adjusting=Adjusting(
                scope=knobs.choice("pair_scope"),
                whole_node=knobs.choice("unit_mode") == "node",
                lends=bool(knobs["adjust"]),
                guard_ms=1000 * knobs.integer("guard_abs"),
                guard_ppm=of_ppm("guard_rel"),
                floor_ppm=of_ppm("floor"),
                donate_ppm=of_ppm("donate_max"),
                hysteresis_ppm=of_ppm("hysteresis"),
                cooldown_ms=1000 * knobs.integer("cooldown"),
                pools=bool(knobs["free_pool"]),
            ),
        )
