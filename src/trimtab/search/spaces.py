"""What a search varies for each policy: good parameters, not the raw knobs one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from trimtab.cluster import Cluster, Placement
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.policy import Policy
from trimtab.search.space import Axis, AxisValue, Point, SearchSpace

_QUEUES_MAX = 5
_BASE_GPU_S = (300.0, 160_000.0)
_RATIO = (1.5, 30.0)
_STARVE = (0.5, 100.0)
_LEASE_S = (60.0, 3600.0)
_FAIRNESS_MAX = 0.95
_PROFILERS_MAX, _PROFILERS_SHARE = 8, 10  # nodes; one of so many
_PROFILE_S = (30.0, 1200.0)
_SHARING_CUTS = (0.80, 0.99)
_CHRONUS_LEASE_MIN = (5, 120)
_SAFETY_MAX = 0.5
_QUIET_JOBS = (0.5, 10.0)  # per ten minutes
_REFRESH_S = (86_400, 259_200, 604_800)
_ROUNDS_S = (0, 60, 120, 300, 600, 1200)
# What `scontrol reconfigure` was seen to put in force (Slurm 22.05.8), in ranges that sites use. A weight is
# one less than its place on the axis, so that 0 is on it.
_SLURM_WEIGHTS = tuple(
    f"PriorityWeight{name}" for name in ("Age", "Fairshare", "JobSize", "Partition", "QOS")
)
_WEIGHT_MAX = 100_000
_SLURM = (
    Axis("PriorityMaxAge", "log", 60, 43_200),
    Axis("PriorityFavorSmall", "choice", choices=(False, True)),
    Axis("PriorityDecayHalfLife", "log", 60, 43_200),
    Axis("PriorityCalcPeriod", "int", 1, 10),
    Axis("default_queue_depth", "log", 10, 10_000),
    Axis("sched_min_interval", "choice", choices=(2, 1_000_000, 5_000_000)),
)
_SLURM_BACKFILL = (
    Axis("bf_interval", "log", 5, 600),
    Axis("bf_window", "log", 60, 43_200),
    Axis("bf_resolution", "log", 30, 3600),
    Axis("bf_max_job_test", "log", 10, 10_000),
    Axis("bf_max_job_user", "choice", choices=(0, 5, 20, 100)),
)
# What decides most under SensaScale; the others stay as they are.
_SENSASCALE = (
    "unit_mode",
    "pair_scope",
    "theta",
    "lst_ref",
    "urgent",
    "backfill",
    "depth",
    "reserve",
    "hopeless_share",
    "be_order",
    "guard_rel",
    "guard_abs",
    "donate_max",
    "free_pool",
)
_SENSASCALE_PLUS = (*_SENSASCALE, "max_evictions", "outlast", "admission")


def search_space(
    policy: Policy,
    base: Knobs,
    placement: Placement,
    cluster: Cluster | None = None,
    has_pairs: bool = True,
) -> SearchSpace:
    """Return the axes of a policy's search; knobs without an axis stay as in `base`.

    Tiresias is searched over a base threshold and a ratio (thresholds = base x ratio^i), which stay in
    order for any number of queues; Themis over all but its definition of fairness and what updates do to
    leases; Lucid over a mode of sharing and what that mode uses; Chronus over all but who plans its leases;
    Synergy over orders, a few lengths of rounds and what takes no integer programs; Slurm over what it can be
    told without a restart; SensaScale over the knobs that matter most; other policies over their own knobs.
    The last two leave out knobs to which no choice on the axes gives an effect.

    Args:
        policy: What is searched.
        base: Its knobs as they are.
        placement: How gangs are placed.
        cluster: Where it runs, if that is known: it bounds how many nodes may profile.
        has_pairs: Whether pairs of jobs were measured, so that Lucid's cuts through their mean speeds matter.
    """
    if policy.name == "themis":
        return _themis_space(policy, base, placement)
    if policy.name == "tiresias":
        return _tiresias_space(policy, base, placement)
    if policy.name == "lucid":
        return _lucid_space(policy, base, cluster, has_pairs)
    if policy.name == "synergy":
        return _synergy_space(policy, base)
    if policy.name == "chronus":
        return _chronus_space(policy, base)
    if policy.name == "slurm":
        return _slurm_space(policy, base)
    if policy.name in ("sensascale", "sensascale-plus"):
        names = _SENSASCALE if policy.name == "sensascale" else _SENSASCALE_PLUS
        return _plain_space(policy, base, names)
    return _plain_space(policy, base, [knob.name for knob in policy.space.knobs if knob.kind != "list"])


def _plain_space(policy: Policy, base: Knobs, names: Sequence[str]) -> SearchSpace:
    """Return a space with one axis for each of these knobs that can matter."""
    space = policy.space
    settings = [base, *(space.project({**base, name: value}) for name, value in _switches(space, names))]
    awake = [name for name in names if not all(space.is_inert(name, one) for one in settings)]
    return _space_of(policy, base, [_axis(space.by_name[name]) for name in awake])


def _switches(space: Space, names: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yield each choice of the knobs that have some."""
    for name in names:
        knob = space.by_name[name]
        for value in (False, True) if knob.kind == "bool" else knob.choices:
            yield name, value


def _space_of(policy: Policy, base: Knobs, axes: Sequence[Axis]) -> SearchSpace:
    """Return a space in which each axis is the knob of its name."""
    return SearchSpace(
        axes=tuple(axes),
        space=policy.space,
        to_values=dict,
        to_point=lambda knobs: {axis.name: _axis_value(knobs[axis.name]) for axis in axes},
        base=base,
    )


def _synergy_space(policy: Policy, base: Knobs) -> SearchSpace:
    """Return a space small enough to try all of it; an order by estimates is in it if there must be some."""
    axes = [
        Axis("order", "choice", choices=("fifo", "las", *(("srtf",) if base["order"] == "srtf" else ()))),
        Axis("round_s", "choice", choices=_ROUNDS_S),
    ]
    if base["allocation"] != "opt":
        axes.append(Axis("allocation", "choice", choices=("proportional", "tune")))
    return _space_of(policy, base, axes)


def _themis_space(policy: Policy, base: Knobs, placement: Placement) -> SearchSpace:
    axes = [
        Axis("lease", "log", *_LEASE_S),
        Axis("fairness_f", "linear", 0, _FAIRNESS_MAX, steps=19),
        Axis("auction_delay", "linear", 0, 300, steps=10),
        Axis("hidden_payment", "choice", choices=(False, True)),
    ]
    if placement == "relaxed":
        axes.append(Axis("placement_threshold", "linear", 0, 1, steps=20))
    return _space_of(policy, base, axes)


def _chronus_space(policy: Policy, base: Knobs) -> SearchSpace:
    axes = (
        Axis("lease", "log", *_CHRONUS_LEASE_MIN),
        Axis("objective", "choice", choices=("adaptive", "maximize", "minimize")),
        Axis("round_up", "choice", choices=(False, True)),
        Axis("safety", "linear", 0, _SAFETY_MAX, steps=20),
        Axis("be_order", "choice", choices=("srsf", "fifo")),
        Axis("fill_every", "int", 0, 10),
    )
    return _space_of(policy, base, axes)


def _slurm_space(policy: Policy, base: Knobs) -> SearchSpace:
    axes = (
        *(Axis(name, "log", 1, _WEIGHT_MAX + 1) for name in _SLURM_WEIGHTS),
        *_SLURM,
        *(_SLURM_BACKFILL if base["SchedulerType"] == "sched/backfill" else ()),
    )

    def values(point: Point) -> Mapping[str, Value]:
        return {**point, **{name: round(float(point[name])) - 1 for name in _SLURM_WEIGHTS}}

    def point(knobs: Knobs) -> Point:
        found = {axis.name: _axis_value(knobs[axis.name]) for axis in axes}
        return {**found, **{name: min(knobs.integer(name), _WEIGHT_MAX) + 1 for name in _SLURM_WEIGHTS}}

    return SearchSpace(axes, policy.space, values, point, base)


def _axis(knob: Knob) -> Axis:
    """Return a knob's own axis: wide positive ranges in logarithms, small whole numbers as they are."""
    if knob.kind == "choice":
        return Axis(knob.name, "choice", choices=knob.choices)
    if knob.kind == "bool":
        return Axis(knob.name, "choice", choices=(False, True))
    high = knob.high if math.isfinite(knob.high) else max(100.0, 100 * max(knob.low, 1.0))
    if knob.kind == "int" and high - knob.low <= 20:
        return Axis(knob.name, "int", knob.low, high)
    if knob.low > 0 and high / knob.low > 20:
        return Axis(knob.name, "log", knob.low, high)
    return Axis(knob.name, "linear", knob.low, high, steps=20)


def _axis_value(value: Value) -> AxisValue:
    assert not isinstance(value, tuple)
    return value


def _tiresias_space(policy: Policy, base: Knobs, placement: Placement) -> SearchSpace:
    axes = [
        Axis("num_queues", "int", 1, _QUEUES_MAX),
        Axis("base_threshold", "log", *_BASE_GPU_S),
        Axis("threshold_ratio", "log", *_RATIO),
        Axis("starve", "choice", choices=("off", "on")),
        Axis("starve_limit", "log", *_STARVE),
        Axis("in_queue_order", "choice", choices=("sim_tail", "start", "submit")),
    ]
    if placement == "relaxed":
        axes.append(Axis("pack_limit", "linear", 0, 1, steps=20))
    return SearchSpace(tuple(axes), policy.space, _tiresias_values, _tiresias_point, base)


def _tiresias_values(point: Point) -> Mapping[str, Value]:
    queues = int(point["num_queues"])
    first, ratio = float(point["base_threshold"]), float(point["threshold_ratio"])
    values: dict[str, Value] = {
        "num_queues": queues,
        "queue_thresholds": tuple(round(first * ratio**step) for step in range(queues - 1)),
        "promote_knob": float(point["starve_limit"]) if point["starve"] == "on" else math.inf,
        "in_queue_order": str(point["in_queue_order"]),
    }
    if "pack_limit" in point:
        values["pack_limit"] = float(point["pack_limit"])
    return values


def _tiresias_point(knobs: Knobs) -> Point:
    thresholds = knobs.numbers("queue_thresholds") or (3600,)
    ratio = (thresholds[-1] / thresholds[0]) ** (1 / (len(thresholds) - 1)) if len(thresholds) > 1 else 4.0
    promote = knobs.fraction("promote_knob")
    return {
        "num_queues": min(knobs.integer("num_queues"), _QUEUES_MAX),
        "base_threshold": float(thresholds[0]),
        "threshold_ratio": ratio,
        "starve": "off" if math.isinf(promote) else "on",
        "starve_limit": 8.0 if math.isinf(promote) else promote,
        "in_queue_order": knobs.choice("in_queue_order"),
        "pack_limit": knobs.fraction("pack_limit"),
    }


def _lucid_space(policy: Policy, base: Knobs, cluster: Cluster | None, has_pairs: bool) -> SearchSpace:
    profilers = _PROFILERS_MAX
    if cluster is not None:
        profilers = min(profilers, max(1, max(vc.nodes for vc in cluster.vcs) // _PROFILERS_SHARE))
    cuts = [Axis(name, "linear", *_SHARING_CUTS, steps=19) for name in ("jumbo_below", "medium_below")]
    axes = (
        Axis("prof_nodes", "int", 0, profilers),
        Axis("t_prof", "log", *_PROFILE_S),
        Axis("prof_factor", "int", 1, 8),
        Axis("sharing", "choice", choices=("off", "adaptive", "always")),
        Axis("gsc", "int", 1, 4),
        *(cuts if has_pairs else ()),
        Axis("prio_ratio", "log", 1, 8),
        Axis("share_off_below", "linear", *_QUIET_JOBS, steps=19),
        Axis("pack_preference", "choice", choices=("free_first", "pack_first", "forecast")),
        Axis("estimate_period", "choice", choices=_REFRESH_S),
    )
    names = {axis.name for axis in axes}

    def point(knobs: Knobs) -> Point:
        found = {name: value for name, value in _lucid_point(knobs).items() if name in names}
        return {**found, "prof_nodes": min(knobs.integer("prof_nodes"), profilers)}

    return SearchSpace(axes, policy.space, _lucid_values, point, base)


def _lucid_values(point: Point) -> Mapping[str, Value]:
    """Return a mode of sharing as the knobs that say it: no score allowed is off, no threshold is always."""
    sharing = point["sharing"]
    cuts = {name: float(point[name]) for name in ("jumbo_below", "medium_below") if name in point}
    return {
        **cuts,
        "prof_nodes": int(point["prof_nodes"]),
        "t_prof": round(float(point["t_prof"])),
        "prof_factor": int(point["prof_factor"]),
        "gsc": 0 if sharing == "off" else int(point["gsc"]),
        "prio_ratio": float(point["prio_ratio"]),
        "share_off_below": float(point["share_off_below"]) if sharing == "adaptive" else 0.0,
        "pack_preference": str(point["pack_preference"]),
        "estimate_period": int(point["estimate_period"]),
    }


def _lucid_point(knobs: Knobs) -> Point:
    gsc, below = knobs.integer("gsc"), knobs.fraction("share_off_below")
    return {
        "prof_nodes": knobs.integer("prof_nodes"),
        "t_prof": float(knobs.integer("t_prof")),
        "prof_factor": knobs.integer("prof_factor"),
        "sharing": "off" if gsc == 0 else "adaptive" if below > 0 else "always",
        "gsc": gsc or 2,
        "jumbo_below": knobs.fraction("jumbo_below"),
        "medium_below": knobs.fraction("medium_below"),
        "prio_ratio": min(knobs.fraction("prio_ratio"), 8.0),
        "share_off_below": below or 2.0,
        "pack_preference": knobs.choice("pack_preference"),
        "estimate_period": knobs.integer("estimate_period"),
    }
