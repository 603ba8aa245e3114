"""What the compiled core is told of Lucid: kinds of jobs, what they do to each other, and the rules.

Jobs of one kind have equal profiles and as many members, so the core looks up what the reference engine asks.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trimtab.cluster import Pace
from trimtab.knobs import Knobs
from trimtab.policies.policy import ppm
from trimtab.profile import PairSpeeds, Profile
from trimtab.simulate.workload import Workload

if TYPE_CHECKING:
    from trimtab import _core

KINDS_MAX = 1024  # a table of pairs grows with the square
_SLOWEST_PPM = 1000  # so that services at their slowest fit in 64 bits


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of a workload's jobs, numbered by first appearance.

    Attributes:
        of_job: By job; shape (jobs,).
        profiles: By kind.
    """

    of_job: NDArray[np.int32]
    profiles: tuple[Profile, ...]

    @classmethod
    def of(cls, workload: Workload) -> Kinds:
        """Return the kinds of a workload, remembered as long as it lives."""
        found = _KINDS.get(id(workload))
        if found is None:
            numbers: dict[tuple[Profile, int], int] = {}
            kinds = [(facts.profile or Profile(), facts.members) for facts in workload.facts]
            of_job = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
            found = cls(np.array(of_job, dtype=np.int32), tuple(profile for profile, _ in numbers))
            _KINDS[id(workload)] = found
            weakref.finalize(workload, _KINDS.pop, id(workload), None)
        return found


_KINDS: dict[int, Kinds] = {}


class _Table:
    """What has been asked of one `PairSpeeds`: by number of the newcomer's profile, then of the partner's."""

    def __init__(self, speeds: PairSpeeds) -> None:
        self._speeds = weakref.ref(speeds)
        self._numbers: dict[Profile, int] = {}
        self._answers = np.empty((0, 0, 3), dtype=np.int64)

    @classmethod
    def of(cls, speeds: PairSpeeds) -> _Table:
        """Return the table of these speeds, remembered as long as they live."""
        found = _TABLES.get(id(speeds))
        if found is None:
            found = _TABLES[id(speeds)] = cls(speeds)
            weakref.finalize(speeds, _TABLES.pop, id(speeds), None)
        return found

    def answers(self, profiles: Sequence[Profile]) -> NDArray[np.int64]:
        """Return the newcomer's speed, the partner's, and whether both fit; shape (profiles, profiles, 3)."""
        for profile in profiles:
            self._numbers.setdefault(profile, len(self._numbers))
        self._extend()
        places = np.array([self._numbers[profile] for profile in profiles], dtype=np.intp)
        return self._answers[np.ix_(places, places)]

    def _extend(self) -> None:
        before, count = len(self._answers), len(self._numbers)
        if before == count:
            return
        speeds, profiles = self._speeds(), list(self._numbers)
        assert speeds is not None
        grown = np.empty((count, count, 3), dtype=np.int64)
        grown[:before, :before] = self._answers
        for one in range(count):
            for other in range(0 if one >= before else before, count):
                pair = profiles[one], profiles[other]
                grown[one, other] = *speeds.speeds_ppm(*pair), speeds.fits(*pair)
        self._answers = grown


_TABLES: dict[int, _Table] = {}


def pairing_refusal(workload: Workload, speeds: PairSpeeds | None) -> str | None:
    """Return why the core cannot let these jobs share GPUs, None if it can."""
    profiles = Kinds.of(workload).profiles
    if speeds is None or not profiles:
        return None
    if len(profiles) > KINDS_MAX:
        return f"jobs have {len(profiles)} different profiles, more than {KINDS_MAX}"
    slowest = _Table.of(speeds).answers(profiles)[:, :, :2].min()
    return f"a pair is slower than {_SLOWEST_PPM} ppm" if slowest < _SLOWEST_PPM else None


def core_pairing(workload: Workload, speeds: PairSpeeds | None) -> _core.Pairing | None:
    """Return what jobs that share GPUs do to each other; None if nothing is known of it."""
    from trimtab import _core

    if speeds is None:
        return None
    kinds = Kinds.of(workload)
    memory = np.array([profile.gmem_mib or 0 for profile in kinds.profiles], dtype=np.int64)
    columns = [
        np.ascontiguousarray(column) for column in _Table.of(speeds).answers(kinds.profiles).reshape(-1, 3).T
    ]
    return _core.pairing(kinds.of_job, memory, columns[0], columns[1], columns[2].astype(np.uint8))


def core_pace(pace: Pace | None, workload: Workload) -> _core.Pace | None:
    """Return a forecast's steps from the first submission on."""
    from trimtab import _core

    if pace is None:
        return None
    time_ms: int | None = workload.facts[0].submit_ms if workload.facts else 0
    steps = []
    while time_ms is not None:
        steps.append((time_ms, pace.at(time_ms)))
        time_ms = pace.next_ms(time_ms)
    return _core.pace(steps)


def core_rules(knobs: Knobs, workload: Workload, speeds: PairSpeeds | None) -> _core.LucidRules:
    """Return what the knobs amount to; see `policies/lucid.py`."""
    from trimtab import _core

    cuts = knobs.fraction("jumbo_below"), knobs.fraction("medium_below")
    ratio = knobs.fraction("prio_ratio")
    rules = _core.LucidRules()
    rules.prof_nodes, rules.prof_factor = knobs.integer("prof_nodes"), knobs.integer("prof_factor")
    rules.t_prof_ms = knobs.integer("t_prof") * 1000
    rules.autoscales = bool(knobs["prof_autoscale"])
    rules.gsc = knobs.integer("gsc")
    if speeds is not None:
        rules.scores = [speeds.score(profile, cuts) for profile in Kinds.of(workload).profiles]
    rules.ratio_ppm = None if math.isinf(ratio) else ppm(ratio)
    rules.off_below_ppm = ppm(knobs.fraction("share_off_below"))
    rules.prefers = getattr(_core.Prefers, knobs.choice("pack_preference"))
    rules.is_best = knobs.choice("partner") == "best"
    rules.mem_limit_mib = knobs.integer("mem_limit")
    rules.strict = knobs.choice("backfill") == "strict"
    return rules
