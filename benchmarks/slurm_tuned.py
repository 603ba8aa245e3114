"""What tuning a real Slurm does for the jobs on it: `PYTHONPATH=tests python benchmarks/slurm_tuned.py`.

A lab with accounting is started on loopback and set so that wide jobs go before all others. A few hundred
short jobs are played; their history is imported; `trimtab serve` shadows, then changes the setting, and the
same jobs are played again; at last it goes back on command. It takes twice as long as the jobs, and 3 min.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from slurm_jobs import draw
from slurm_lab import missing_accounting, opened
from slurm_tuning import tune


def main() -> int:
    """Play, tune, play again, go back, and print what came of it; 1 if jobs waited no less."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--span", type=float, default=8.0, help="seconds over which jobs are submitted")
    asked = parser.parse_args()
    if why := missing_accounting():
        print(f"no lab: {why}")
        return 2
    with opened(accounting=True) as lab, tempfile.TemporaryDirectory() as folder:
        found = tune(lab, draw(asked.jobs, asked.seed, asked.span), Path(folder))
    changed = [name for name, value in found.wanted.items() if found.before[name] != value]
    print(f"history imported              {found.imported:,} jobs")
    print(f"mean wait, untuned            {found.untuned_s:.1f} s")
    print(f"  the same simulated          {found.fidelity.simulated_wait_s:.1f} s")
    print(f"  error of starts             {found.fidelity.error_s:.1f} s")
    print(f"shadowed                      {found.shadowed}")
    for name in changed:
        print(f"{name:29} {found.before[name]} -> {found.wanted[name]}")
    print(f"size factor, wide over small  {found.wide_before:,.0f} -> {found.wide_after:,.0f} (sprio)")
    print(f"mean wait, tuned              {found.tuned_s:.1f} s")
    print(f"after rollback                {'as before' if found.back == found.before else 'another setting'}")
    return int(found.tuned_s >= found.untuned_s)


if __name__ == "__main__":
    raise SystemExit(main())
