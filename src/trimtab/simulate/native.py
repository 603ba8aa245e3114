"""Whole-pass policies that the core decides itself, and what it must know of the jobs for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trimtab.curve import Curve
from trimtab.job import BEST_EFFORT, Service
from trimtab.knobs import Knobs
from trimtab.policies.chronus import Chronus
from trimtab.policies.chronus import Rules as ChronusRules
from trimtab.policies.policy import Policy
from trimtab.policies.sensascale import SensaScale, SensaScalePlus
from trimtab.policies.sensascale_knobs import BACKFILLS, BE_ORDERS, ORDERS, REFERENCES, SCOPES, Rules
from trimtab.policies.slurm import Slurm, factors_ppm, limit_ms
from trimtab.policies.slurm_knobs import PREEMPT_NONE, PREEMPT_PARTITION, PREEMPT_QOS
from trimtab.policies.slurm_knobs import Rules as SlurmRules
from trimtab.policies.slurm_usage import association_of, shares_of
from trimtab.policies.synergy import Synergy
from trimtab.simulate.workload import Workload
from trimtab.site import Site

if TYPE_CHECKING:
    from trimtab import _core


def _synergy(knobs: Knobs) -> _core.Decider | None:
    from trimtab import _core

    allocation = knobs.choice("allocation")
    if allocation == "opt":  # the solver of integer programs is Python's
        return None
    order = getattr(_core.SynergyOrder, knobs.choice("order"))
    return _core.synergy(order, allocation == "tune", knobs.integer("round_s") * 1000)


def _chronus(knobs: Knobs) -> _core.Decider | None:
    from trimtab import _core

    rules = ChronusRules.of(knobs)
    if rules.exact:  # the solver is Python's
        return None
    objective = getattr(_core.ChronusObjective, rules.objective)
    return _core.chronus(
        *(rules.lease_ms, objective, rules.rounds_up, rules.safety_ppm, rules.shortest_first, rules.fill_ms)
    )


def _sensascale(knobs: Knobs) -> _core.Decider:
    from trimtab import _core

    told, rules = Rules.of(knobs), _core.SensaRules()
    rules.order, rules.reference = ORDERS.index(told.order), REFERENCES.index(told.reference)
    rules.be_order, rules.backfill = BE_ORDERS.index(told.be_order), BACKFILLS.index(told.backfill)
    rules.scope = SCOPES.index(told.adjusting.scope)
    rules.is_explicit, rules.admits = told.explicit, told.admits
    rules.drops, rules.rescues = told.drops, told.rescues
    rules.displaces, rules.outlast_ppm = told.displaces, told.outlast_ppm
    rules.urgent_ms, rules.tick_ms = told.urgent_ms, told.tick_ms
    rules.depth, rules.max_evictions, rules.reserve_ppm = told.depth, told.max_evictions, told.reserve_ppm
    believed, at = told.beliefs, told.beliefs.at
    rules.theta_ppm, rules.delta_ppm, rules.eps_ppm = at.theta_ppm, at.delta_ppm, at.eps_ppm
    rules.margin_ppm, rules.overrun_ppm = believed.margin_ppm, believed.overrun_ppm
    rules.credit_ppm, rules.keeps = believed.share_ppm, believed.keeps
    how = told.pairing
    rules.window, rules.is_best = how.window, how.is_best
    rules.memory_ppm, rules.time_ppm, rules.latest_ppm = how.memory_ppm, how.time_ppm, how.latest_ppm
    adjusting = told.adjusting
    rules.lends, rules.pools, rules.cooldown_ms = adjusting.lends, adjusting.pools, adjusting.cooldown_ms
    rules.guard_ms, rules.guard_ppm = adjusting.guard_ms, adjusting.guard_ppm
    rules.floor_ppm, rules.donate_ppm = adjusting.floor_ppm, adjusting.donate_ppm
    rules.hysteresis_ppm = adjusting.hysteresis_ppm
    return _core.sensascale(rules)


def _slurm(knobs: Knobs) -> _core.Decider:
    from trimtab import _core

    told, rules = SlurmRules.of(knobs), _core.SlurmRules()
    rules.formula = _core.SlurmFormula(*told.formula)
    rules.depth, rules.interval_ms, rules.rest_ms = told.depth, told.interval_ms, told.rest_ms
    rules.fills, rules.fill_ms, rules.window_ms = told.fills, told.fill_ms, told.window_ms
    rules.resolution_ms, rules.test_max = told.resolution_ms, told.test_max
    rules.user_max, rules.start_max = told.user_max, told.start_max
    preempts = {PREEMPT_NONE: "none", PREEMPT_PARTITION: "partition", PREEMPT_QOS: "qos"}
    rules.preempts, rules.exempt_ms = getattr(_core.SlurmPreempts, preempts[told.preempts]), told.exempt_ms
    return _core.slurm(rules)


# Policy -> its twin in the core under some knobs; None where Python is asked, which only some policies need.
NATIVE: dict[type[Policy], Callable[[Knobs], _core.Decider | None]] = {
    Chronus: _chronus,
    Synergy: _synergy,
    SensaScale: _sensascale,
    SensaScalePlus: _sensascale,
    Slurm: _slurm,
}
ASKED_AT_TIMES: frozenset[type[Policy]] = frozenset({Chronus, Synergy})

Kind = TypeVar("Kind")

# In the order of `Service::Kind` in core/job.hpp.
_KINDS = ("strict", "soft", "best")


def native_decider(policy: Policy, knobs: Knobs) -> _core.Decider | None:
    """Return a policy's twin in the core, None if there is none."""
    make = NATIVE.get(type(policy))
    return None if make is None else make(knobs)


def is_native(policy: Policy) -> bool:
    """Whether the core never asks Python about a whole-pass policy."""
    return type(policy) in NATIVE and type(policy) not in ASKED_AT_TIMES


def add_wants(core_workload: _core.Workload, workload: Workload) -> None:
    """Tell the core what users want, and what CPU and memory do to jobs."""
    facts = workload.facts
    if not workload.curves and all(one.curve is None and one.service == BEST_EFFORT for one in facts):
        return
    services = _Numbers[Service]([one.service for one in facts])
    known = [one.curve for one in facts]
    curves = _Numbers[Curve | None]([*known, *(workload.curves or known)])
    core_workload.add_wants(
        services.places,
        [(_KINDS.index(one.kind), one.deadlines_ms, one.values) for one in services.kinds],
        curves.places[: len(facts)],
        curves.places[len(facts) :],
        [_told(curve) for curve in curves.kinds],
    )


def add_claims(core_workload: _core.Workload, workload: Workload, site: Site) -> None:
    """Tell the core who wants the jobs, and what that is worth to the site."""
    qualities = _Numbers[str]([one.qos or "" for one in workload.facts])
    claims = []
    for one, qos in zip(workload.facts, qualities.places.tolist(), strict=True):
        worth = site.partition(one.vc).tier, *factors_ppm(one, site), site.qos(one.qos).priority
        claims.append((limit_ms(one), *association_of(one), *worth, qos))
    names = qualities.kinds
    preempts = [[names.index(one) for one in site.qos(name).preempts if one in names] for name in names]
    core_workload.add_claims(claims, preempts, shares_of(site))


def _told(curve: Curve | None) -> tuple[tuple[int, ...], tuple[int, ...], list[int], int]:
    assert curve is not None
    speeds_ppm = [speed_ppm for row in curve.speeds_ppm for speed_ppm in row]
    return curve.cores, curve.memory_mib, speeds_ppm, curve.footprint_mib


class _Numbers(Generic[Kind]):
    """Values numbered by their kind, None by -1; `places` has shape (values,)."""

    def __init__(self, values: Iterable[Kind]) -> None:
        numbers: dict[Kind, int] = {}
        places = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
        self.kinds = list(numbers)
        self.places: NDArray[np.int32] = np.array(places, dtype=np.int32)
