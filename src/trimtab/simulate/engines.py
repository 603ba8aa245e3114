"""Which engine runs: the compiled core where it is built and the numbers fit, else the reference engine."""

from __future__ import annotations

import sys

from trimtab.cluster import Cluster
from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.policies.policy import Policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine, core_refusal, core_unwanted, twin_refusal
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import Workload

ENGINES = ("auto", "compiled", "reference")

Simulation = Engine | FastEngine

_said: set[str] = set()


def make_engine(
    kind: str,
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    knobs: Knobs,
    environment: Environment,
    *,
    timeline: bool = False,
) -> Simulation:
    """Return a simulation that has not run yet, on the engine asked for.

    Raises:
        UnknownName: If there is no such kind of engine.
        ConfigError: If the compiled one is asked for and cannot run this.
    """
    made = FastEngine if runs_compiled(kind, workload, environment, policy) else Engine
    return made(workload, cluster, policy, knobs, environment, timeline=timeline)


def runs_compiled(kind: str, workload: Workload, environment: Environment, policy: Policy) -> bool:
    """Whether the compiled core is to run this; with `auto`, say once why it is not.

    Raises:
        UnknownName: If there is no such kind of engine.
        ConfigError: If the compiled one is asked for and cannot run this.
    """
    if kind not in ENGINES:
        raise UnknownName("engine", kind, ENGINES)
    if kind == "reference":
        return False
    refusal = core_refusal() or twin_refusal(workload, environment, policy)
    if refusal is None:
        return True
    if kind == "compiled":
        raise ConfigError(f"engine compiled: {refusal}; use auto or reference; nothing was run.")
    # Who does without the core on purpose expects nothing else.
    if not core_unwanted() and refusal not in _said:
        _said.add(refusal)
        print(
            f"trimtab: {refusal}: the reference engine runs, with the same results but slower",
            file=sys.stderr,
        )
    return False


def engine_name(simulation: Simulation) -> str:
    """Return `compiled` or `reference`."""
    return "compiled" if isinstance(simulation, FastEngine) else "reference"
