"""CPU and memory of the jobs on one node: units share, jobs at risk borrow, what is left goes to who gains.

All of it is worked out anew from who is there; what a job holds now counts in two ways: one that was changed
a short while ago keeps it, and one that needed more gives it back only once it has slack to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.curve import FULL_SPEED_PPM, NOTHING, Share, total
from trimtab.policies.units import category, need_of, spare_of
from trimtab.policies.urgency import Rank, Rated

_FAR_MS = 1 << 60


class Adjusting(NamedTuple):
    """What may be changed on a node.

    Attributes:
        scope: Inside which classes units share; `off`: everybody has its part.
        whole_node: All jobs of a class on a node share as one unit, instead of pairs.
        lends: Whether jobs at risk borrow. guard_ms, guard_ppm: the slack a job is to keep, at least a time
            and at least a part of its run time.
        floor_ppm: What a lender keeps at least, as a part of its proportional share. donate_ppm: what it
            gives at most, as a part of what it has.
        hysteresis_ppm: A borrower gives back once its slack is so many times its guard.
        cooldown_ms: How long a job whose share was changed keeps it, unless it is at risk or room is needed.
        pools: Whether what nobody has goes to those who gain.
    """

    scope: str
    whole_node: bool
    lends: bool
    guard_ms: int
    guard_ppm: int
    floor_ppm: int
    donate_ppm: int
    hysteresis_ppm: int
    cooldown_ms: int
    pools: bool

    def guard_of_ms(self, job: Rated) -> int:
        """Return the slack a job is to keep."""
        return max(self.guard_ms, job.left_ms(FULL_SPEED_PPM) * self.guard_ppm // FULL_SPEED_PPM)


def slack_ms(job: Rated, share: Share, now_ms: int) -> int:
    """Return how much earlier than its deadline a job ends with a share; without a deadline, very much."""
    if job.deadline_ms is None:
        return _FAR_MS
    return job.deadline_ms - now_ms - job.left_ms(job.speed_ppm(share))


def by_urgency(job: Rated) -> tuple[int, int, int]:
    """Return a job's place among those that may have more: least slack first, then those without hope."""
    latest_ms = job.latest_ms()
    return (int(job.rank), 0, job.id) if latest_ms is None else (0, latest_ms, job.id)


def is_cooling(job: Rated, now_ms: int, cooldown_ms: int) -> bool:
    """Whether a job was resized before now and within the cool-down."""
    return job.resized_ms is not None and 0 < now_ms - job.resized_ms < cooldown_ms


def split(jobs: Sequence[Rated], room: Share, how: Adjusting, now_ms: int) -> dict[int, Share]:
    """Return the share of each job of a node, by id.

    Args:
        jobs: Those that are on this node alone. room: what the node has for them.
    """
    cooling = [job for job in jobs if is_cooling(job, now_ms, how.cooldown_ms)]
    shares = _base(jobs, cooling, how)
    if not total(shares.values()).fits(room):
        cooling = []
        shares = _base(jobs, cooling, how)
    node = _Node({job.id: job for job in jobs}, shares, {job.id for job in cooling}, room, how, now_ms)
    if how.lends:
        node.help_those_at_risk()
    if how.pools:
        node.pool()
    return node.shares


# ---- units ----------------------------------------------------------------------------------------------


def _base(jobs: Sequence[Rated], cooling: Sequence[Rated], how: Adjusting) -> dict[int, Share]:
    """Return what each job has before anybody borrows."""
    shares = {job.id: job.part for job in jobs} | {job.id: job.share for job in cooling}
    if how.scope == "off":
        return shares
    held = {job.id for job in cooling}
    groups: dict[tuple[int, str], list[Rated]] = {}
    for job in sorted(jobs, key=by_urgency):
        if job.id not in held:
            groups.setdefault(category(job, how.scope), []).append(job)
    for group in groups.values():
        takers = [job for job in group if job.traits.label == "sensitive"]
        givers = [job for job in group if job.traits.label == "insensitive"]
        for some, others in [(takers, givers)] if how.whole_node else _pairs(takers, givers):
            shares.update(_inside(some, others))
    return shares


def _pairs(takers: Sequence[Rated], givers: Sequence[Rated]) -> list[tuple[list[Rated], list[Rated]]]:
    """Return pairs, most urgent first, each with who gives most of what is needed."""
    found, left = [], list(givers)
    for taker in takers:
        if left:
            giver = min(left, key=lambda job: (-useful_cores(taker, job), job.id))
            left.remove(giver)
            found.append(([taker], [giver]))
    return found


def useful_cores(taker: Rated, giver: Rated) -> int:
    """Return how many cores one can use of what the other can spare."""
    return min(need_of(taker).cores, spare_of(giver).cores)


def _inside(takers: Sequence[Rated], givers: Sequence[Rated]) -> dict[int, Share]:
    """Return the shares inside a unit: givers drop to their least, takers have what that frees."""
    if not takers or not givers:
        return {}
    shares: dict[int, Share] = {}
    free = total(spare_of(job) for job in givers)
    for job in takers:
        more = need_of(job).within(free)
        shares[job.id] = job.part.plus(more)
        free = free.less(more)
    cores = free.cores
    for job in givers:
        back = min(cores, spare_of(job).cores)
        shares[job.id] = Share(job.traits.least.cores + back, job.traits.least.memory_mib)
        cores -= back
    return shares


# ---- loans ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """One node while its shares are worked out."""

    jobs: dict[int, Rated]
    shares: dict[int, Share]
    cooling: set[int]
    room: Share
    how: Adjusting
    now_ms: int

    def left(self) -> Share:
        return self.room.less(total(self.shares.values()))

    def slack_ms(self, job: Rated, share: Share) -> int:
        return slack_ms(job, share, self.now_ms)

    # Those at risk, least slack first: from what nobody has, then from lenders.
    def help_those_at_risk(self) -> None:
        base = dict(self.shares)
        borrowers: set[int] = set()
        slacks = [
            (self.slack_ms(job, base[job.id]), job.id)
            for job in self.jobs.values()
            if job.deadline_ms is not None
        ]
        for _, job_id in sorted(slacks):
            wanted = self._wanted(self.jobs[job_id])
            if wanted is not None:
                borrowers.add(job_id)
                self._raise(self.jobs[job_id], wanted, base, borrowers)

    def _wanted(self, job: Rated) -> Share | None:
        """Return the share a job needs, None if what it has here will do, or nothing would."""
        share, guard_ms = self.shares[job.id], self.how.guard_of_ms(job)
        held = job.share
        if job.speed_ppm(held) > job.speed_ppm(share):
            slack_ms = self.slack_ms(job, held)
            if guard_ms <= slack_ms <= guard_ms * self.how.hysteresis_ppm // FULL_SPEED_PPM:
                return _union(held, share)
        if self.slack_ms(job, share) >= guard_ms:
            return None
        enough = self._smallest(job, share, lambda tried: self.slack_ms(job, tried) >= guard_ms)
        best = _union(job.traits.best, share)
        return enough or (best if best != share and self.slack_ms(job, best) >= 0 else None)

    def _smallest(self, job: Rated, share: Share, will_do: Callable[[Share], bool]) -> Share | None:
        """Return the least memory, then the fewest cores, with which a share will do."""
        best = _union(job.traits.best, share)
        curve = job.job.facts.curve
        sizes = [] if curve is None else [job.gpus * size for size in curve.memory_mib]
        inside = [size for size in sizes if share.memory_mib < size < best.memory_mib]
        for memory_mib in sorted({share.memory_mib, *inside, best.memory_mib}):
            for cores in range(share.cores, best.cores + 1):
                if will_do(Share(cores, memory_mib)):
                    return Share(cores, memory_mib)
        return None

    def _raise(self, job: Rated, wanted: Share, base: dict[int, Share], borrowers: set[int]) -> None:
        share = self.shares[job.id]
        more = wanted.less(share)
        got = more.within(self.left())
        for lender in self._lenders(borrowers):
            if got == more:
                break
            got = got.plus(self._lend(lender, base[lender.id], more.less(got)))
        self.shares[job.id] = share.plus(got)

    def _lenders(self, borrowers: set[int]) -> list[Rated]:
        """Return who may lend, in the order in which they are asked."""
        known = [job for job in self.jobs.values() if job.job.facts.curve is not None]
        able = [job for job in known if job.id not in borrowers and job.id not in self.cooling]
        return sorted(able, key=self._lending)

    def _lending(self, job: Rated) -> tuple[int, bool, int, int, int]:
        share = self.shares[job.id]
        spares = job.traits.label == "insensitive" and share.cores > job.traits.least.cores
        less = Share(max(0, share.cores - 1), share.memory_mib)
        loss_ppm = job.speed_ppm(share) - job.speed_ppm(less)
        return _lending_class(job), not spares, -self.slack_ms(job, share), loss_ppm, job.id

    def _lend(self, lender: Rated, base: Share, wanted: Share) -> Share:
        """Take what a lender may give of what is wanted; memory only where it costs nothing."""
        share, part = self.shares[lender.id], lender.part
        least = Share(
            max(1, -(-part.cores * self.how.floor_ppm // FULL_SPEED_PPM)),
            max(-(-part.memory_mib * self.how.floor_ppm // FULL_SPEED_PPM), lender.job.facts.footprint_mib),
        )
        lent = base.less(share)
        most_cores = base.cores * self.how.donate_ppm // FULL_SPEED_PPM - lent.cores
        most_mib = base.memory_mib * self.how.donate_ppm // FULL_SPEED_PPM - lent.memory_mib
        mib = max(0, min(wanted.memory_mib, most_mib, share.memory_mib - least.memory_mib))
        if lender.speed_ppm(Share(share.cores, share.memory_mib - mib)) < lender.speed_ppm(share):
            mib = 0
        for given in range(max(0, min(wanted.cores, most_cores, share.cores - least.cores)), -1, -1):
            after = Share(share.cores - given, share.memory_mib - mib)
            if given == 0 or self._can_spare(lender, after):
                self.shares[lender.id] = after
                return Share(given, mib)
        return NOTHING

    def _can_spare(self, lender: Rated, after: Share) -> bool:
        return lender.deadline_ms is None or self.slack_ms(lender, after) >= self.how.guard_of_ms(lender)

    # What nobody has goes to those who gain, most urgent first.
    def pool(self) -> None:
        for job in sorted(self.jobs.values(), key=by_urgency):
            if job.traits.label != "sensitive" or job.id in self.cooling:
                continue
            share, left, best = self.shares[job.id], self.left(), job.traits.best
            more = Share(
                share.cores + max(0, min(left.cores, best.cores - share.cores)),
                share.memory_mib + max(0, min(left.memory_mib, best.memory_mib - share.memory_mib)),
            )
            if job.speed_ppm(more) > job.speed_ppm(share):
                self.shares[job.id] = more


def _union(one: Share, other: Share) -> Share:
    return Share(max(one.cores, other.cores), max(one.memory_mib, other.memory_mib))


def _lending_class(job: Rated) -> int:
    if job.rank is Rank.BEST_EFFORT:
        return 0
    if job.rank is Rank.HOPELESS:
        return 1
    return 2 if job.job.facts.service.kind == "soft" else 3
