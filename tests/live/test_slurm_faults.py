"""What goes wrong beside a real Slurm: its controller dies, others touch the file, commands misbehave."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lab import WEIGHTS, Lab, adapter_to, changed
from trimtab.control.adapter import Change, Refused, Unreachable
from trimtab.control.slurm import SlurmAdapter
from trimtab.control.slurm_commands import Commands
from trimtab.knobs import Knobs


@pytest.fixture(autouse=True)
def _whole(lab: Lab) -> Iterator[None]:
    """Leave each test a lab that works, with the file as it was."""
    text = lab.owned.read_text()
    yield
    lab.owned.write_text(text)
    lab.start()
    lab.run("scontrol", "reconfigure")


def other(adapter: SlurmAdapter, key: str) -> Change:
    now = adapter.in_force()
    return changed(adapter, key, bf_window=1441 if now.knobs["bf_window"] != 1441 else 1442)


# ---- the controller --------------------------------------------------------------------------------


def test_killed_in_mid_apply_the_old_file_comes_back_and_asking_again_makes_the_change(lab: Lab) -> None:
    adapter = adapter_to(lab)
    before, change = adapter.in_force(), other(adapter, "killed")
    file = lab.owned.read_bytes()
    replace = SlurmAdapter._take_up

    def dying(self: SlurmAdapter, change: Change) -> None:
        lab.kill_controller()
        replace(self, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlurmAdapter, "_take_up", dying)
        with pytest.raises(Unreachable, match="went away"):
            adapter.apply(change)
    assert lab.owned.read_bytes() == file
    lab.start()
    assert adapter.in_force().knobs == before.knobs
    again = Change(change.key, change.knobs, adapter.in_force().version)
    receipt = adapter.apply(again)
    assert (adapter.in_force().knobs, adapter.in_force().version) == (change.knobs, receipt.version)


def test_restarted_after_a_change_it_goes_by_the_change(lab: Lab) -> None:
    adapter = adapter_to(lab)
    change = other(adapter, "restarted")
    receipt = adapter.apply(change)
    lab.kill_controller()
    lab.start()
    assert (adapter.in_force().knobs, adapter.in_force().version) == (change.knobs, receipt.version)


def test_while_it_is_down_nothing_is_known_and_nothing_is_written(lab: Lab) -> None:
    adapter = adapter_to(lab)
    change, file = other(adapter, "down"), lab.owned.read_bytes()
    lab.kill_controller()
    time.sleep(1.1)  # a look serves for a second
    for call in (adapter.identity, adapter.now_ms, adapter.in_force, adapter.state):
        with pytest.raises(Unreachable):
            call()
    with pytest.raises(Unreachable):
        adapter.events(0, 1)
    with pytest.raises(Unreachable):
        adapter.apply(change)
    assert lab.owned.read_bytes() == file


# ---- the file --------------------------------------------------------------------------------------


def test_an_edit_that_nobody_took_up_is_not_written_over(lab: Lab) -> None:
    adapter = adapter_to(lab)
    before, change = adapter.in_force(), other(adapter, "edit")
    adapter.apply(change)
    now = adapter.in_force()
    edited = lab.owned.read_text().replace("PriorityWeightJobSize=", "PriorityWeightJobSize=1")
    lab.owned.write_text(edited)
    assert (adapter.in_force().knobs, adapter.in_force().version) == (now.knobs, now.version)
    with pytest.raises(Refused, match="somebody edits it"):
        adapter.apply(Change("over-the-edit", before.knobs, now.version))
    assert lab.owned.read_text() == edited
    lab.run("scontrol", "reconfigure")
    theirs = adapter.in_force()
    assert theirs.version > now.version
    assert theirs.knobs["PriorityWeightJobSize"] == int(f"1{now.knobs['PriorityWeightJobSize']}")
    with pytest.raises(Refused, match="was written last"):
        adapter.apply(Change("decided-before", before.knobs, now.version))
    receipt = adapter.apply(Change("decided-after", before.knobs, theirs.version))
    assert (adapter.in_force().knobs, adapter.in_force().version) == (before.knobs, receipt.version)


def test_a_file_that_is_gone_is_told_at_once_and_an_empty_one_will_do(lab: Lab) -> None:
    adapter = adapter_to(lab)
    text = lab.owned.read_text()
    lab.owned.unlink()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"is gone.*an empty file will do"):
        adapter.in_force()
    assert time.monotonic() - began < 2
    assert not lab.owned.exists()
    lab.owned.write_text("")
    assert adapter.in_force().knobs["bf_interval"]
    assert lab.answers()
    lab.owned.write_text(text)


def test_a_value_that_the_policy_does_not_know_is_said(lab: Lab) -> None:
    adapter = adapter_to(lab)
    line = re.compile(r"^(SchedulerParameters=.*\bbf_interval=)\d+", re.MULTILINE)
    lab.owned.write_text(line.sub(r"\g<1>9990", lab.owned.read_text()))
    lab.run("scontrol", "reconfigure")
    with pytest.raises(
        Unreachable, match=r"bf_interval = 999\d* is in force: the policy knows only 1 \.\. 600"
    ):
        adapter.in_force()


def test_what_does_not_come_into_force_is_taken_back(lab: Lab) -> None:
    """Another file sets the same key later on: what is written does not count."""
    conf = lab.conf.read_text()
    adapter = adapter_to(lab)
    change, file = other(adapter, "overruled"), lab.owned.read_bytes()
    try:
        lab.conf.write_text(f"{conf}\nSchedulerParameters=bf_window=77\n")
        assert not adapter.identity().writes
        with pytest.raises(Refused, match="sets schedulerparameters"):
            adapter.apply(change)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlurmAdapter, "_why_not", lambda self, config: None)
            patch.setattr("trimtab.control.slurm_file.Owned.edited", lambda self, values: [])
            lab.run("scontrol", "reconfigure")
            now = adapter.in_force()
            with pytest.raises(Refused, match="not what was written"):
                adapter.apply(Change("overruled-2", Knobs({**now.knobs, "bf_window": 78}), now.version))
        assert lab.owned.read_bytes() == file
    finally:
        lab.conf.write_text(conf)


# ---- commands --------------------------------------------------------------------------------------


def _commands(folder: Path, lab: Lab, deadline_s: float = 20, **scripts: str) -> Commands:
    """Return Slurm's commands of which some are scripts; `$REAL` is the command that a script stands for."""
    for name in ("scontrol", "squeue", "sinfo", "sprio"):
        real = shutil.which(name)
        path = folder / name
        script = scripts.get(name, 'exec $REAL "$@"')
        path.write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
        path.chmod(0o755)
    return Commands(lab.conf, folder, deadline_s)


@pytest.mark.parametrize("name", ["scontrol", "squeue", "sinfo"])
def test_a_command_that_hangs_is_killed_with_its_children(lab: Lab, tmp_path: Path, name: str) -> None:
    commands = _commands(tmp_path, lab, 1.0, **{name: f"sleep 1000 & echo $! > {tmp_path}/child; wait"})
    began = time.monotonic()
    with pytest.raises(Unreachable, match=f"{name}: no answer in 1 s"):
        SlurmAdapter(commands, WEIGHTS, lab.owned).state()
    assert time.monotonic() - began < 8
    child = Path(f"/proc/{int((tmp_path / 'child').read_text())}/stat")
    lab.wait(lambda: not child.exists() or ") Z" in child.read_text(), "its child to be gone", 5)


@pytest.mark.parametrize(
    "script",
    [
        'echo "warning: this cluster is in maintenance"; exec $REAL "$@"',
        'echo "error: something odd" >&2; exec $REAL "$@"',
        'echo; echo " | | "; $REAL "$@"; echo "bye"',
    ],
)
def test_a_command_that_prints_more_is_understood(lab: Lab, tmp_path: Path, script: str) -> None:
    commands = _commands(tmp_path, lab, scontrol=script, squeue=script, sinfo=script, sprio=script)
    adapter = SlurmAdapter(commands, WEIGHTS, lab.owned)
    assert adapter.state().snapshot.knobs == adapter_to(lab).in_force().knobs
    assert adapter.identity().cluster.gpus == 32
    receipt = adapter.apply(other(adapter, f"more-{len(script)}"))
    assert adapter.in_force().version == receipt.version


_ODD = (
    "exit 0",
    "echo",
    "echo '{}'",
    "head -c 100000 /dev/zero",
    "echo Usage: something else; exit 0",
    "exec $REAL --help",
    'exec $REAL "$@" | cut -c1-20',
    "$REAL \"$@\" | sed 's/|/ /g; s/=/ /g'",
    'echo "slurm_load: Unexpected message received" >&2; exit 1',
    "kill -9 $$",
)


@pytest.mark.parametrize("name", ["scontrol", "squeue", "sinfo"])
def test_answers_that_say_nothing_or_are_of_another_kind_count_as_none(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    file = lab.owned.read_bytes()
    for script in _ODD:
        adapter = SlurmAdapter(_commands(tmp_path, lab, **{name: script}), WEIGHTS, lab.owned)
        with pytest.raises(Unreachable) as said:
            adapter.state()
        assert "\n" not in str(said.value), script
        if name == "scontrol":
            with pytest.raises(Unreachable):
                adapter.apply(Change("odd", Knobs({}), 1))
    assert lab.owned.read_bytes() == file


def test_a_slurm_of_an_unknown_release_is_refused(lab: Lab, tmp_path: Path) -> None:
    script = "$REAL \"$@\" | sed 's/^SLURM_VERSION .*/SLURM_VERSION = 31.05.1/'"
    with pytest.raises(Exception, match=r"Slurm 31\.05\.1: its settings are not known"):
        SlurmAdapter(_commands(tmp_path, lab, scontrol=script), WEIGHTS, lab.owned).identity()


def test_a_reconfiguration_that_hangs_leaves_the_old_file(lab: Lab, tmp_path: Path) -> None:
    script = 'case "$*" in reconfigure) sleep 1000;; *) exec $REAL "$@";; esac'
    adapter = SlurmAdapter(_commands(tmp_path, lab, 3.0, scontrol=script), WEIGHTS, lab.owned)
    change, file = other(adapter, "hang"), lab.owned.read_bytes()
    with pytest.raises(Unreachable, match="no answer in 3 s"):
        adapter.apply(change)
    assert lab.owned.read_bytes() == file
    assert adapter_to(lab).in_force().knobs != change.knobs


def test_many_calls_are_few_looks(lab: Lab, tmp_path: Path) -> None:
    count = f'echo x >> {tmp_path}/count; exec $REAL "$@"'
    adapter = SlurmAdapter(_commands(tmp_path, lab, squeue=count), WEIGHTS, lab.owned)
    adapter.events(0, 1)
    began = time.monotonic()
    for _ in range(200):
        adapter.events(0, 100)
    looks = (tmp_path / "count").read_text().count("x")
    assert looks <= 2 + (time.monotonic() - began)


def test_two_threads_do_not_mix_their_answers(lab: Lab) -> None:
    """A status page may ask while the loop does: each command is a process of its own."""
    commands, found = Commands(lab.conf), []
    threads = [
        threading.Thread(target=lambda: found.append(commands.ask("scontrol", "ping"))) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(" is UP" in text for text in found)
    assert len(found) == 4
