"""The grid of `study deadlines`: which policies are simulated on which cases, and under which names.

A case is a load, a mix of service classes, a mix of models and a kind of node, with what schedulers know of
run times and curves exact. Beyond their first value, noise of run times and of curves are tried on the
centre alone (the first value of every other axis), and so is the thinner trace of policies that take too
long for more. Every case is run by every policy with every seed: a cell is one of these runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.cluster import Cluster, check_size, cores_of, memory_mib_of
from trimtab.errors import ConfigError, InputError
from trimtab.simulate.mix import check_mix
from trimtab.simulate.run import COST_S_MAX, CURVE_NOISE_MAX, NOISE_MAX
from trimtab.toml import toml_table
from trimtab.traces.deadlines import LOAD_MAX, LOAD_MIN, RULES, check_classes

AS_TOLD = "trace"  # classes and deadlines are those the trace has

_PLAIN = "pair_scope=off,adjust=false,free_pool=false"

# From plain order to everything, one idea a step, then who it is compared with; the first of the baselines is
# Chronus. From EDF to LST: safe backfill; latest starts; lost deadlines behind all others; who must start
# within the hour first of all; best effort by what is left of it.
LADDER: Mapping[str, str] = {
    "Chronus": "chronus",
    "Synergy": "synergy",
    "Synergy SRTF": "synergy:order=srtf,allocation=tune",
    "FIFO": "fifo:backfill=skip",
    "EDF": "edf:backfill=skip",
    "EDF, safe": f"sensascale:order=edf,hopeless=keep,be_order=fifo,{_PLAIN}",
    "LST, all kept": f"sensascale:urgent=0,hopeless=keep,be_order=fifo,{_PLAIN}",
    "LST, lost last": f"sensascale:urgent=0,be_order=fifo,{_PLAIN}",
    "LST, urgent": f"sensascale:be_order=fifo,{_PLAIN}",
    "LST": f"sensascale:{_PLAIN}",
    "+pairing": "sensascale:adjust=false,free_pool=false",
    "+free pool": "sensascale:adjust=false",
    "+adjustment": "sensascale",
    "+rescue": "sensascale:preempt=rescue",
    "+slack": "sensascale:preempt=slack,max_evictions=30",
    "+time left": "sensascale:order=srtf,urgent=15,preempt=slack,max_evictions=30",
    "sensascale-plus": "sensascale-plus",
}
THIN_LADDER: Mapping[str, str] = {"Chronus MILP": "chronus:selector=milp"}

# What a value of the file must be, by the default's type.
_KINDS: Mapping[type, str] = {
    float: "a number",
    int: "a whole number",
    str: "text in quotes",
    tuple: "a list in brackets",
    dict: "a table of names and texts",
}

# What numbers may be.
_RANGES: Mapping[str, tuple[float, float]] = {
    "loads": (LOAD_MIN, LOAD_MAX),
    "noises": (0, NOISE_MAX),
    "curve_noises": (0, CURVE_NOISE_MAX),
    "thin": (1e-6, 1),
    "thin_policies_share": (1e-6, 1),
    "seeds": (1, 1_000),
    "restart_cost_s": (0, COST_S_MAX),
    "adjust_cost_s": (0, COST_S_MAX),
}


class Case(NamedTuple):
    """One case; its policies and seeds are compared inside it."""

    load: float
    classes: str
    mix: str
    node: str
    noise: float  # of run-time estimates, as standard deviation of a factor
    curve_noise: float
    thin: float

    @property
    def name(self) -> str:
        """The case in a line."""
        parts = [f"load {self.load:g}", self.classes, f"mix {self.mix}", f"node {self.node}"]
        parts += [f"run times off by {self.noise:g}"] if self.noise else []
        parts += [f"curves off by {self.curve_noise:g}"] if self.curve_noise else []
        return ", ".join([*parts, f"thinned to {self.thin:g}"])


class Cell(NamedTuple):
    """One simulation of the grid."""

    case: Case
    seed: int
    policy: str  # its label


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What `study deadlines` runs.

    Attributes:
        policies: Label -> policy as the command line takes it. thin_policies: those run only where the
            trace is thinned to `thin_policies_share`, beside all others.
        baselines: Labels that the others are compared with.
        loads: GPU time asked for over GPU time there is, while jobs come; submissions are moved for it.
        classes: Weights of strict, soft and best-effort jobs, or names of them; `trace`: what the trace says.
        mixes: Which models jobs train, see `simulate.mix`.
        nodes: GPUs x CPU cores x GiB of a node. gpus: of the cluster.
        rule: How deadlines are drawn, see `traces.deadlines`.
        curves: Speed by CPU and memory, as of any command.
        noises: Of run-time estimates. curve_noises: of the curves schedulers know.
        thin: The share of jobs that is kept.
        seeds: How many; each draws jobs, deadlines, models and noise anew.
        restart_cost_s, adjust_cost_s: As in every comparison.
    """

    policies: Mapping[str, str] = field(default_factory=lambda: dict(LADDER))
    thin_policies: Mapping[str, str] = field(default_factory=lambda: dict(THIN_LADDER))
    baselines: tuple[str, ...] = ("Chronus", "Synergy")
    loads: tuple[float, ...] = (1.0, 0.7, 1.3)
    classes: tuple[str, ...] = ("SLO", "MIX1", "MIX2")
    mixes: tuple[str, ...] = ("20/70/10", "33/33/33", "50/0/50")
    nodes: tuple[str, ...] = ("8x24x500", "16x48x1000")
    gpus: int = 96
    rule: str = "chronus"
    noises: tuple[float, ...] = (0.0, 0.3, 0.6)
    curve_noises: tuple[float, ...] = (0.0, 0.2)
    thin: float = 0.1
    thin_policies_share: float = 0.03
    seeds: int = 5
    curves: str = "builtin"
    restart_cost_s: float | str = 62.0
    adjust_cost_s: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Grid:
        """Read a grid from TOML; what it does not name keeps its default.

        Raises:
            InputError: If the file cannot be read.
            ConfigError: If it names what is not known, or a value is of the wrong kind.
        """
        try:
            told = toml_table(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"grid {path}: {error}; nothing was run.") from None
        known = sorted(one.name for one in fields(cls))
        usual = cls()
        for name in told:
            if name not in known:
                raise ConfigError(f"grid {path}: {name} is none of {', '.join(known)}; nothing was run.")
        return replace(usual, **{name: _like(name, one, getattr(usual, name)) for name, one in told.items()})

    def check(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ConfigError: If an axis is empty or a value is out of range.
        """
        for name in ("policies", "loads", "classes", "mixes", "nodes", "noises", "curve_noises"):
            if not getattr(self, name):
                raise ConfigError(f"grid: {name} is empty; nothing was run.")
        for name in self.baselines:
            if name not in {**self.policies, **self.thin_policies}:
                raise ConfigError(f"grid: baseline {name!r} is none of the policies; nothing was run.")
        if both := self.policies.keys() & self.thin_policies.keys():
            raise ConfigError(f"grid: {min(both)!r} is in policies and in thin_policies; nothing was run.")
        for name, (low, high) in _RANGES.items():
            told = getattr(self, name)
            for number in told if isinstance(told, tuple) else (told,):
                if number != "chronus" and not low <= number <= high:
                    rule = f"it must be {low:.10g} .. {high:.10g}"
                    raise ConfigError(f"grid: {name} = {number:.10g}: {rule}; nothing was run.")
        if self.rule not in RULES:
            raise ConfigError(f"grid: rule {self.rule!r} is none of {', '.join(RULES)}; nothing was run.")
        for classes in self.classes:
            if classes != AS_TOLD:
                check_classes(classes)
        for mix in self.mixes:
            check_mix(mix)
        for node in self.nodes:
            cluster_of(node, self.gpus)

    def cases(self) -> list[Case]:
        """Return the cases, those of the grid first, then the variations of its centre."""
        exact = self.noises[0], self.curve_noises[0], self.thin
        found = [Case(*axes, *exact) for axes in product(self.loads, self.classes, self.mixes, self.nodes)]
        centre = found[0]
        found += [centre._replace(noise=noise) for noise in self.noises[1:]]
        found += [centre._replace(curve_noise=noise) for noise in self.curve_noises[1:]]
        if self.thin_policies:
            found.append(centre._replace(thin=self.thin_policies_share))
        return list(dict.fromkeys(found))

    def cells(self) -> Iterator[Cell]:
        """Yield every simulation, those on the same jobs one after the other."""
        for case in self.cases():
            some = self.thin_policies if case.thin == self.thin_policies_share else {}
            for seed, policy in product(range(self.seeds), (*self.policies, *some)):
                yield Cell(case, seed, policy)

    def jsonable(self) -> dict[str, Any]:
        """Return the grid as plain values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def digest(self) -> str:
        """Return the SHA-256 of the grid."""
        return hashlib.sha256(json.dumps(self.jsonable()).encode()).hexdigest()


def cluster_of(node: str, gpus: int) -> Cluster:
    """Return a pool of so many GPUs from `GPUs x cores x GiB` of a node.

    Raises:
        ConfigError: If the text is not that, or the GPUs make no whole number of nodes.
    """
    if not re.fullmatch("[1-9][0-9]{0,9}x[1-9][0-9]{0,9}x[1-9][0-9]{0,9}", node):
        raise ConfigError(
            f"grid: node {node!r:.60} is not GPUs x cores x GiB such as 8x24x500; nothing was run."
        )
    each, cores, memory_gib = map(int, node.split("x"))
    if gpus < each or gpus % each:
        raise ConfigError(
            f"grid: gpus = {gpus:,}: they make no whole number of nodes of {each:,}; nothing was run."
        )
    found = Cluster.pool(
        gpus // each,
        each,
        cores_of(f"grid: node {node}: cores", cores, each),
        memory_mib_of(f"grid: node {node}: memory", memory_gib, each),
    )
    check_size(found)
    return found


def estimates_of(noise: float) -> str:
    """Return the world's kind of estimates for a noise."""
    return f"noisy:{noise:g}" if noise else "oracle"


def _like(name: str, value: Any, default: Any) -> Any:
    """Return a value of the file as the grid keeps it.

    Raises:
        ConfigError: If it is of another kind than the default.
    """
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(_like(name, one, default[0]) for one in value)
    if isinstance(default, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if name == "restart_cost_s" and value == "chronus":
        return value
    alike = type(value) is type(default)
    if alike and (not isinstance(value, dict) or all(isinstance(one, str) for one in value.values())):
        return value
    raise ConfigError(f"grid: {name} = {value!r:.60}: it must be {_KINDS[type(default)]}; nothing was run.")
