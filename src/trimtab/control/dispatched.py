"""A dispatcher on a Slurm cluster as the loop sees it: its knobs through its folder, its jobs through Slurm.

A setting is in force when the dispatcher says that it decides with it. One that has said nothing for a while
does not run, and nothing is known of what it would do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from trimtab.control.adapter import (
    Change,
    Identity,
    InForce,
    JobEvent,
    Receipt,
    Refused,
    State,
    Unreachable,
    refuse_illegal,
    refuse_key,
)
from trimtab.control.dispatch_settings import DispatchSettings
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_desk import Desk, Write, next_version
from trimtab.control.slurm_jobs import Jobs, Row
from trimtab.control.slurm_queue import Mine, Queue, read_queue
from trimtab.control.slurm_view import Taking, state_of
from trimtab.errors import ConfigError
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.world import epoch_ms

# A look at jobs and nodes serves all calls within that time.
LOOK_MS = 1000

# After so many intervals, and so long, a dispatcher is taken to be gone.
_SILENT_LOOKS, _SILENT_MS = 3, 60_000


class Dispatched:
    """A policy of ours that drives a Slurm; see `Adapter`.

    CPU and memory are taken to make no difference: what models are faster with is not told.

    Args:
        settings: Of the dispatcher that runs.
    """

    def __init__(self, commands: Commands, settings: DispatchSettings) -> None:
        self._commands, self._settings = commands, settings
        self._space = find_policy(settings.policy).space
        self._desk = Desk(settings.desk)
        self._jobs = Jobs(amend=self._amend)
        self._mine: dict[str, Mine] = {}
        self._last: Queue | None = None

    def identity(self) -> Identity:
        config = read_config(self._commands)
        return Identity(
            name=config.get("clustername") or "slurm",
            policy=self._settings.policy,
            cluster=self._look().layout.cluster,
            writes=os.access(self._desk.folder, os.W_OK),
        )

    def now_ms(self) -> int:
        self._commands.check_up()
        return epoch_ms()

    def in_force(self) -> InForce:
        said = self._desk.said()
        if said is None or said.policy != self._settings.policy:
            raise Unreachable(
                f"{self._desk.folder}: no dispatcher with {self._settings.policy} says what it does."
            )
        silent_ms = epoch_ms() - said.as_of_ms
        if silent_ms > _SILENT_MS + _SILENT_LOOKS * said.interval_ms:
            raise Unreachable(
                f"{self._desk.folder}: the dispatcher has said nothing for {silent_ms // 1000:,} s."
            )
        try:
            knobs = self._space.parse_text(said.knobs)
        except ConfigError as problem:
            raise Unreachable(
                f"{self._desk.folder}: the dispatcher says what is no setting: {problem}"
            ) from None
        return InForce(knobs, said.version, said.as_of_ms)

    def state(self) -> State:
        knobs = self.in_force().knobs
        return state_of(
            _settled(self._look()), Taking(self._settings.policy, knobs, self._settings.placement)
        )

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        self._look()
        return self._jobs.events(after, most)

    def apply(self, change: Change) -> Receipt:
        self.in_force()  # of a dispatcher that is there
        refuse_key(change)
        with self._desk.writing() as writes:
            made = next((one for one in writes if one.key == change.key), None)
            if made is not None:
                if made.knobs != change.knobs.text():
                    raise Refused(f"change {change.key}: was asked for before with another setting.")
                return Receipt(change.key, made.version)
            if not writes or change.expected != writes[-1].version:
                latest = writes[-1].version if writes else "none"
                raise Refused(
                    f"change {change.key}: version {latest} was written last, not {change.expected}."
                )
            refuse_illegal(self._space, change.knobs)
            write = Write(change.key, next_version(writes), change.knobs.text())
            writes.append(write)
        return Receipt(change.key, write.version)

    # ---- jobs --------------------------------------------------------------------------------------

    def _look(self) -> Queue:
        """Look at jobs and nodes, unless that was done a moment ago."""
        last = self._last
        if last is not None and 0 <= epoch_ms() - last.now_ms < LOOK_MS:
            return last
        queue = read_queue(self._commands)
        known = [job for job in queue.mine if job.phase != "kept"]
        self._mine = {job.label: job for job in known}
        rows = [_submitted(job) for job in known] + [job.row for job in queue.others] + list(queue.ended)
        self._jobs.look(rows, queue.layout, queue.now_ms)
        self._last = queue
        return queue

    def _amend(self, facts: JobFacts) -> JobFacts:
        """Return the facts of a job with what its comment tells: its deadlines, and when it came at first."""
        job = self._mine.get(facts.label)
        if job is None:
            return facts
        return facts._replace(service=job.ticket.service, submit_ms=min(facts.submit_ms, job.submit_ms))


def _submitted(job: Mine) -> Row:
    """Return a job of ours as one that could be started since its submission, though it is held."""
    return replace(job.row, eligible_ms=job.row.submit_ms)


def _settled(queue: Queue) -> Queue:
    """Return a queue in which each job waits or runs: who is requeued, or only released, waits."""
    mine = []
    for job in queue.mine:
        if job.phase in ("leaving", "released"):
            mine.append(replace(job, phase="held", nodes=()))
        else:
            mine.append(replace(job, phase="running") if job.phase == "over" else job)
    return replace(queue, mine=tuple(mine))
