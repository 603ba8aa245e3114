"""Themis: finish-time fairness by auctions of leased GPUs [Mahajan et al., NSDI'20].

A job gets its gang for a lease. When a lease ends, or GPUs are free while jobs wait, these GPUs are offered
first to those who are treated worst, among them to those who lose most, per GPU, by another lease of waiting.
Fixed gangs, and everybody bids truly; see docs/decisions/0007-themis.md for what the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heapreplace
from typing import ClassVar

from trimtab.cluster import ClusterView, FreeMap
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.fairness import PPM, Crowding, log2_units
from trimtab.policies.policy import Decision, Lease, Plan, Preempt, Start, WholePass, ppm, walk_through

SPACE = Space(
    knobs=(
        Knob(
            name="lease",
            kind="int",
            default=1200,
            low=60,
            high=14_400,
            unit="s",
            trades="longer: fewer preemptions, unfairness is put right later",
            takes_effect="as lease_update says",
            in_flight="see lease_update",
        ),
        Knob(
            name="lease_update",
            kind="choice",
            default="at_end",
            choices=("at_end", "now"),
            trades="how a new lease reaches jobs that hold one",
            takes_effect="next change of lease",
            in_flight="at_end: leases keep their end; now: they end at max(now, start + new lease)",
        ),
        Knob(
            name="fairness_f",
            kind="fraction",
            default=0.8,
            low=0,
            high=1,
            trades="larger: only the worst-off bid (fairer); smaller: short jobs first (better JCT)",
            takes_effect="next auction",
            in_flight="leases are untouched",
        ),
        Knob(
            name="ideal_model",
            kind="choice",
            default="share",
            choices=("share", "paper"),
            trades="a private share in auctions, not for tuning: 1/N of the cluster, with share the gang if "
            "that is less; reports and objectives go by share whatever it is",
            takes_effect="next auction",
            in_flight="leases are untouched",
        ),
        Knob(
            name="placement_threshold",
            kind="fraction",
            default=0.0,
            low=0,
            high=1,
            trades="slowest speed at which a gang is spread: 0 starts sooner, 1 waits for few nodes",
            takes_effect="new placements",
            in_flight="running jobs never migrate",
        ),
        Knob(
            name="auction_delay",
            kind="int",
            default=0,
            low=0,
            high=300,
            unit="s",
            trades="longer: fewer auctions of more GPUs, which stand idle meanwhile",
            takes_effect="next trigger",
            in_flight="an auction that is due keeps its time; ended leases run on until then",
        ),
        Knob(
            name="hidden_payment",
            kind="bool",
            default=False,
            trades="on: a winner pays for whom it displaces with a shorter lease",
            takes_effect="next auction",
            in_flight="leases are untouched",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs in whole numbers."""

    lease_ms: int
    cuts: bool  # whether a new lease cuts those that run
    visible_ppm: int  # share of the bidders that are asked first
    paper: bool
    threshold_ppm: int
    delay_ms: int
    payment: bool

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, knobs: Knobs) -> Rules:
        """Return what the knobs say."""
        return cls(
            lease_ms=1000 * knobs.integer("lease"),
            cuts=knobs.choice("lease_update") == "now",
            visible_ppm=PPM - ppm(knobs.fraction("fairness_f")),
            paper=knobs.choice("ideal_model") == "paper",
            threshold_ppm=ppm(knobs.fraction("placement_threshold")),
            delay_ms=1000 * knobs.integer("auction_delay"),
            payment=bool(knobs["hidden_payment"]),
        )


@dataclass(frozen=True, slots=True)
class Bid:
    """A job that waits, or whose lease has ended, with its time in all and its rho if it got its gang now."""

    job: JobView
    time_ms: int
    rho_ppm: int


class Themis(WholePass):
    """Auctions of leases; reads estimates of run times. A pass with nobody waiting only keeps the leases."""

    name: ClassVar[str] = "themis"
    space: ClassVar[Space] = SPACE

    def settings(self, knobs: Knobs) -> Plan:
        """Return that it reads estimates."""
        return Plan(needs_estimates=True)

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return what an auction changes if one is due, and how leases stand."""
        rules = Rules.of(knobs)
        leases = {lease.job_id: lease for job in view.running if (lease := _standing(job, view, rules))}
        if not len(view.pending) or (rules.delay_ms and view.review_ms != view.now_ms):
            return list(leases.values())
        ends = {lease.job_id: lease.end_ms for lease in leases.values()}
        expired = [job for job in view.running if _is_over(ends.get(job.id, job.lease_end_ms), view.now_ms)]
        if expired or any(view.free.free):
            changes, granted = _auction(view, expired, rules)
            lost = {change.job_id for change in changes if isinstance(change, Preempt)}
            standing = [lease for lease in leases.values() if lease.job_id not in {*lost, *granted}]
            return [*changes, *standing, *granted.values()]
        return list(leases.values())

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return when the auction is held that somebody has asked for, None if it was held or nobody has."""
        rules = Rules.of(knobs)
        if not rules.delay_ms or view.review_ms == view.now_ms:
            return None
        if view.review_ms is not None:
            return view.review_ms
        ended = any(_is_over(job.lease_end_ms, view.now_ms) for job in view.running)
        asked = len(view.pending) > 0 and (ended or any(view.free.free))
        return view.now_ms + rules.delay_ms if asked else None


def _is_over(end_ms: int | None, now_ms: int) -> bool:
    return end_ms is None or end_ms <= now_ms


def _standing(job: JobView, view: ClusterView, rules: Rules) -> Lease | None:
    """Return a running job's lease as it stands now, None if it has none or stands as the job says.

    A lease that ended while nobody waited was renewed at its end, over and over; nothing was done about it
    then, and the present rules count only from now on.
    """
    start_ms, end_ms, renewal_ms = job.lease_start_ms, job.lease_end_ms, job.renewal_ms
    if start_ms is None or end_ms is None or renewal_ms is None:
        return None
    now_ms = view.now_ms
    if end_ms < now_ms and view.review_ms is None:  # else it waits for the auction then
        start_ms = end_ms + (now_ms - 1 - end_ms) // renewal_ms * renewal_ms
        end_ms = start_ms + renewal_ms
    if rules.cuts and renewal_ms != rules.lease_ms and end_ms > now_ms:
        end_ms = max(now_ms, start_ms + rules.lease_ms)
    if end_ms <= now_ms and not len(view.pending):
        start_ms, end_ms = now_ms, now_ms + rules.lease_ms
    if (end_ms, renewal_ms) == (job.lease_end_ms, rules.lease_ms):
        return None
    return Lease(job.id, start_ms, end_ms, rules.lease_ms)


def _auction(
    view: ClusterView, expired: Sequence[JobView], rules: Rules
) -> tuple[list[Decision], dict[int, Lease]]:
    """Return who loses and who gets GPUs, and the leases of those who hold any now."""
    bids = _bids(view, expired, rules)
    visible = bids[: max(1, -(-rules.visible_ppm * len(bids) // PPM))]
    first = list(_by_gain(visible, rules.lease_ms))
    with view.free.trial():
        changes = _walk([*first, *bids[len(visible) :]], view.free, rules)
    lost = {one.job_id for one in changes if isinstance(one, Preempt)}
    holders = [one.job_id for one in changes if isinstance(one, Start)]
    holders += [job.id for job in expired if job.id not in lost]
    shares = _shares(first, bids[len(visible) :], view.free, rules) if rules.payment else {}
    now_ms, leases = view.now_ms, {}
    for job_id in holders:
        lease_ms = max(1, rules.lease_ms * shares.get(job_id, _WHOLE) // _WHOLE)
        leases[job_id] = Lease(job_id, now_ms, now_ms + lease_ms, rules.lease_ms)
    return changes, leases


def _walk(bids: Sequence[Bid], free: FreeMap, rules: Rules, aside: Sequence[JobView] = ()) -> list[Decision]:
    threshold_ppm = rules.threshold_ppm
    return walk_through(
        [bid.job for bid in bids],
        free,
        lambda job: job.gpus > 1 and job.facts.spread_ppm < threshold_ppm,
        aside=aside,
    )


def _bids(view: ClusterView, expired: Sequence[JobView], rules: Rules) -> list[Bid]:
    """Return a bid of each job that waits or whose lease has ended, by falling rho, ties by id."""
    jobs = [*view.pending, *view.running]
    active = sum(job.facts.members for job in jobs)
    with view.free.trial() as offered:
        for job in expired:
            offered.give(job.nodes)
        widths = {job.gpus for job in view.pending}
        consolidated = {gpus: offered.place(gpus, True) is not None for gpus in widths}
    bids = []
    for job in [*view.pending, *expired]:
        assert job.estimate_ms is not None
        run_ms, age_ms = max(1, job.estimate_ms), view.now_ms - job.submit_ms
        speed_ppm = job.speed_ppm if job.nodes else _speed_ppm(job, view, consolidated[job.gpus], rules)
        time_ms = max(1, age_ms - (-job.remaining(view.now_ms) // speed_ppm))
        lived_ms, job_ms = (age_ms, view.job_ms - job.submit_job_ms) if age_ms else (1, active)
        crowding = Crowding.of(lived_ms, job_ms, job.member_gpus, view.vc.gpus, paper=rules.paper)
        bids.append(Bid(job, time_ms, crowding.rho_ppm(time_ms, run_ms)))
    return sorted(bids, key=lambda bid: (-bid.rho_ppm, bid.job.id))


def _speed_ppm(job: JobView, view: ClusterView, consolidated: bool, rules: Rules) -> int:
    """Return how fast a waiting job would run on what is offered; at full speed if it would have to wait."""
    if consolidated or view.free.placement != "relaxed" or job.facts.spread_ppm < rules.threshold_ppm:
        return FULL_SPEED_PPM
    return job.facts.spread_ppm


def _by_gain(bids: Sequence[Bid], lease_ms: int) -> Iterator[Bid]:
    """Yield bids by what one more lease of waiting would cost them per GPU, the most first.

    The gain ln(1 + lease / time) falls with the time, so that jobs of one width are in order without it. It
    is compared only between widths, by the first job of each; ties by falling rho, then id.
    """
    by_width: dict[int, list[Bid]] = {}
    for bid in sorted(bids, key=lambda bid: (bid.time_ms, -bid.rho_ppm, bid.job.id), reverse=True):
        by_width.setdefault(bid.job.member_gpus, []).append(bid)
    heads = [_Head(waiting.pop(), lease_ms) for waiting in by_width.values()]
    heapify(heads)
    while heads:
        bid = heads[0].bid
        yield bid
        waiting = by_width[bid.job.member_gpus]
        if waiting:
            heapreplace(heads, _Head(waiting.pop(), lease_ms))
        else:
            heappop(heads)


class _Head:
    """The first bid of a width beside those of the others: the lesser one is served earlier."""

    def __init__(self, bid: Bid, lease_ms: int) -> None:
        self.bid = bid
        self.lease_ms = lease_ms

    @cached_property
    def gain(self) -> int:
        return log2_units(self.bid.time_ms + self.lease_ms, self.bid.time_ms)

    def __lt__(self, other: _Head) -> bool:
        one, two = self.bid, other.bid
        mine, its = self.gain * two.job.member_gpus, other.gain * one.job.member_gpus
        return mine > its if mine != its else (-one.rho_ppm, one.job.id) < (-two.rho_ppm, two.job.id)


_WHOLE = 1 << 40


def _shares(bids: Sequence[Bid], unseen: Sequence[Bid], free: FreeMap, rules: Rules) -> dict[int, int]:
    """Return what each winner keeps of its lease, in units of 2**-40: the product over those it displaces.

    c_i = prod of V_j(waiting) / V_j(its gang) = time_j / (time_j + lease) over the visible bidders j who win
    in its absence and not beside it, in the order they are served, each product rounded down. What the unseen
    bidders held is offered all the same.
    """
    aside = [bid.job for bid in unseen]
    beside = _winners(bids, free, rules, aside)
    shares = {}
    for bid in bids:
        if bid.job.id not in beside:
            continue
        others = [other for other in bids if other is not bid]
        with free.trial():
            free.give(bid.job.nodes)
            alone = _winners(others, free, rules, aside)
        share = _WHOLE
        for other in others:
            if other.job.id in alone - beside:
                share = share * other.time_ms // (other.time_ms + rules.lease_ms)
        shares[bid.job.id] = share
    return shares


def _winners(bids: Sequence[Bid], free: FreeMap, rules: Rules, aside: Sequence[JobView]) -> set[int]:
    with free.trial():
        changes = _walk(bids, free, rules, aside)
    lost = {one.job_id for one in changes if isinstance(one, Preempt)}
    started = {one.job_id for one in changes if isinstance(one, Start)}
    return {bid.job.id for bid in bids if bid.job.nodes} - lost | started
