"""What the control loop survives, by seed: `python benchmarks/faults.py --kills 500 --days 1000`.

Kills: six hours in which the program dies at one step in twelve, with an honest scheduler. Days: a scheduler
with three to six faults at once, and on every second day a program that is killed now and then. Two honest
hours follow; then the scheduler must go by what the journal found in force last. See `hostile.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable

from hostile import Result, hostile_day, killed_often
from trimtab.world import cpu_s


def main() -> int:
    """Play and print one table; 1 if anything was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="seeds of kills")
    parser.add_argument("--days", type=int, default=20, help="seeds of hostile days")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    broken: list[tuple[str, Result]] = []
    print("what            seeds    kills  changes  in force   rounds  faults  broken   cpu s")
    faults: Counter[str] = Counter()
    for name, count, play in (
        ("kills", asked.kills, killed_often),
        ("hostile days", asked.days, hostile_day),
    ):
        before_s = cpu_s()
        results = list(_played(play, range(asked.first, asked.first + count)))
        print(_row(name, results, cpu_s() - before_s))
        broken += [(name, one) for one in results if one.broken]
        for one in results:
            faults.update(one.faults)
    print("\nfaults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    for name, one in broken:
        print(f"{name}, seed {one.seed}: {'; '.join(one.broken)}")
    return 1 if broken else 0


def _played(play: Callable[[int], Result], seeds: Iterable[int]) -> Iterable[Result]:
    for seed in seeds:
        yield play(seed)
        print(f"\r{play.__name__} {seed}", end="", file=sys.stderr)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)


def _row(name: str, results: list[Result], spent_s: float) -> str:
    kills, changes = sum(one.kills for one in results), sum(one.changes for one in results)
    confirmed, rounds = sum(one.confirmed for one in results), sum(one.rounds for one in results)
    faults, broken = (
        sum(sum(one.faults.values()) for one in results),
        sum(bool(one.broken) for one in results),
    )
    return (
        f"{name:<14}{len(results):>7}{kills:>9}{changes:>9}{confirmed:>10}{rounds:>9}{faults:>8}{broken:>8}"
        f"{spent_s:>8.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
