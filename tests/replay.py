"""Says whether a timeline can be: a ledger of its own, no code of the engine."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from strategies import Case
from trimtab.cluster import VirtualCluster
from trimtab.profile import Profile
from trimtab.simulate.engine import Engine
from trimtab.timeline import Event

FULL = 1_000_000


@dataclass
class Account:
    """One job as its events tell it."""

    width: int
    member_width: int  # of one of the jobs that are simulated as this one
    submit_ms: int
    state: str = "unborn"
    nodes: tuple[tuple[int, int], ...] = ()
    since_ms: int = 0  # when it came into this state
    speed_ppm: int = FULL
    speed_since_ms: int = 0  # when it got this speed
    overhead_ms: int = 0  # restart cost of this stretch that was unpaid then
    done: int = 0  # ms x ppm, until then
    partner: int | None = None  # with whom it shares its GPUs
    waited_ms: int = 0
    held_ms: int = 0
    graded_ms: int = 0
    level: int = 0
    starts_ms: list[int] = field(default_factory=list)
    preemptions: int = 0


def check(case: Case, engine: Engine) -> None:
    """Assert that the timeline of a finished run keeps every promise that does not depend on the policy."""
    assert engine.timeline is not None
    ledger = ledger_of(case)
    for event in engine.timeline.events:
        ledger.enter(event)
    for job_id, (account, record) in enumerate(zip(ledger.accounts, engine.records, strict=True)):
        home = ledger.home(job_id)
        fits = home is not None and account.width <= home.gpus
        assert account.state == ("finished" if fits else "rejected")
        assert record.rejected is not fits
        assert record.held_ms == account.held_ms
        assert record.preemptions == account.preemptions
        assert record.first_start_ms == (account.starts_ms[0] if fits else None)
        if fits:
            assert record.finish_ms is not None
            assert record.finish_ms - account.submit_ms == account.waited_ms + account.held_ms
    assert not any(ledger.used.values())


class Ledger:
    """Who holds which GPUs, and what each job has got, event by event."""

    def __init__(self, case: Case) -> None:
        self.case = case
        facts = case.workload.facts
        self.accounts = [Account(one.gpus, one.gpus // one.members, one.submit_ms) for one in facts]
        self.used: dict[int, int] = defaultdict(int)
        self.now_ms: int | None = None

    def home(self, job_id: int) -> VirtualCluster | None:
        if self.case.cluster.pooled:
            return self.case.cluster.vcs[0]
        name = self.case.workload.facts[job_id].vc
        return next((vc for vc in self.case.cluster.vcs if vc.name == name), None)

    def enter(self, event: Event) -> None:
        """Book one event."""
        assert self.now_ms is None or event.time_ms >= self.now_ms, "time runs backwards"
        self.now_ms = event.time_ms
        if event.job is None:
            assert event.kind == "knobs"
            return
        account = self.accounts[event.job]
        getattr(self, f"_{event.kind}")(event.job, account, event)

    def _submit(self, job_id: int, account: Account, event: Event) -> None:
        assert account.state == "unborn"
        assert event.time_ms == account.submit_ms
        account.state, account.since_ms = "pending", event.time_ms

    def _reject(self, job_id: int, account: Account, event: Event) -> None:
        assert account.state == "pending"
        home = self.home(job_id)
        assert home is None or account.width > home.gpus
        account.state = "rejected"

    def _start(self, job_id: int, account: Account, event: Event) -> None:
        assert account.state == "pending"
        facts = self.case.workload.facts[job_id]
        home = self.home(job_id)
        assert home is not None
        assert sum(gpus for _, gpus in event.nodes) == account.width, "the gang is not whole"
        counted = self.case.placement == "count"
        for node, gpus in event.nodes:
            assert home.first_node <= node < home.first_node + home.nodes
            self.used[node] += 0 if event.detail else gpus
            assert gpus > 0
            assert self.used[node] <= (home.gpus if counted else home.gpus_per_node), "node over capacity"
        assert len({node for node, _ in event.nodes}) == len(event.nodes)
        taken_in_part = sum(gpus < home.gpus_per_node for _, gpus in event.nodes)
        spread = not counted and taken_in_part > 1
        assert self.case.placement == "relaxed" or not spread
        account.speed_ppm = facts.spread_ppm if spread else FULL
        account.speed_since_ms = event.time_ms
        account.overhead_ms = self._start_cost_ms(account)
        account.waited_ms += event.time_ms - account.since_ms
        account.starts_ms.append(event.time_ms)
        account.state, account.since_ms, account.nodes = "running", event.time_ms, event.nodes
        if event.detail:
            self._pair(job_id, account, event)

    def _start_cost_ms(self, account: Account) -> int:
        return self.case.restart(account.member_width) if account.starts_ms else self.case.cold_start_ms

    def _pair(self, job_id: int, account: Account, event: Event) -> None:
        """Book that a job starts on the GPUs of another."""
        labels = [facts.label for facts in self.case.workload.facts]
        other_id = labels.index(event.detail.removeprefix("beside "))
        other = self.accounts[other_id]
        assert other.state == "running"
        assert other.partner is None, "three jobs on one GPU"
        assert other.nodes == event.nodes
        assert len(event.nodes) == 1
        account.partner, other.partner = other_id, job_id
        if self.case.speeds is not None:
            profiles = [self.case.workload.facts[one].profile or Profile() for one in (job_id, other_id)]
            mine, its = self.case.speeds.speeds_ppm(*profiles)
            self._change_speed(account, mine, event)
            self._change_speed(other, its, event)

    def _change_speed(self, account: Account, speed_ppm: int, event: Event) -> int:
        """Book the work done so far at the speed so far; return the time it took, below 0 if unpaid."""
        worked_ms = event.time_ms - account.speed_since_ms - account.overhead_ms
        account.done += max(0, worked_ms) * account.speed_ppm
        account.overhead_ms = max(0, -worked_ms)
        account.speed_ppm, account.speed_since_ms = speed_ppm, event.time_ms
        return worked_ms

    def _leave(self, account: Account, event: Event) -> int:
        """Give a stretch's GPUs back; return its length without the restart cost, below 0 if unpaid."""
        assert account.state == "running"
        if account.partner is None:
            for node, gpus in account.nodes:
                self.used[node] -= gpus
        else:
            other = self.accounts[account.partner]
            account.partner = other.partner = None
            self._change_speed(other, FULL, event)
        length_ms = event.time_ms - account.since_ms
        account.held_ms += length_ms
        account.graded_ms += length_ms
        account.since_ms = event.time_ms
        return event.time_ms - account.speed_since_ms - account.overhead_ms

    def _preempt(self, job_id: int, account: Account, event: Event) -> None:
        assert event.nodes == account.nodes
        worked_ms = self._leave(account, event)
        account.done += max(0, worked_ms) * account.speed_ppm
        assert account.done < self.case.workload.duration_ms[job_id] * FULL or worked_ms <= 0
        account.preemptions += 1
        account.state = "pending"

    def _finish(self, job_id: int, account: Account, event: Event) -> None:
        worked_ms = self._leave(account, event)
        work = self.case.workload.duration_ms[job_id] * FULL
        assert worked_ms >= 0, "it ends while it still pays its restart"
        assert account.done + worked_ms * account.speed_ppm >= work, "it ends too early"
        if worked_ms > 0:
            assert account.done + (worked_ms - 1) * account.speed_ppm < work, "it ends too late"
        account.state = "finished"

    def _demote(self, job_id: int, account: Account, event: Event) -> None:
        assert account.state == "running"

    def _promote(self, job_id: int, account: Account, event: Event) -> None:
        assert account.state == "pending"
        account.graded_ms = 0
        account.level = 0
        account.waited_ms += event.time_ms - account.since_ms
        account.since_ms = event.time_ms


class LucidLedger(Ledger):
    """Knows, besides, that a profile lasts as long as it was said when it began, and that its work is
    lost."""

    def _start_cost_ms(self, account: Account) -> int:
        return self.case.cold_start_ms

    def _preempt(self, job_id: int, account: Account, event: Event) -> None:
        knobs = [self.case.knobs, *(one for at, one in self.case.updates if at <= account.starts_ms[-1])]
        assert event.time_ms - account.starts_ms[-1] == 1000 * knobs[-1].integer("t_prof")
        assert account.preemptions == 0, "it is profiled twice"
        super()._preempt(job_id, account, event)
        account.done = 0


def ledger_of(case: Case) -> Ledger:
    """Return the ledger for a case's policy."""
    return LucidLedger(case) if case.policy_name == "lucid" else Ledger(case)


class TiresiasLedger(Ledger):
    """Knows, besides, when jobs sink and starve; for runs whose knobs do not change."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.grades = tuple(1000 * one for one in case.knobs.numbers("queue_thresholds"))
        self.promote = case.knobs.fraction("promote_knob")
        self.absolute = case.knobs["starve_mode"] == "absolute"

    def graded_ms(self, account: Account, now_ms: int) -> int:
        return account.graded_ms + (now_ms - account.since_ms if account.state == "running" else 0)

    def _right_level(self, account: Account, now_ms: int) -> int:
        return bisect_right(self.grades, account.member_width * self.graded_ms(account, now_ms))

    def _demote(self, job_id: int, account: Account, event: Event) -> None:
        super()._demote(job_id, account, event)
        assert self._right_level(account, event.time_ms - 1) == account.level, "it sinks too late"
        assert self._right_level(account, event.time_ms) > account.level, "it sinks too early"
        account.level = self._right_level(account, event.time_ms)

    def _leave(self, account: Account, event: Event) -> int:
        before_ms = event.time_ms - (event.kind == "finish" and event.time_ms > account.since_ms)
        assert self._right_level(account, before_ms) == account.level, "it did not sink"
        return super()._leave(account, event)

    def _due_ms(self, account: Account) -> float:
        if self.promote == float("inf") or account.level == 0 or account.graded_ms == 0:
            return float("inf")
        knob_ppm = round(self.promote * FULL)
        base_ms = 3_600_000 if self.absolute else account.graded_ms
        return account.since_ms - (-knob_ppm * base_ms // FULL)

    def _promote(self, job_id: int, account: Account, event: Event) -> None:
        assert event.time_ms == self._due_ms(account), "it is not starving, or has been for long"
        super()._promote(job_id, account, event)

    def _start(self, job_id: int, account: Account, event: Event) -> None:
        assert event.time_ms < self._due_ms(account), "it should have been promoted"
        super()._start(job_id, account, event)
