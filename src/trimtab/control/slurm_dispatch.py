"""Our own policies start the jobs of a Slurm cluster: look, decide, act, and look again.

All that is known of a job is in Slurm: where it stands, and in its comment what was told and noted of it. So
a dispatcher that is killed at any command has lost nothing: the next one looks, and goes on from there. Jobs
are released and requeued by commands that do nothing when they come twice or too late.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISREG

from trimtab.control.adapter import Unreachable
from trimtab.control.dispatch_settings import DispatchSettings, read_dispatch
from trimtab.control.slurm_acts import Act, acts_of, take_back
from trimtab.control.slurm_commands import Commands
from trimtab.control.slurm_desk import FILE_KEY, Desk, Said, Write, next_version
from trimtab.control.slurm_queue import Mine, Queue, read_queue
from trimtab.control.slurm_view import Scene, Taking, scenes_of, too_wide
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Decision
from trimtab.simulate.decisions import answerable, check_review
from trimtab.world import epoch_ms

_PROGRESS_MAX = 32  # characters


@dataclass
class Step:
    """What one look led to.

    Attributes:
        acts: What was done, or would be. remarks: what could not be, and why.
    """

    acts: list[Act] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Dispatcher:
    """A policy at work on a Slurm cluster.

    Args:
        settings: As read from the file, which is read again for its knobs.
        tell: Is given what is done and what is in the way, a line each.
        policy: The one asked for in place of the file's.
    """

    def __init__(
        self,
        commands: Commands,
        settings: DispatchSettings,
        tell: Callable[[str], None],
        policy: str | None = None,
    ) -> None:
        self._commands, self._settings, self._tell, self._asked = commands, settings, tell, policy
        self._policy = find_policy(settings.policy)
        self._desk = Desk(settings.desk)
        self._knobs: tuple[Knobs, int] = settings.knobs, 0
        self._reviews_ms: dict[str, int] = {}
        self._passed_ms: int | None = None
        self._said: frozenset[str] = frozenset()
        self._refused = ""

    # ---- the loop ----------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Decide again and again until stopped; while Slurm does not answer, wait."""
        with self._desk.alone():
            down = ""
            while not stop.is_set():
                try:
                    self.step()
                    if down:
                        self._tell("Slurm answers again")
                    down = ""
                except Unreachable as problem:
                    if not down:
                        self._tell(f"{problem} Waiting until Slurm answers.")
                    down = str(problem)
                stop.wait(self._settings.interval_ms / 1000)

    def once(self, is_dry: bool) -> Step:
        """Decide once, and do it unless it is dry.

        Raises:
            Unreachable: If Slurm does not answer.
        """
        if is_dry:
            return self._plan(self._read_knobs(is_dry=True))
        with self._desk.alone():
            return self.step()

    def step(self) -> Step:
        """Look, decide and act once; return what was done.

        Raises:
            Unreachable: If Slurm does not answer, or this folder cannot be used; what was done is done.
        """
        self._knobs = self._read_knobs(is_dry=False)
        found = self._plan(self._knobs, remember=True)
        done = Step(remarks=found.remarks)
        failed: set[str] = set()
        for act in found.acts:
            if not act.gives and failed & set(act.nodes):
                continue  # who was to make room there did not
            if (problem := self._do(act)) is None:
                self._tell(act.says)
                done.acts.append(act)
            else:
                failed.update(act.nodes if act.gives else ())
                done.remarks.append(f"job {act.label}: {problem}; it is looked at again")
        self._remark(done.remarks)
        return done

    def _do(self, act: Act) -> str | None:
        """Do something; return what scontrol says against it."""
        for words in act.commands:
            answer = self._commands.run("scontrol", *words)
            if answer.code != 0:
                return f"scontrol {words[0]}: {answer.complaint}"
        return None

    def _remark(self, remarks: Sequence[str]) -> None:
        """Say what is in the way, once for as long as it is."""
        for text in dict.fromkeys(remarks):
            if text not in self._said:
                self._tell(text)
        self._said = frozenset(remarks)

    # ---- knobs -------------------------------------------------------------------------------------

    def _read_knobs(self, is_dry: bool) -> tuple[Knobs, int]:
        """Return the setting to decide with and its version: what was written last that is legal.

        What the settings file asks for is written when it asks for something else than before.
        """
        asked, said, writes = self._file_knobs(), self._desk.said(), self._desk.writes()
        is_new = said is None or said.policy != self._settings.policy or said.asked != asked.text()
        if is_dry:
            return (asked, 0) if is_new or not writes else self._legal(writes[-1])
        if is_new:
            with self._desk.writing() as writes:
                version = next_version(writes)
                writes.append(Write(f"{FILE_KEY}-{version}", version, asked.text()))
        knobs, version = self._legal(writes[-1])
        self._desk.say(
            Said(
                self._settings.policy,
                knobs.text(),
                version,
                asked.text(),
                epoch_ms(),
                self._settings.interval_ms,
            )
        )
        if (knobs, version) != self._knobs:
            self._tell(f"{self._settings.policy} goes by {knobs.text() or 'no knobs'}")
        return knobs, version

    def _file_knobs(self) -> Knobs:
        refused = ""
        try:
            self._settings = read_again(self._settings, self._asked)
        except ConfigError as problem:
            refused = str(problem)
        if refused and refused != self._refused:
            self._tell(f"{refused} The knobs from before stay.")
        self._refused = refused
        return self._settings.knobs

    def _legal(self, write: Write) -> tuple[Knobs, int]:
        try:
            return self._policy.space.parse_text(write.knobs), write.version
        except ConfigError as problem:
            self._tell(f"change {write.key}: {problem} The knobs from before stay.")
            return self._knobs

    # ---- deciding ----------------------------------------------------------------------------------

    def _plan(self, knobs: tuple[Knobs, int], remember: bool = False) -> Step:
        queue = read_queue(self._commands)
        taking = Taking(
            self._settings.policy,
            knobs[0],
            self._settings.placement,
            self._settings.curves,
            read_progress(self._settings.progress, [job.label for job in queue.mine]),
        )
        found = Step(remarks=[f"job {label}: {why}; it is left alone" for label, why in queue.odd.items()])
        found.remarks += [
            f"job {job.label}: has {job.row.gpus:,} GPUs, more than there are: it waits"
            for job in too_wide(queue)
        ]
        late = {job.label: why for job in queue.mine if (why := self._late(queue, job))}
        found.acts += [take_back(job, late[job.label]) for job in queue.mine if job.label in late]
        if not self._is_on_tick(queue.now_ms, taking.plan.quantum_ms):
            return found
        before = self._desk.memories()
        memories = dict(before)
        for scene in scenes_of(_without(queue, late), taking, before, self._reviews_ms):
            acts = acts_of(queue, scene, self._decide(scene, knobs[0]), taking)
            found.acts += acts.acts
            found.remarks += acts.remarks
            if acts.memory is not None:
                memories[scene.view.vc.name] = acts.memory
        if remember and memories != before:
            self._desk.remember(memories)
        return found

    def _decide(self, scene: Scene, knobs: Knobs) -> list[Decision]:
        view = scene.view
        with answerable(self._policy, lambda: view.now_ms):
            decisions = list(self._policy.decide(view, knobs))
            review_ms = self._policy.next_review_ms(view, knobs)
        check_review(review_ms, view.now_ms, self._policy.name)
        if review_ms is None:
            self._reviews_ms.pop(view.vc.name, None)
        else:
            self._reviews_ms[view.vc.name] = review_ms
        return decisions

    def _late(self, queue: Queue, job: Mine) -> str | None:
        """Say why a job that was released does not start there, None if it still may."""
        if job.phase != "released":
            return None
        away = [name for name in job.pinned if name not in queue.machines or not queue.machines[name].serves]
        if away:
            return f"node {away[0]} takes no jobs now"
        since_ms = queue.now_ms - (job.row.eligible_ms or queue.now_ms)
        if since_ms <= self._settings.patience_ms:
            return None
        return f"Slurm has not started it in {since_ms // 1000:,} s on {','.join(job.pinned)}"

    def _is_on_tick(self, now_ms: int, quantum_ms: int) -> bool:
        """Whether a pass may happen: with a quantum, once in each of its lengths."""
        before_ms = self._passed_ms
        if quantum_ms and before_ms is not None and now_ms // quantum_ms <= before_ms // quantum_ms:
            return False
        self._passed_ms = now_ms
        return True


def read_again(settings: DispatchSettings, policy: str | None) -> DispatchSettings:
    """Return the same settings with the knobs that the file asks for now.

    Raises:
        ConfigError: If the file is not possible any more.
    """
    found = read_dispatch(settings.path, policy)
    if found.policy != settings.policy:
        raise ConfigError(f"{settings.path}: another policy needs a restart; nothing was changed.")
    return replace(settings, knobs=found.knobs)


def _without(queue: Queue, labels: dict[str, str]) -> Queue:
    """Return what is seen without jobs that are just held again: they are decided on at the next look."""
    mine = tuple(job for job in queue.mine if job.label not in labels)
    return replace(queue, mine=mine)


def read_progress(folder: Path | None, labels: Sequence[str]) -> dict[str, int]:
    """Return how much of their work jobs say is done, in ppm: a number, 0 to 1, in a file named by the job.

    What is no such file says nothing; a job writes where others may, so that nothing else is read there.
    """
    found: dict[str, int] = {}
    for label in labels if folder is not None else ():
        assert folder is not None
        try:
            file = os.open(folder / label, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            is_plain = S_ISREG(os.fstat(file).st_mode)
            text = os.read(file, _PROGRESS_MAX).decode(errors="replace").strip() if is_plain else ""
        finally:
            os.close(file)
        if re.fullmatch(r"0|1|[01]?\.\d{1,12}", text) and float(text) <= 1:
            found[label] = round(float(text) * FULL_SPEED_PPM)
    return found
