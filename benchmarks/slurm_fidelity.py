"""How well the model tells a real Slurm's starts: `PYTHONPATH=tests python benchmarks/slurm_fidelity.py`.

A lab with accounting is started on loopback (it needs root and Slurm's packages). A few hundred short jobs of
four users are submitted behind one that holds all GPUs; when all have ended, `sacct`'s history of them is
simulated under the lab's own settings and site, and starts are compared. It takes as long as the jobs do.
"""

from __future__ import annotations

import argparse
import time

from slurm_jobs import draw, history, play, replayed, settle
from slurm_lab import Lab, missing_accounting, opened

_CALCULATED_S = 62.0  # after which nobody has used anything any more, in the lab's priorities, too


def main() -> int:
    """Play, replay and print one row a seed; 1 where the error is larger than what is aimed at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3, help="how many draws of jobs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--span", type=float, default=8.0, help="seconds over which jobs are submitted")
    asked = parser.parse_args()
    if why := missing_accounting():
        print(f"no lab: {why}")
        return 2
    bad = 0
    print("seed   jobs   wait s  simulated s   error s  median s  allowed s")
    with opened(accounting=True) as lab:
        interval_s = _interval_s(lab)
        for seed in range(asked.first, asked.first + asked.seeds):
            settle(lab)
            time.sleep(_CALCULATED_S)
            found = replayed(lab, history(lab, play(lab, draw(asked.jobs, seed, asked.span))))
            allowed_s = found.allowed_s(interval_s)
            bad += found.error_s > allowed_s
            print(
                f"{seed:4} {found.jobs:6} {found.wait_s:8.1f} {found.simulated_wait_s:12.1f} "
                f"{found.error_s:9.1f} {found.median_error_s:9.1f} {allowed_s:10.1f}",
                flush=True,
            )
    return min(1, bad)


def _interval_s(lab: Lab) -> float:
    """Return how often backfill looks."""
    told = lab.run("scontrol", "show", "config").partition("bf_interval=")[2]
    return float(told.split(",")[0].split()[0])


if __name__ == "__main__":
    raise SystemExit(main())
