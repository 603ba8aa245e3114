"""The adapter to Slurm beside a real one: its promises, changes by effect, and nothing bad gets through."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lab import BOLD, WEIGHTS, Lab, adapter_to, changed
from trimtab.control.adapter import Adapter, Change, Refused, Unreachable
from trimtab.control.slurm import SlurmAdapter
from trimtab.control.slurm_commands import Commands
from trimtab.control.slurm_file import Owned
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.testing import AdapterConformance
from trimtab.world import Seeds


@pytest.fixture(scope="module")
def busy(lab: Lab) -> Iterator[Lab]:
    """A lab with jobs of every kind: some run, one on uneven nodes, some wait, one has ended."""
    lab.clear()
    lab.submit(gpus=1, seconds=1)
    lab.submit("--array=1-3", gpus=2)
    lab.submit("-N2", gpus=9)
    lab.submit(gpus=8)
    lab.wait(lambda: lab.run("squeue", "-h", "-t", "R", "-o", "%i").count("\n") >= 5, "jobs to run")
    for size in (16, 32, 8):
        lab.submit(f"-N{size // 8}", "--gpus-per-node=8", gpus=0)
    lab.submit("--hold", gpus=4)
    yield lab
    lab.clear()


class TestPromises(AdapterConformance):
    """A new adapter for each test, as after a restart."""

    policy = WEIGHTS

    @pytest.fixture(autouse=True)
    def _lab(self, busy: Lab) -> None:
        self.lab = busy

    def make(self) -> Adapter:
        return adapter_to(self.lab, self.policy)

    def unreachable(self) -> Adapter:
        return SlurmAdapter(Commands(self.lab.conf, folder=Path("/nowhere")), self.policy, self.lab.owned)

    def pass_time(self, adapter: Adapter) -> None:
        time.sleep(0.2)


class TestPromisesAsSlurm(TestPromises):
    """With the knobs of the model of Slurm."""

    policy = "slurm"


# ---- what it shows ---------------------------------------------------------------------------------


def test_jobs_hold_the_gpus_that_slurm_gave_them(busy: Lab) -> None:
    adapter = adapter_to(busy)
    state, cluster = adapter.state(), adapter.identity().cluster
    assert (cluster.nodes, cluster.gpus) == (4, 32)
    held = {label: job.nodes for label, job in zip(state.labels, state.snapshot.jobs, strict=True)}
    shown = busy.run("squeue", "-h", "-r", "-t", "R", "-o", "%i").split()
    assert {label for label, nodes in held.items() if nodes} == set(shown)
    uneven = next(job for job in state.snapshot.jobs if job.gpus == 9)
    told = busy.run("scontrol", "show", "job", "-d", uneven.facts.label)
    assert sorted(gpus for _, gpus in uneven.nodes) == sorted(
        int(part.split("(")[0]) for part in told.split(" GRES=gpu:a100:")[1:]
    )
    waiting = [job.gpus for job in state.snapshot.jobs if not job.nodes]
    assert 4 not in waiting  # it is held: nothing could start it
    assert all(job.estimate_ms == 600_000 for job in state.snapshot.jobs)


def test_a_job_is_told_from_its_submission_to_its_end(busy: Lab) -> None:
    adapter = adapter_to(busy)
    last = max(event.number for event in adapter.events(0, 1000))
    job = busy.submit("-J", "odd|name\nt0|x|RUNNING|", "-p", "urgent", gpus=1, seconds=2)
    found: list[str] = []

    def told() -> bool:
        time.sleep(0.5)
        found[:] = [event.kind for event in adapter.events(last, 1000) if event.label == job]
        return "finish" in found

    busy.wait(told, "a job's events")
    assert found == ["submit", "start", "finish"]
    ran = next(event for event in adapter.events(last, 1000) if event.label == job and event.kind == "finish")
    assert ran.ran_ms is not None
    assert 1000 <= ran.ran_ms <= 10_000


# ---- what it changes -------------------------------------------------------------------------------


def test_a_change_comes_into_force_when_waiting_jobs_feel_it(accounted_lab: Lab) -> None:
    """Weights are shown at once; priorities are made anew once a minute."""
    lab = accounted_lab
    lab.clear()
    lab.submit("-N4", "--gpus-per-node=8", gpus=0)
    lab.submit("-N4", "--gpus-per-node=8", gpus=0)
    lab.wait(lambda: len(lab.partition_factors()) == 1, "a job to wait")
    adapter = adapter_to(lab)
    before = adapter.in_force()
    weight = before.knobs["PriorityWeightPartition"]
    assert isinstance(weight, int)
    receipt = adapter.apply(changed(adapter, "felt", PriorityWeightPartition=weight * 3))
    assert f"PriorityWeightPartition = {weight * 3}" in lab.run("scontrol", "show", "config")
    stale = 0
    for _ in range(400):
        now, factors = adapter.in_force(), lab.partition_factors()
        if now.version == receipt.version:
            break
        stale += 1
        assert (now.knobs, now.version) == (before.knobs, before.version)
        time.sleep(0.2)
    assert stale
    assert factors == {weight * 3 // 10}


def test_without_accounting_new_jobs_alone_feel_new_weights(busy: Lab) -> None:
    adapter = adapter_to(busy)
    old = busy.partition_factors()
    weight = adapter.in_force().knobs["PriorityWeightPartition"]
    assert isinstance(weight, int)
    receipt = adapter.apply(changed(adapter, "new", PriorityWeightPartition=weight * 3))
    assert adapter.in_force().version == receipt.version
    busy.submit("-N4", "--gpus-per-node=8", gpus=0)
    assert busy.partition_factors() == {*old, weight * 3 // 10}


def test_what_others_set_in_the_file_stays(lab: Lab) -> None:
    adapter = adapter_to(lab)
    text = lab.owned.read_text()
    adapter.apply(changed(adapter, "kept", bf_interval=7))
    now = lab.owned.read_text()
    assert "SchedulerType=sched/backfill" in now
    assert "PriorityCalcPeriod=1" in now
    assert "sched_min_interval=100000" in now
    assert now.count("SchedulerParameters") == 1
    for line in text.splitlines():
        if line.startswith(("PriorityType", "PriorityDecayHalfLife", "PriorityWeightQOS")):
            assert line in now.splitlines()
    assert "bf_interval=7" in lab.run("scontrol", "show", "config")
    assert lab.owned.stat().st_mode & 0o777 == 0o644


def test_a_restarted_process_finds_what_it_had_written(lab: Lab) -> None:
    first = adapter_to(lab)
    change = changed(first, "restart", bf_interval=11)
    receipt = first.apply(change)
    second = adapter_to(lab)
    assert (second.in_force().knobs, second.in_force().version) == (change.knobs, receipt.version)
    assert second.apply(change) == receipt


def test_killed_between_writing_and_reconfiguring_the_change_is_made_by_asking_again(lab: Lab) -> None:
    first = adapter_to(lab)
    before = first.in_force()
    change = changed(first, "half", bf_interval=13 if before.knobs["bf_interval"] != 13 else 14)
    first._take_up = lambda change: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.apply(change)
    second = adapter_to(lab)
    assert (second.in_force().knobs, second.in_force().version) == (before.knobs, before.version)
    receipt = second.apply(change)
    assert (second.in_force().knobs, second.in_force().version) == (change.knobs, receipt.version)


# ---- what it refuses -------------------------------------------------------------------------------

_NAMES = ("PriorityWeightAge", "PriorityMaxAge", "PriorityFavorSmall", "PriorityCalcPeriod", "SchedulerType")
_PARTS = ("bf_window", "bf_interval", "bf_resolution", "bf_max_job_test", "default_queue_depth")


def _bad_lines(seed: int) -> str:
    """Return lines of which at least one is wrong: in key, value, list or form."""
    dice = Seeds(seed).stream("bad")

    def pick(some: tuple[str, ...]) -> str:
        return some[int(dice.integers(len(some)))]

    number = int(dice.integers(1, 10**6))
    kinds = (
        f"{pick(_NAMES[:2])}=-{number}",
        f"PriorityWeight{pick(('Agee', 'Luck', 'GPU'))}={number}",
        f"PriorityMaxAge={pick(('soon', '1-2-3', '99:99:99:99', ''))}",
        f"PriorityFavorSmall={pick(('maybe', '2', ''))}",
        f"SchedulerParameters={pick(_PARTS)}={number % 100 + 1}, {pick(_PARTS)}=5",
        f"SchedulerParameters={pick(_PARTS)}={pick(('abc', '-5', '0', '99999999999', '1.5', ''))}",
        f"SchedulerParameters=bf_frobnicate={number}",
        f"PriorityWeightAge={number}\\",
        f"PriorityWeightAge={number}\x00",
        "Include /nowhere/at/all.conf",
        f"PriorityWeightAge={pick(('1e9', '0x10', 'NaN', 'inf', '４２'))}",
        f"PriorityWeightAge {number}",
        "=".join([f"Key{number}"] * 3),
        f"PriorityWeightAge={'9' * (number % 60 + 12)}",
        "SchedulerParameters=" + ",".join([f"bf_window={number}"] * 300),
        f"NodeName=g1 CPUs=-{number}",
    )
    return kinds[int(dice.integers(len(kinds)))]


def test_200_bad_files_never_reach_the_live_one(lab: Lab) -> None:
    owned, commands = Owned(lab.conf, lab.owned), Commands(lab.conf)
    before, controller = lab.owned.read_bytes(), lab.controller()
    assert controller is not None
    for seed in range(200):
        line = _bad_lines(seed)
        with pytest.raises(Refused) as refusal:
            owned.refuse(f"{before.decode()}{line}\n", commands)
        assert "\n" not in str(refusal.value), line
        assert lab.owned.read_bytes() == before
    assert lab.controller() == controller
    began = time.monotonic()
    assert lab.answers()
    assert time.monotonic() - began < 5
    owned.refuse(before.decode(), commands)  # a good one still passes


def test_200_bad_settings_never_reach_the_live_file(lab: Lab) -> None:
    """Of a policy whose bounds are too wide: the catalogue is the last guard."""
    adapter = adapter_to(lab, BOLD)
    before, controller, now = lab.owned.read_bytes(), lab.controller(), adapter.in_force()
    names = [knob.name for knob in find_policy(BOLD).space.knobs if knob.kind == "int"]
    for seed in range(200):
        dice = Seeds(seed).stream("bold")
        name = names[int(dice.integers(len(names)))]
        value = int(
            dice.choice([-1, -(10**9), 10**12, 10**9 + int(dice.integers(10**6)), -int(dice.integers(1, 99))])
        )
        with pytest.raises(Refused, match=name):
            adapter.apply(Change(f"bold-{seed}", Knobs({**now.knobs, name: value}), now.version))
    assert (lab.owned.read_bytes(), lab.controller()) == (before, controller)
    assert lab.answers()


def test_a_file_that_is_not_included_is_refused_at_once(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no line `Include"):
        SlurmAdapter(Commands(lab.conf), WEIGHTS, tmp_path / "other.conf")


def test_who_only_watches_writes_nothing(lab: Lab) -> None:
    adapter = SlurmAdapter(Commands(lab.conf), WEIGHTS)
    before = lab.owned.read_bytes()
    assert not adapter.identity().writes
    with pytest.raises(Refused, match="only watched"):
        adapter.apply(changed(adapter, "watch", bf_interval=9))
    assert lab.owned.read_bytes() == before


def test_a_policy_of_other_knobs_is_refused(lab: Lab) -> None:
    with pytest.raises(ConfigError, match="is no setting of Slurm's"):
        adapter_to(lab, "tiresias")


def test_slurm_is_not_asked_for_what_it_cannot_tell(lab: Lab) -> None:
    with pytest.raises(Unreachable, match="cannot be run"):
        SlurmAdapter(Commands(lab.conf, folder=Path("/nowhere")), WEIGHTS, lab.owned).state()


# ---- what happens to jobs and nodes; these begin with an empty cluster ----------------------------------


def test_a_requeued_job_is_preempted_and_keeps_its_first_submission(lab: Lab) -> None:
    lab.clear()
    adapter = adapter_to(lab)
    job = lab.submit(gpus=8)
    lab.wait(lambda: adapter.state().snapshot.jobs and adapter.state().snapshot.jobs[0].nodes, "a run")
    before = adapter.state().snapshot.jobs[0].submit_ms
    last = max(event.number for event in adapter.events(0, 1000))
    time.sleep(2)
    lab.run("scontrol", "requeue", job)
    lab.wait(lambda: "preempt" in [event.kind for event in adapter.events(last, 1000)], "a preemption")
    found = adapter.state().snapshot.jobs[0]
    assert (found.submit_ms, found.preemptions, found.nodes) == (before, 1, ())
    assert found.held_ms >= 1000


def test_a_drained_node_is_no_capacity_once_its_jobs_are_gone(lab: Lab) -> None:
    lab.clear()
    adapter = adapter_to(lab)
    job = lab.submit("-w", "g2", gpus=8)
    lab.wait(lambda: adapter.state().labels == (job,) and adapter.state().snapshot.jobs[0].nodes, "a run")
    lab.run("scontrol", "update", "nodename=g2", "state=drain", "reason=test")
    time.sleep(1.1)
    assert adapter.identity().cluster.nodes == 4
    lab.run("scancel", job)
    lab.wait(lambda: adapter.identity().cluster.nodes == 3, "the node to be counted out")
    lab.run("scontrol", "update", "nodename=g2", "state=resume")
    lab.wait(lambda: adapter.identity().cluster.nodes == 4, "the node to be back")
