"""Finish-time fairness in whole numbers [Mahajan et al., Themis, NSDI'20]: rho, and what a lease is worth.

rho = T_sh / T_id: the time a job takes in the shared cluster over the time it would take alone on its share.
With age e, left time w, run time d, GPUs g, M GPUs in the virtual cluster, and J the integral of its number
of active jobs over the job's life (job x ms), so that J / e is their mean number:

    T_sh = e + w        T_id = d x max(1, g J / (M e))   (share)        T_id = d x J / e   (paper)

`share` caps a job's private share at the gang it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

PPM = 1_000_000
_LOG_BITS = 40
_ONE = 62  # binary places of the number that is squared


@dataclass(frozen=True, slots=True)
class Crowding:
    """How many times longer a job may take than alone on all it asked for: `over` / `under`."""

    over: int
    under: int

    @classmethod
    def of(cls, age_ms: int, job_ms: int, gpus: int, vc_gpus: int, *, paper: bool = False) -> Crowding:
        """Return the crowding of a job's life so far.

        Args:
            age_ms: Time since submission; above 0, or 1 with the number of active jobs as `job_ms`.
            job_ms: Integral of the number of active jobs over that time.
            gpus: GPUs of the job, of one member where jobs are aggregated.
            vc_gpus: GPUs of its virtual cluster.
            paper: Whether the private share is the whole cluster divided by the jobs, whatever the gang.
        """
        if paper:
            return cls(job_ms, age_ms)
        if gpus * job_ms <= vc_gpus * age_ms:
            return cls(1, 1)
        return cls(gpus * job_ms, vc_gpus * age_ms)

    def rho_ppm(self, time_ms: int, run_ms: int) -> int:
        """Return rho, in parts per million rounded down, of a job that takes `time_ms` and runs `run_ms`."""
        return PPM * time_ms * self.under // (run_ms * self.over)

    def is_fair(self, time_ms: int, run_ms: int) -> bool:
        """Whether rho <= 1, exactly."""
        return time_ms * self.under <= run_ms * self.over


def log2_units(numerator: int, denominator: int) -> int:
    """Return log2(numerator / denominator) in units of 2**-40, rounded down; the quotient is at least 1.

    Digit by digit: squaring a number between 1 and 2 doubles its logarithm, and a square of 2 or more gives
    a 1. Whole numbers only, and never out of order: a larger quotient has no smaller logarithm.
    """
    found = (numerator // denominator).bit_length() - 1
    mantissa = (numerator << _ONE) // (denominator << found)
    for _ in range(_LOG_BITS):
        mantissa = mantissa * mantissa >> _ONE
        found <<= 1
        if mantissa >> _ONE + 1:
            mantissa >>= 1
            found += 1
    return found
