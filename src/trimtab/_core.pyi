"""The compiled core as Python sees it, used through `simulate/fast.py`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.job import JobFacts, JobView
from trimtab.policies.policy import Plan as PolicyPlan
from trimtab.simulate.workload import Estimator as PythonEstimator

Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]
JobTuple = tuple[Any, ...]
# ids, age_ms, left_ms, idle_ms, members, fair; sums; whether it thrashes; jobs stuck and the first of them
Stay = tuple[
    Shorts, Ints, Ints, Ints, Shorts, NDArray[np.uint8], tuple[int, int, int, int, int], bool, int, int
]
Flags = NDArray[np.bool_]

built: str  # compiler, its version and the options

class Rank:
    place: ClassVar[Rank]
    arrival: ClassVar[Rank]
    estimate: ClassVar[Rank]
    estimated_service: ClassVar[Rank]
    remaining: ClassVar[Rank]
    remaining_service: ClassVar[Rank]
    seniority: ClassVar[Rank]
    gittins: ClassVar[Rank]
    due: ClassVar[Rank]
    hook: ClassVar[Rank]

class Regrade:
    immediate: ClassVar[Regrade]
    lazy: ClassVar[Regrade]
    new_only: ClassVar[Regrade]

class Starve:
    never: ClassVar[Starve]
    ratio: ClassVar[Starve]
    absolute: ClassVar[Starve]
    hook: ClassVar[Starve]

class Plan:
    knobs: int
    text: str
    preemptive: bool
    strict: bool
    grades: Sequence[int]
    regrade: Regrade
    rank: Rank
    counts_overhead: bool
    starve: Starve
    starve_ppm: int
    starve_ms: int
    may_consolidate: bool
    pack_limit_ppm: int
    min_run_ms: int
    quantum_ms: int
    needs_estimates: bool
    needs_nodes: bool
    history_weight: float
    retrain_ms: int
    rescore: bool
    refresh_ms: int
    hooks_level: bool
    hooks_change: bool
    hooks_consolidate: bool
    def __init__(self) -> None: ...
    def set_auction(
        self,
        lease_ms: int,
        cuts: bool,
        visible_ppm: int,
        paper: bool,
        threshold_ppm: int,
        delay_ms: int,
        payment: bool,
    ) -> None: ...
    def set_planner(self, planner: Planner) -> None: ...
    def set_due(self, due_ms: Ints) -> None: ...
    def set_native(self, decider: Decider) -> None: ...
    def set_lucid(self, rules: LucidRules) -> None: ...

class Pairing: ...
class Pace: ...

class Prefers:
    free_first: ClassVar[Prefers]
    pack_first: ClassVar[Prefers]
    forecast: ClassVar[Prefers]

class LucidRules:
    prof_nodes: int
    t_prof_ms: int
    prof_factor: int
    autoscales: bool
    gsc: int
    scores: Sequence[int]
    ratio_ppm: int | None
    off_below_ppm: int
    prefers: Prefers
    is_best: bool
    mem_limit_mib: int
    strict: bool
    def __init__(self) -> None: ...

def pairing(
    kind: Shorts, gmem_mib: Ints, newcomers_ppm: Ints, partners_ppm: Ints, fits: NDArray[np.uint8]
) -> Pairing: ...
def pace(steps: Sequence[tuple[int, int]]) -> Pace: ...

class Planner: ...
class Decider: ...

class SensaRules:
    urgent_ms: int
    depth: int
    reserve_ppm: int
    max_evictions: int
    tick_ms: int
    theta_ppm: int
    delta_ppm: int
    eps_ppm: int
    margin_ppm: int
    overrun_ppm: int
    credit_ppm: int
    window: int
    memory_ppm: int
    time_ppm: int
    latest_ppm: int
    guard_ms: int
    guard_ppm: int
    floor_ppm: int
    donate_ppm: int
    hysteresis_ppm: int
    cooldown_ms: int
    order: int
    reference: int
    be_order: int
    backfill: int
    scope: int
    drops: bool
    rescues: bool
    displaces: bool
    outlast_ppm: int
    is_explicit: bool
    admits: bool
    keeps: bool
    is_best: bool
    lends: bool
    pools: bool
    def __init__(self) -> None: ...

def sensascale(rules: SensaRules) -> Decider: ...

class SlurmFormula:
    def __init__(
        self,
        age: int,
        fairshare: int,
        size: int,
        partition: int,
        qos: int,
        tres: int,
        max_age_ms: int,
        favors_small: int,
        minute_decay: int,
        period_ms: int,
    ) -> None: ...

class SlurmPreempts:
    none: SlurmPreempts
    partition: SlurmPreempts
    qos: SlurmPreempts

class SlurmRules:
    formula: SlurmFormula
    depth: int
    interval_ms: int
    rest_ms: int
    fills: bool
    fill_ms: int
    window_ms: int
    resolution_ms: int
    test_max: int
    user_max: int
    start_max: int
    preempts: SlurmPreempts
    exempt_ms: int

def slurm(rules: SlurmRules) -> Decider: ...

class JobHandles:
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[JobView]: ...
    def __getitem__(self, place: int) -> JobView: ...
    def column(self, name: str) -> Ints: ...
    def find(self, job_id: int) -> JobView | None: ...

def planner(make: Callable[[tuple[int, ...]], Plan]) -> Planner: ...
def decider(
    policy: str, facts: Sequence[JobFacts], decide: Callable[..., Any], review: Callable[..., int | None]
) -> Decider: ...

class SynergyOrder:
    fifo: ClassVar[SynergyOrder]
    srtf: ClassVar[SynergyOrder]
    las: ClassVar[SynergyOrder]

def synergy(order: SynergyOrder, gives: bool, round_ms: int) -> Decider: ...

class ChronusObjective:
    adaptive: ClassVar[ChronusObjective]
    maximize: ClassVar[ChronusObjective]
    minimize: ClassVar[ChronusObjective]

def chronus(
    lease_ms: int,
    objective: ChronusObjective,
    rounds_up: bool,
    safety_ppm: int,
    shortest_first: bool,
    fill_ms: int,
) -> Decider: ...
def add_hooks(plan: Plan, policy: str, facts: Sequence[JobFacts], told: PolicyPlan) -> None: ...

class Workload:
    @property
    def widths(self) -> list[int]: ...
    def add_claims(
        self,
        claims: Sequence[tuple[int, int, int, int, int, int, int, int]],
        preempts: Sequence[Sequence[int]],
        shares: Mapping[int, int],
    ) -> None: ...
    def add_wants(
        self,
        service: Shorts,
        services: Sequence[tuple[int, Sequence[int], Sequence[int]]],
        known_curve: Shorts,
        true_curve: Shorts,
        curves: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int], int]],
    ) -> None: ...

class Estimator: ...

class Engine:
    @property
    def now_ms(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def preemptions_max(self) -> int | None: ...
    def limit_preemptions(self, most: int | None) -> None: ...
    @property
    def held_gpu_ms(self) -> int: ...
    @property
    def held_before_gpu_ms(self) -> int: ...
    @property
    def knobs(self) -> int: ...
    @property
    def active_count(self) -> int: ...
    @property
    def first_active(self) -> int: ...
    @property
    def idles(self) -> bool: ...
    def run(self, until_ms: int | None) -> None: ...
    def update(self, time_ms: int, plan: Plan) -> None: ...
    def save(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...
    def active(self, job_id: int) -> JobTuple | None: ...
    def log_since(
        self, event: int, share: int, given: int
    ) -> tuple[Ints, Shorts, Shorts, Shorts, Shorts, Shorts, Shorts, Ints, Shorts, Ints]: ...
    def outcomes(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Flags, Ints, Ints, Ints]: ...
    def check_indexes(self) -> None: ...

class Situation:
    def __init__(self, start: Engine, until_ms: int | None) -> None: ...
    def stays(self, plans: Sequence[Plan], threads: int) -> list[Stay]: ...

def workload(
    submit_ms: Ints,
    duration_ms: Ints,
    spread_ppm: Ints,
    skew_ppm: Ints,
    gpus: Shorts,
    member_gpus: Shorts,
    home: Shorts,
) -> Workload: ...
def oracle(told_ms: Ints) -> Estimator: ...
def learner(estimator: PythonEstimator, facts: Sequence[JobFacts]) -> Estimator: ...
def engine(
    workload: Workload,
    vcs: Sequence[tuple[int, int, int, int, int]],
    policy: str,
    plan: Plan,
    placement: str,
    restart_ms: Sequence[int],
    cold_start_ms: int,
    adjust_ms: int,
    has_estimates: bool,
    estimator: Estimator | None,
    completed_gpu_ms: Sequence[int],
    decider: Decider | None,
    pairing: Pairing | None,
    pace: Pace | None,
    timeline: bool,
) -> Engine: ...
