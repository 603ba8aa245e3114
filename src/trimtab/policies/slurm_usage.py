"""What users have used, as Slurm counts it, and the fair-share factor that follows (Fair Tree).

It outlives jobs, so the engine keeps it between passes as one tuple of whole numbers. Who runs changes in
passes and at completions only, and each of those is a pass: between two passes GPUs are used at a constant
rate, and usage is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key, lru_cache

from trimtab.job import JobFacts
from trimtab.policies.slurm_knobs import DECAY_BITS, MINUTE_MS, Formula, Rules, decay
from trimtab.site import Site

PPM = 1_000_000
NEVER_MS = 1 << 62
_HEAD = 7
_ROW = 5

Association = tuple[int, int]  # the numbers of an account and of a user


@lru_cache(maxsize=65_536)
def number_of(name: str | None) -> int:
    """Return a whole number that stands for a name in every run, 0 for none."""
    if name is None:
        return 0
    return 1 + (int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 3)


def association_of(facts: JobFacts) -> Association:
    """Return whom a job is charged to."""
    return number_of(facts.account), number_of(facts.user)


def shares_of(site: Site) -> dict[int, int]:
    """Return the shares of accounts by number."""
    return {number_of(account): share for account, share in site.shares.items()}


@dataclass(slots=True)
class Usage:
    """What one association has used.

    Attributes:
        gpu_ms: Decayed, as of the last calculation: what priorities go by.
        accrued_gpu_ms: Since then. gpus: in use now.
    """

    gpu_ms: int = 0
    accrued_gpu_ms: int = 0
    gpus: int = 0


@dataclass(slots=True)
class Books:
    """What Slurm remembers of a virtual cluster from pass to pass.

    Attributes:
        at_ms: Up to when usage is counted. calculated_ms: when priorities were calculated last.
        main_due_ms, fill_due_ms: When the next main and backfill passes are due, `NEVER_MS` for none.
        rested_ms: Before it, there is no further main pass.
        pending, running: How many jobs the last pass left; another number means that something happened.
        formula: What priorities were calculated by.
    """

    at_ms: int
    calculated_ms: int
    main_due_ms: int
    fill_due_ms: int
    rested_ms: int
    pending: int
    running: int
    formula: Formula
    usage: dict[Association, Usage] = field(default_factory=dict)

    @classmethod
    def open(cls, memory: tuple[int, ...], now_ms: int, rules: Rules) -> Books:
        """Return what was written down, or new books."""
        if not memory:
            period_ms = rules.formula.period_ms
            begin_ms = now_ms // period_ms * period_ms
            return cls(now_ms, begin_ms, NEVER_MS, NEVER_MS, now_ms, 0, 0, rules.formula)
        rows = _HEAD + len(Formula._fields)
        at_ms, calculated_ms, main_ms, fill_ms, rested_ms, pending, running = memory[:_HEAD]
        formula = Formula._make(memory[_HEAD:rows])
        books = cls(at_ms, calculated_ms, main_ms, fill_ms, rested_ms, pending, running, formula)
        for place in range(rows, len(memory), _ROW):
            account, user, *used = memory[place : place + _ROW]
            books.usage[account, user] = Usage(*used)
        return books

    def memory(self) -> tuple[int, ...]:
        """Return all of it, associations in order."""
        found = [self.at_ms, self.calculated_ms, self.main_due_ms, self.fill_due_ms, self.rested_ms]
        found += [self.pending, self.running, *self.formula]
        for association in sorted(self.usage):
            one = self.usage[association]
            found += [*association, one.gpu_ms, one.accrued_gpu_ms, one.gpus]
        return tuple(found)

    @property
    def next_calculation_ms(self) -> int:
        """When priorities are calculated next."""
        return self.calculated_ms + self.formula.period_ms

    def advance(self, now_ms: int, formula: Formula) -> bool:
        """Count usage up to now, and calculate priorities where that is due; return whether it was."""
        before_ms = self.calculated_ms
        while self.next_calculation_ms <= now_ms:
            self._calculate(now_ms)
            self.formula = formula
        self._charge(now_ms)
        return self.calculated_ms != before_ms

    def _calculate(self, now_ms: int) -> None:
        """Let usage decay until the next calculation; where there is none, until the last one up to now."""
        period_ms = self.formula.period_ms
        is_used = any(one.gpu_ms or one.accrued_gpu_ms or one.gpus for one in self.usage.values())
        periods = 1 if is_used else (now_ms - self.calculated_ms) // period_ms
        self.calculated_ms += periods * period_ms
        self._charge(self.calculated_ms)
        left = decay(self.formula.minute_decay, period_ms // MINUTE_MS)
        for one in self.usage.values():
            one.gpu_ms = (one.gpu_ms * left >> DECAY_BITS) + one.accrued_gpu_ms
            one.accrued_gpu_ms = 0

    def _charge(self, to_ms: int) -> None:
        for one in self.usage.values():
            one.accrued_gpu_ms += one.gpus * (to_ms - self.at_ms)
        self.at_ms = to_ms

    def fair_shares_ppm(self, shares: Mapping[int, int]) -> dict[Association, int]:
        """Return the fair-share factor of each association, in ppm.

        Accounts in order of usage per share, users of an account (of all accounts that are level) in order
        of their part of it, least first; of n associations the first has n / n, the next (n - 1) / n, ...
        and who is level has the same.

        Args:
            shares: Those of accounts by number, 1 where none are told.
        """
        accounts: dict[int, list[int]] = {}
        for (account, _), one in self.usage.items():
            accounts.setdefault(account, []).append(one.gpu_ms)
        sums = {account: sum(used) for account, used in accounts.items()}

        def part(one: Association) -> int:
            return self.usage[one].gpu_ms * len(accounts[one[0]])

        def compare(one: Association, other: Association) -> int:
            by_share = sums[one[0]] * shares.get(other[0], 1) - sums[other[0]] * shares.get(one[0], 1)
            if by_share:
                return by_share
            first, second = part(one), part(other)
            if not first or not second:
                return (first > 0) - (second > 0)
            return first * sums[other[0]] - second * sums[one[0]]

        found: dict[Association, int] = {}
        order = sorted(sorted(self.usage), key=cmp_to_key(compare))
        for place, association in enumerate(order):
            before = order[place - 1]
            if place and compare(before, association) == 0:
                found[association] = found[before]
            else:
                found[association] = PPM * (len(order) - place) // len(order)
        return found
