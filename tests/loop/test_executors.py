"""Costs are one thing wherever candidates are tried; what goes wrong on workers is one clear line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from joblib import delayed

from histories import CLUSTER, END_MS, WINDOW, WORLD, history
from trimtab.errors import ConfigError, TrialsLost
from trimtab.knobs import Knobs
from trimtab.objective import Measured, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate import executors
from trimtab.simulate import trials as module
from trimtab.simulate.executors import Workers, open_workers
from trimtab.simulate.trials import LocalTrials, Trials, WorkerTrials, open_trials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload

WAIT = find_objective("wait")

OWN = """from trimtab.policies.policy import QueuePolicy

class LastFirst(QueuePolicy):
    name = "last-first"
    def key(self, job, now_ms, knobs):
        return (-job.submit_ms,)
"""


def situation(policy: str = "tiresias") -> Situation:
    workload = Workload.of(history(1).window(WINDOW), WORLD.spread_ppm)
    return Situation.empty(workload, CLUSTER, policy, WORLD.environment(workload))


def settings() -> list[Knobs]:
    space = find_policy("tiresias").space
    return [space.parse({"num_queues": "2", "queue_thresholds": str(60 * 2**place)}) for place in range(11)]


def by_hand(one: Situation, candidates: list[Knobs]) -> list[Measured]:
    return [WAIT.of(one.stays(knobs)) for knobs in candidates]


@pytest.fixture(scope="module", params=["processes", "dask", "ray"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with open_workers(request.param, 2) as opened:
        yield opened


def on(workers: Workers, engine: str = "auto") -> Trials:
    return WorkerTrials(nullcontext(workers), engine)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_costs_are_the_same_on_every_executor(workers: Workers, engine: str) -> None:
    one, candidates = situation(), settings()
    expected = by_hand(one, candidates)
    assert len(set(expected)) > 5
    trials = on(workers, engine)
    for some in (candidates, candidates[::-1], candidates[3:4], []):
        assert trials.measure(one, some, WAIT) == by_hand(one, some)
    other = situation("srtf")
    knobs = [find_policy("srtf").space.defaults]
    assert trials.measure(other, knobs, WAIT) == by_hand(other, knobs)


def test_a_users_own_policy_goes_along_by_its_file(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named relative to here, run by its path; a file that is another one there is refused."""
    monkeypatch.chdir(tmp_path)
    path = Path(f"{workers.place.split()[-2]}.py")
    path.write_text(OWN)
    one = situation(f"{path}::LastFirst")
    knobs = [find_policy(one.policy).space.defaults]
    assert on(workers).measure(one, knobs, WAIT) == by_hand(one, knobs)
    path.write_text(OWN.replace("-job", "job"))
    with pytest.raises(TrialsLost, match=rf"{path} is missing there or is another one"):
        on(workers).measure(replace(one, until_ms=END_MS), knobs, WAIT)


def test_a_worker_with_another_version_is_refused(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__version__", "0.0.7")
    with pytest.raises(TrialsLost, match=r"runs trimtab \d.*, not 0\.0\.7: its answers may differ"):
        on(workers).measure(situation(), settings(), WAIT)


def test_a_refusal_on_a_worker_arrives_as_it_is(workers: Workers) -> None:
    one = situation("qssf")
    knobs = [find_policy("qssf").space.defaults]
    with pytest.raises(ConfigError) as here:
        LocalTrials("nonsense").measure(one, knobs, WAIT)
    with pytest.raises(ConfigError) as there:
        on(workers, "nonsense").measure(one, knobs, WAIT)
    assert str(there.value) == str(here.value)


def test_a_killed_worker_is_one_line_or_no_loss(workers: Workers, capfd: pytest.CaptureFixture[str]) -> None:
    """Dask starts another one; elsewhere the rest may have done the work before the loss is seen."""
    one, candidates = situation(), settings()
    expected = by_hand(one, candidates)
    assert on(workers).measure(one, candidates, WAIT) == expected
    victim = workers.parallel([delayed(os.getpid)()])[0]
    assert victim != os.getpid()
    os.kill(victim, signal.SIGKILL)
    with suppress(*(() if "Dask" in workers.place else (TrialsLost,))):
        assert on(workers).measure(one, candidates, WAIT) == expected
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("workers", ["processes", "ray"], indirect=True)
def test_a_worker_killed_at_work_is_one_line(
    workers: Workers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Dask gives up a task, not a worker: that is the next test."""
    path = tmp_path / "deadly.py"
    path.write_text(OWN.replace("return (-job.submit_ms,)", "__import__('os')._exit(1)"))
    one = situation(f"{path}::LastFirst")
    with pytest.raises(TrialsLost, match=f"^one of {workers.place} was killed .* --executor local.$"):
        on(workers).measure(one, [find_policy(one.policy).space.defaults], WAIT)
    assert capfd.readouterr() == ("", "")


def test_work_that_kills_every_worker_is_given_up(workers: Workers) -> None:
    with pytest.raises(workers.lost):
        workers.parallel([delayed(os._exit)(1)])


def test_two_local_dask_clusters_are_silent(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    with open_workers("dask", 1) as one, open_workers("dask", 1) as two:
        pids = [workers.parallel([delayed(os.getpid)()])[0] for workers in (one, two)]
    assert len({*pids, os.getpid()}) == 3  # a single worker is one beside us, too
    assert capfd.readouterr() == ("", "")
    assert [str(one.message) for one in recwarn if one.category is UserWarning] == []


def test_a_dask_cluster_is_joined_and_its_end_is_one_line() -> None:
    from dask.distributed import LocalCluster

    one, candidates = situation(), settings()
    options = {"n_workers": 1, "threads_per_worker": 3, "processes": False, "protocol": "tcp"}
    with LocalCluster(**options, dashboard_address=":0", silence_logs=60) as cluster:
        for _ in range(2):  # it is left as it was found
            with open_trials("dask", 1, address=cluster.scheduler_address) as trials:
                assert trials.measure(one, candidates, WAIT) == by_hand(one, candidates)
        with open_trials("dask", 1, address=cluster.scheduler_address) as trials:
            cluster.close()
            with pytest.raises(TrialsLost, match="the Dask cluster at tcp://"):
                trials.measure(one, candidates, WAIT)


def test_a_cluster_without_trimtab_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for a package that nobody has, workers answer as if they did not have this one."""
    from dask.distributed import LocalCluster

    monkeypatch.setattr(executors, "version", lambda name: version("no-such-package"))
    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=60
        ) as cluster,
        pytest.raises(ConfigError, match=r"the Dask cluster at tcp://.* lacks trimtab: install it there"),
        open_trials("dask", 1, address=cluster.scheduler_address),
    ):
        pass


@pytest.mark.parametrize("executor", ["dask", "ray"])
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "must be HOST:PORT"),
        ("127.0.0.1:70000", "must be HOST:PORT"),
        ("http://127.0.0.1:80", "must be HOST:PORT"),
        ("127.0.0.1:1", "at 127.0.0.1:1 cannot be used: .*refused; nothing was run"),
    ],
)
def test_a_bad_address_is_one_line(executor: str, address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said), open_trials(executor, 1, address=address):
        pass


@pytest.mark.parametrize("executor", ["dask", "ray"])
def test_a_missing_package_names_its_extra(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, executor, None)
    with (
        pytest.raises(ConfigError, match=rf'pip install "trimtab\[{executor}\]"; nothing was run'),
        open_trials(executor, 1),
    ):
        pass
