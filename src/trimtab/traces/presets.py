"""What each synthetic preset is calibrated to: every number of the generator, in one place.

Shares, quantiles and rates are rounded statistics of public traces over the period each preset names;
no job of a trace is stored here. Numbers called chosen have no published value: those of `Bursts` were set
so that arrivals vary and correlate as measured, those of `Crowd` so that users and clusters repeat
themselves as much as the papers say.

    philly  Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
            ATC'19; the public subset, 2017-10-03 .. 10-31
    helios  Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
            Datacenters", SC'21; GPU jobs of cluster Venus, 2020-06-01 .. 07-27
    pai     Weng et al., "MLaaS in the Wild", NSDI'22; a sample of finished GPU tasks, days 4 .. 46
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GangClass:
    """Jobs of similar width and how long they run.

    Attributes:
        widths: GPUs -> per cent of all jobs; a preset's numbers need not add up to exactly 100.
        run_time_s: The quantile function: per cent of the class's jobs that run shorter -> seconds, from 0
            to 100 per cent, with straight lines in log time between the knots.
    """

    widths: Mapping[int, float]
    run_time_s: Mapping[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """How jobs clump. A session is one user at work on one kind of job: several bursts of many jobs.

    All chosen, so that variance over mean from five minutes to a day and autocorrelations from five minutes
    to a week come out as measured, and bursts are as long and as large as those in the traces.

    Attributes:
        lone_share: Share of jobs that are sessions of their own, a single job each.
        jobs_median, jobs_sigma, jobs_max: Log-normal size of a burst, cut at the top (and at 2 jobs).
        gap_s_median, gap_sigma: Log-normal mean time between the jobs of a burst of the median size.
        hurry: A burst of n times as many jobs has gaps n ** -hurry as long: great sweeps come from scripts.
        per_session: Mean number of bursts in a session, at least 1.
        session_h: Mean distance of a burst from its session's start, hours.
        day_sigma: Log-normal spread of whole days: deadlines, outages, holidays.
    """

    lone_share: float
    jobs_median: float
    jobs_sigma: float
    jobs_max: int
    gap_s_median: float
    gap_sigma: float
    hurry: float
    per_session: float
    session_h: float
    day_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Who submits, and how much they repeat themselves.

    Attributes:
        users, vcs: Default numbers; the options `users=` and `vcs=` replace them.
        user_zipf: The k-th busiest user starts sessions in proportion to k ** -user_zipf.
        vc_zipf: The same law for the number of users in a virtual cluster.
        new_kind_share: Chance that a session brings a kind of job that its user never ran before.

    The exponents and `new_kind_share` are chosen.
    """

    users: int
    vcs: int
    user_zipf: float
    vc_zipf: float
    new_kind_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One cluster's workload.

    Attributes:
        jobs_a_day: Arrivals at `load=1`.
        hours: Relative rate of the 24 hours of a day, on the clock its comment names; the generated trace
            takes that clock for UTC.
        weekdays: Relative rate of Monday to Sunday.
        gangs: The width classes, narrow to wide.
    """

    name: str
    title: str
    jobs_a_day: float
    hours: tuple[float, ...]
    weekdays: tuple[float, ...]
    gangs: tuple[GangClass, ...]
    bursts: Bursts
    crowd: Crowd


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How alike the run times of related jobs are: shares of the variance of log run time. All chosen.

    What the kind, the session and the burst leave is the job's own.
    """

    kind: float = 0.60
    session: float = 0.15
    burst: float = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """Final states, per cent of GPU jobs: all four Helios clusters, SC'21. The rest completed.

    `pull` is chosen: how strongly failed jobs are the short ones and cancelled jobs the long ones. Helios
    bears that out, where cancelled jobs hold far more than their share of the GPU time.
    """

    cancelled: float = 22.0
    failed: float = 16.0
    pull: float = 0.5


LIKENESS = Likeness()
ENDINGS = Endings()

# Tables, several knots a line.
# fmt: off
PHILLY = Preset(
    name="philly",
    title="Microsoft Philly, October 2017",
    jobs_a_day=1611,
    # Weak, and UTC stamps of a company on Pacific time: quiet from 11 to 18 h.
    hours=(
        1.4, 1.4, 1.3, 1.2, 1.1, 1.2, 1.4, 1.5, 1.3, 1.1, 0.8, 0.7,
        0.7, 0.6, 0.6, 0.6, 0.7, 0.7, 0.7, 0.7, 1.0, 1.0, 1.2, 1.2,
    ),
    weekdays=(1.1, 1.1, 1.2, 1.2, 0.9, 0.7, 0.8),
    gangs=(
        GangClass(
            widths={1: 95.5},
            run_time_s={
                0: 1, 1: 41, 10: 69, 20.1: 300, 50: 1_615, 52.4: 1_800, 78.2: 3_600, 89.3: 7_200,
                94.8: 14_400, 97: 24_500, 98: 54_000, 99: 89_000, 99.5: 125_000, 99.9: 590_000,
                100: 2_600_000,
            },
        ),
        GangClass(
            widths={2: 1.6, 4: 1.6},
            run_time_s={
                0: 2, 10: 14, 25: 20, 44.1: 300, 52.5: 1_800, 55: 3_600, 57.2: 7_200, 58.8: 14_400,
                75: 89_000, 90: 206_000, 95: 343_000, 99: 1_100_000, 100: 2_700_000,
            },
        ),
        GangClass(
            widths={8: 1.14},
            run_time_s={
                0: 17, 5: 146, 9.2: 300, 21.1: 1_800, 23.6: 3_600, 28.1: 7_200, 33.5: 14_400, 50: 77_000,
                75: 193_000, 90: 377_000, 99: 1_080_000, 100: 2_200_000,
            },
        ),
        GangClass(
            widths={12: 0.02, 16: 0.09},
            run_time_s={
                0: 100, 27: 300, 44: 1_800, 50: 14_400, 75: 139_000, 90: 260_000, 95: 870_000, 100: 1_700_000,
            },
        ),
        GangClass(
            widths={24: 0.01, 32: 0.04},
            run_time_s={0: 320, 33: 1_800, 38: 14_400, 50: 48_000, 100: 72_000},
        ),
    ),
    bursts=Bursts(
        lone_share=0.15,  # near the 14 % of jobs that have no other of their virtual cluster within a minute
        jobs_median=40,
        jobs_sigma=1.1,
        jobs_max=600,
        gap_s_median=6.5,
        gap_sigma=0.7,
        hurry=0.2,
        per_session=1.6,
        session_h=0.8,
        day_sigma=0.3,
    ),
    crowd=Crowd(users=320, vcs=14, user_zipf=1.0, vc_zipf=1.5, new_kind_share=0.15),  # ATC'19: 319 and 14
)

HELIOS = Preset(
    name="helios",
    title="SenseTime Helios, cluster Venus, June and July 2020",
    jobs_a_day=636,
    # Local time. SC'21: a low at 6 h, a high at 16 to 17 h, 9 : 1; a dip at lunch.
    hours=(
        5.4, 3.2, 2.3, 1.8, 1.5, 1.2, 1.0, 1.3, 2.4, 5.2, 7.8, 7.6,
        5.8, 7.0, 7.8, 8.5, 9.0, 9.0, 6.6, 6.8, 7.3, 7.2, 6.4, 6.2,
    ),
    weekdays=(1.2, 1.2, 1.1, 1.2, 0.9, 0.6, 0.7),
    gangs=(
        GangClass(
            widths={1: 55.6},
            run_time_s={
                0: 1, 3: 1, 10: 11, 25: 46, 50: 228, 53.9: 300, 71.3: 1_800, 80: 3_600, 83.4: 7_200,
                87.9: 14_400, 90: 22_000, 95: 36_500, 98: 83_000, 99: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={2: 5.2, 3: 0.2, 4: 6.7},
            run_time_s={
                0: 1, 2: 1, 10: 7, 25: 37, 50: 154, 59.6: 300, 76.1: 1_800, 80: 3_600, 83.2: 7_200,
                86: 14_400, 90: 31_000, 95: 99_000, 97.5: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={6: 0.25, 7: 0.2, 8: 20.9},
            run_time_s={
                0: 1, 3: 1, 10: 11, 25: 60, 50: 174, 59.3: 300, 77.7: 1_800, 81: 3_600, 84.1: 7_200,
                86.5: 14_400, 90: 33_000, 95: 71_000, 98.1: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={16: 5},
            run_time_s={
                0: 1, 3: 1, 10: 10, 25: 75, 44.9: 300, 65.3: 1_800, 68.4: 3_600, 71.7: 7_200, 77.8: 14_400,
                90: 67_000, 95: 120_000, 97.5: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={24: 0.65, 32: 1.8},
            run_time_s={
                0: 1, 2: 1, 10: 5, 25: 45, 51: 300, 67.4: 1_800, 71.7: 3_600, 76.7: 7_200, 80.5: 14_400,
                90: 73_000, 95: 135_000, 96.7: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={
                40: 0.5, 48: 0.5, 56: 0.15, 64: 0.15, 72: 0.2, 80: 0.35, 104: 0.2, 112: 0.1, 120: 0.25,
                128: 0.2, 144: 0.1, 152: 0.3, 160: 0.55,
            },
            run_time_s={
                0: 1, 1: 1, 10: 5, 25: 22, 50: 132, 67.4: 300, 87.7: 1_800, 90.7: 3_600, 93: 7_200,
                93.5: 14_400, 95: 26_000, 97: 60_000, 98.8: 172_800, 100: 172_800,
            },
        ),
    ),
    bursts=Bursts(
        lone_share=0.45,
        jobs_median=3.5,
        jobs_sigma=1.3,
        jobs_max=600,
        gap_s_median=20.0,
        gap_sigma=1.0,
        hurry=1.0,
        per_session=3.0,
        session_h=1.0,
        day_sigma=0.3,
    ),
    crowd=Crowd(users=220, vcs=15, user_zipf=0.9, vc_zipf=0.7, new_kind_share=0.25),  # vcs: Venus, Sept 2020
)

PAI = Preset(
    name="pai",
    title="Alibaba PAI, a sample of GPU tasks, 2020",
    jobs_a_day=912,
    # Local time: low at 20 h and after midnight, high at 9 h, in the afternoon and at 22 h.
    hours=(
        0.7, 0.5, 0.7, 0.8, 0.9, 1.1, 0.9, 0.9, 1.2, 1.5, 1.3, 1.1,
        1.1, 1.1, 1.1, 1.4, 1.4, 1.0, 0.9, 0.7, 0.4, 0.5, 1.7, 1.1,
    ),
    weekdays=(1.05, 1.1, 1.1, 1.05, 1.05, 0.80, 0.80),  # NSDI'22 and the sample: weekends a quarter lower
    gangs=(
        GangClass(
            widths={1: 76.8},
            run_time_s={
                0: 7, 5: 26, 10: 35, 25: 98, 42.3: 300, 50: 465, 67.1: 1_800, 75.2: 3_600, 84.6: 7_200,
                92.2: 14_400, 95: 21_400, 98: 44_700, 99: 58_400, 99.5: 92_000, 99.9: 167_000, 100: 172_800,
            },
        ),
        GangClass(
            widths={2: 3.1, 3: 1.5, 4: 1.5},
            run_time_s={
                0: 6, 5: 45, 10: 59, 25: 156, 36.3: 300, 50: 567, 69.2: 1_800, 77.9: 3_600, 85.5: 7_200,
                90.3: 14_400, 95: 36_800, 98: 64_600, 99: 103_000, 99.7: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={5: 1.7, 6: 0.25, 8: 1.35},
            run_time_s={
                0: 27, 5: 70, 10: 88, 25: 207, 30.6: 300, 50: 1_400, 53.2: 1_800, 62.6: 3_600, 77.2: 7_200,
                87.6: 14_400, 95: 34_100, 98: 81_300, 99.3: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={10: 3.75, 12: 0.85, 15: 0.5, 16: 1.2},
            run_time_s={
                0: 29, 5: 104, 10: 157, 23.7: 300, 50: 1_275, 59.3: 1_800, 70.1: 3_600, 80.6: 7_200,
                87.8: 14_400, 95: 28_800, 98: 41_900, 99: 70_000, 99.8: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={20: 2.3, 25: 0.6, 30: 1.1, 40: 0.8},
            run_time_s={
                0: 32, 5: 99, 10: 169, 16.6: 300, 25: 643, 43.1: 1_800, 50: 2_520, 57.8: 3_600, 75.5: 7_200,
                87.4: 14_400, 90: 17_200, 95: 28_600, 98: 55_100, 99: 75_500, 99.6: 172_800, 100: 172_800,
            },
        ),
        GangClass(
            widths={50: 1.45, 60: 0.25, 64: 0.15, 80: 0.2},
            run_time_s={
                0: 22, 5: 36, 10: 153, 16.6: 300, 25: 549, 50: 1_775, 65: 3_600, 76.1: 7_200, 83.5: 14_400,
                90: 25_900, 95: 42_900, 98: 63_900, 99: 84_800, 100: 150_000,
            },
        ),
        GangClass(
            widths={100: 0.45, 150: 0.1, 200: 0.05, 400: 0.03},
            run_time_s={
                0: 38, 5: 117, 8.2: 300, 22.8: 1_800, 37.1: 3_600, 50: 7_200, 67.7: 14_400, 90: 41_900,
                95: 59_100, 98: 66_600, 100: 170_000,
            },
        ),
    ),
    bursts=Bursts(
        lone_share=0.5,
        jobs_median=2.5,
        jobs_sigma=0.5,
        jobs_max=30,
        gap_s_median=15.0,
        gap_sigma=1.0,
        hurry=0.0,
        per_session=2.5,
        session_h=0.7,
        day_sigma=0.12,
    ),
    # Users of the sample's size; PAI itself has over 1,300 (NSDI'22) and groups in place of clusters.
    crowd=Crowd(users=300, vcs=10, user_zipf=0.9, vc_zipf=0.7, new_kind_share=0.37),
)
# fmt: on

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in (PHILLY, HELIOS, PAI)}
