"""One case on both engines: how the twin tests build, run and compare them."""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import strategies as some
from trimtab.errors import TrimtabError
from trimtab.simulate.engine import Engine
from trimtab.simulate.engines import Simulation
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.state import Snapshot
from trimtab.timeline import Event


def examples(number: int) -> settings:
    """Return settings that draw the same examples each time and keep no database.

    TRIMTAB_EXAMPLES multiplies their number, for a longer look.
    """
    return settings(
        max_examples=number * int(os.environ.get("TRIMTAB_EXAMPLES", "1")),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def compiled(case: some.Case) -> FastEngine:
    """Return a case's compiled engine that has not run, its updates entered."""
    engine = FastEngine(case.workload, case.cluster, case.policy, case.knobs, case.environment, timeline=True)
    for time_ms, knobs in case.updates:
        engine.update(time_ms, knobs)
    return engine


def events(engine: Simulation) -> list[Event]:
    assert engine.timeline is not None
    return engine.timeline.events


def ending(engine: Simulation, until_ms: int | None = None) -> str | None:
    """Run, and return what was refused, None if nothing was."""
    try:
        engine.run(until_ms)
    except TrimtabError as error:
        return repr(error)
    return None


def check_equal(one: Simulation, two: Simulation) -> None:
    assert events(one) == events(two)
    assert one.records == two.records
    assert one.events == two.events
    assert one.held_gpu_ms == two.held_gpu_ms
    assert one.now_ms == two.now_ms
    assert one.knobs == two.knobs


def state(snapshot: Snapshot) -> tuple[object, ...]:
    jobs = [[getattr(job, name) for name in job.__slots__] for job in snapshot.jobs]
    return jobs, replace(snapshot, jobs=(), estimator=None)


def check_either_goes_on(case: some.Case, reference: Engine, core: FastEngine) -> None:
    """Check that both stand at the same state, and that either engine goes on from either to the same end."""
    snapshots = reference.snapshot(), core.snapshot()
    assert state(snapshots[0]) == state(snapshots[1])
    found = []
    for snapshot in snapshots:
        for engine in (Engine, FastEngine):
            second = engine.resume(
                *(snapshot, case.workload, case.cluster, reference.policy, case.environment), timeline=True
            )
            found.append((ending(second), events(second), second.records, second.held_gpu_ms, second.events))
    assert all(one == found[0] for one in found)


def moments(case: some.Case) -> st.SearchStrategy[int]:
    """Return instants around which something may happen."""
    first_ms = case.workload.facts[0].submit_ms if len(case.workload) else 0
    times = [facts.submit_ms for facts in case.workload.facts] + [time_ms for time_ms, _ in case.updates]
    near = st.sampled_from([*times, first_ms]).flatmap(lambda at: st.sampled_from([at, at + 1, at + 60_000]))
    return st.one_of(near, st.integers(first_ms, first_ms + 600_000))
