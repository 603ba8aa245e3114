"""How urgent a job is: the work it has left, its latest start, and whether its deadline can still be met."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from trimtab.cluster import VirtualCluster
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.job import JobState, JobView, Nodes
from trimtab.policies.sensitivity import Thresholds, Traits, traits_of

DRIFT_PPM = 150_000  # a speed measured farther from the curve than this counts instead of it


class Rank(IntEnum):
    """Who goes first, whatever is urgent inside."""

    DEADLINE = 0
    BEST_EFFORT = 1
    HOPELESS = 2


class Beliefs(NamedTuple):
    """What is believed of run times and deadlines.

    Attributes:
        margin_ppm: Added to the work left. overrun_ppm: work left, as a part of what is done, once the
            estimate is used up.
        share_ppm: How much of its best gain a job is given credit for before its deadline is given up.
        keeps: Never give up a deadline.
    """

    at: Thresholds
    margin_ppm: int
    overrun_ppm: int
    share_ppm: int
    keeps: bool


@dataclass(slots=True)
class Rated:
    """A job at one instant, with what a pass decides about it on the way.

    Attributes:
        work: Work left, margin included, in ms x ppm. unpaid_ms: restart cost due.
        part: Its proportional share. on_one_node: whether its share can be changed.
        deadline_ms: The deadline it is after, None for none (any more).
        nodes, share: Where it runs, and with what, as things stand.
        measured: Its share and measured speed, where that is not what the curve says.
        evictions: How often it lost its GPUs. resized_ms: when its share was changed last. is_new: started
            in this pass. is_promised: whether its deadline was promised, and can still be met.
    """

    job: JobView
    vc: VirtualCluster
    traits: Traits
    work: int
    unpaid_ms: int
    part: Share
    rank: Rank
    deadline_ms: int | None
    nodes: Nodes
    share: Share
    speed_now_ppm: int
    measured: tuple[Share, int] | None
    evictions: int
    resized_ms: int | None
    is_new: bool = False
    is_promised: bool = False

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def gpus(self) -> int:
        return self.job.gpus

    @property
    def on_one_node(self) -> bool:
        return self.gpus <= self.vc.gpus_per_node and len(self.nodes) <= 1

    @property
    def best_ppm(self) -> int:
        """Its speed with its best demand."""
        return self.traits.best_ppm if self.on_one_node else self.speed_now_ppm

    def speed_ppm(self, share: Share) -> int:
        """Return its speed with a share on one node; over several nodes, the one it has."""
        curve = self.job.facts.curve
        if not self.on_one_node:
            return self.speed_now_ppm
        if self.measured is not None and self.measured[0] == share:
            return self.measured[1]
        return FULL_SPEED_PPM if curve is None else self.vc.speed_ppm(curve, self.gpus, share)

    def left_ms(self, speed_ppm: int) -> int:
        """Return how long it takes from now at a speed."""
        return self.unpaid_ms - (-self.work // speed_ppm)

    def latest_ms(self, speed_ppm: int = FULL_SPEED_PPM) -> int | None:
        """Return its latest start at a speed, None without a deadline."""
        return None if self.deadline_ms is None else self.deadline_ms - self.left_ms(speed_ppm)


def rate(job: JobView, vc: VirtualCluster, now_ms: int, believed: Beliefs) -> Rated:
    """Return what is known of a job now."""
    traits = traits_of(vc, job.facts.curve, job.gpus, believed.at)
    is_running = job.state is JobState.RUNNING
    part = vc.proportional(job.gpus) if job.gpus <= vc.gpus_per_node else Share(0, 0)
    rated = Rated(
        job=job,
        vc=vc,
        traits=traits,
        work=_work(job, now_ms, believed),
        unpaid_ms=job.unpaid_overhead_ms(now_ms),
        part=part,
        rank=Rank.BEST_EFFORT,
        deadline_ms=None,
        nodes=job.nodes,
        share=vc.held(job) if is_running else part,
        speed_now_ppm=job.speed_ppm if is_running else FULL_SPEED_PPM,
        measured=None,
        evictions=job.preemptions,
        resized_ms=job.resized_ms,
    )
    if is_running and rated.on_one_node:
        rated.measured = _measured(rated, rated.speed_ppm(rated.share))
    _aim(rated, now_ms, believed)
    return rated


def _work(job: JobView, now_ms: int, believed: Beliefs) -> int:
    left = job.remaining(now_ms)
    if left == 0 and job.state is JobState.RUNNING:
        return job.done_by(now_ms) * believed.overrun_ppm // FULL_SPEED_PPM
    return left + left * believed.margin_ppm // FULL_SPEED_PPM


def _measured(rated: Rated, believed_ppm: int) -> tuple[Share, int] | None:
    """Return the share it has with its measured speed if the curve is wrong about it."""
    speed_ppm = rated.speed_now_ppm
    drifts = abs(speed_ppm - believed_ppm) * FULL_SPEED_PPM > believed_ppm * DRIFT_PPM
    return (rated.share, speed_ppm) if drifts else None


def _aim(rated: Rated, now_ms: int, believed: Beliefs) -> None:
    """Choose the first deadline that can still be met; without one, a job is hopeless."""
    service = rated.job.facts.service
    if not service.deadlines_ms:
        return
    left_ms = _credited_left_ms(rated, believed.share_ppm)
    can = [deadline_ms for deadline_ms in service.deadlines_ms if now_ms <= deadline_ms - left_ms]
    if not can and not believed.keeps:
        rated.rank = Rank.HOPELESS
        return
    rated.deadline_ms = can[0] if can else service.deadlines_ms[-1]
    rated.rank = Rank.DEADLINE
    rated.is_promised = rated.job.promise_ms is not None


def _credited_left_ms(rated: Rated, share_ppm: int) -> int:
    gain_ppm = max(0, rated.best_ppm - FULL_SPEED_PPM)
    base_ppm = min(rated.best_ppm, FULL_SPEED_PPM)
    return rated.left_ms(base_ppm + gain_ppm * share_ppm // FULL_SPEED_PPM)
