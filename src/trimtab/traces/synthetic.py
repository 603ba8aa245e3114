"""Synthetic traces: `philly?days=14&load=0.9&seed=3` makes a job history that looks like the real one.

The data flow of `generate`, each step from random streams of its own name:

    sessions  a user sits down to work on one kind of job, at an hour that the daily and weekly rhythm favours
    bursts    of a session: many near-identical jobs within minutes; or a lone job
    kinds     a session repeats a kind its user ran before, or brings a new one
    widths    one per kind, handed out against quotas so that the mix of gangs comes out as published
    run times jobs are ranked by a latent length that kind, session and burst share; the rank is then read
              off the quantile function of the gang class

Ranking makes the run-time distribution of every generated trace the published one, whoever happens to
submit most; what differs between seeds is who runs what, and when.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trimtab.errors import ConfigError, UnknownName
from trimtab.traces.presets import ENDINGS, LIKENESS, PRESETS, Bursts, Crowd, GangClass, Preset
from trimtab.traces.trace import Provenance, Trace
from trimtab.world import Seeds

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

PREFIX = "synthetic:"
ORIGIN_MS = 1_704_067_200_000  # Monday 2024-01-01 00:00 UTC: the rhythm's weekdays are those of the dates
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
JOBS_MAX = 20_000_000  # more does not fit the memory of a workstation
_WHOLE_MAX: Mapping[str, int] = {"seed": 2**63 - 1, "users": 100_000, "vcs": 10_000}
_REAL_MAX: Mapping[str, float] = {"days": 3_660.0, "load": 1_000.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may follow the `?` of a spec; None stands for the preset's own number."""

    days: float = 28.0
    load: float = 1.0  # times the preset's arrivals a day; the jobs themselves stay as they are
    seed: int = 0
    users: int | None = None
    vcs: int | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Who submits when. The first three are of shape (jobs,) and sorted by time, the others (sessions,)."""

    submit_s: IntArray  # from the trace's start
    burst: IntArray
    session: IntArray
    session_start_s: FloatArray
    session_user: IntArray  # 0 is the busiest user


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of job that users repeat."""

    of_session: IntArray  # shape (sessions,), dense
    number: IntArray  # shape (kinds,): 1 for its user's first kind, then upwards


def generate(spec: str) -> Trace:
    """Return the trace that a spec names; the same spec gives the same bytes.

    Args:
        spec: `PRESET` or `PRESET?days=28&load=1&seed=0&users=320&vcs=14`, with or without `synthetic:` in
            front. `load` multiplies the preset's arrivals a day: rate x load x days jobs come out.

    Raises:
        UnknownName: If the preset or an option is not known.
        ConfigError: If a value is not allowed.

    Example:
        >>> len(generate("synthetic:philly?days=14&load=0.9"))      # 14 x 0.9 x 1,611 jobs
        20299
    """
    preset, options = parse(spec)
    jobs_count = max(1, round(preset.jobs_a_day * options.load * options.days))
    if jobs_count > JOBS_MAX:
        raise ConfigError(
            f"{spec!r} asks for {jobs_count:,} jobs, the limit is {JOBS_MAX:,}; nothing was made."
        )
    seeds = Seeds(options.seed)
    arrivals = _arrivals(preset, jobs_count, options.days, seeds)
    kinds = _kinds(arrivals, preset.crowd, seeds)
    kind = kinds.of_session[arrivals.session]
    gpus = _widths(preset, kind, seeds)
    duration_s = _run_times_s(preset, gpus, _latent_length(arrivals, kind, seeds))
    user = arrivals.session_user[arrivals.session]
    jobs = pl.DataFrame(
        {
            "job_id": _labels("j", np.arange(1, jobs_count + 1)),
            "submit_ms": ORIGIN_MS + 1000 * arrivals.submit_s,
            "duration_ms": 1000 * duration_s,
            "gpus": gpus,
            "vc": _labels("vc", _user_vcs(preset.crowd, seeds)[user] + 1),
            "user": _labels("u", user + 1),
            "name": _labels("u", user + 1) + _labels("-k", kinds.number[kind]),
            "state": _states(duration_s, seeds),
        }
    )
    return Trace.build(jobs, _provenance(preset, options, jobs_count), dated=True)


def parse(spec: str) -> tuple[Preset, Options]:
    """Return the preset, with the numbers of users and virtual clusters asked for, and the options.

    Raises:
        UnknownName: If the preset or an option is not known.
        ConfigError: If a value is not allowed.
    """
    name, _, query = spec.removeprefix(PREFIX).partition("?")
    if name not in PRESETS:
        raise UnknownName("synthetic preset", name, PRESETS)
    options = _options(query)
    preset = PRESETS[name]
    users = options.users or preset.crowd.users
    vcs = options.vcs or min(preset.crowd.vcs, users)
    if vcs > users:
        raise ConfigError(
            f"vcs={vcs} is more than the {users} users there are to fill them; nothing was made."
        )
    return replace(preset, crowd=replace(preset.crowd, users=users, vcs=vcs)), options


def _options(query: str) -> Options:
    known = [item.name for item in fields(Options)]
    values: dict[str, int | float] = {}
    for part in query.split("&") if query else []:
        name, equals, text = part.partition("=")
        if not equals:
            raise ConfigError(f"synthetic option {part!r} is not NAME=VALUE, e.g. days=14; nothing was made.")
        if name not in known:
            raise UnknownName("synthetic option", name, known)
        if name in values:
            raise ConfigError(f"synthetic option {name!r} is given twice; nothing was made.")
        values[name] = _real(name, text) if name in _REAL_MAX else _whole(name, text)
    return Options(**values)  # type: ignore[arg-type]  # each name got the type of its field above


def _whole(name: str, text: str) -> int:
    least, most = (0 if name == "seed" else 1), _WHOLE_MAX[name]
    if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise ConfigError(f"{name}={text} is not a whole number from {least} to {most}; nothing was made.")
    return int(text)


def _real(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _REAL_MAX[name]:
        raise ConfigError(
            f"{name}={text} is not a number above 0 and at most {_REAL_MAX[name]:g}; nothing was made."
        )
    return value


def _provenance(preset: Preset, options: Options, rows: int) -> Provenance:
    """Name every option in one order, so that one trace has one name, however it was asked for."""
    source = (
        f"{PREFIX}{preset.name}?days={options.days:.12g}&load={options.load:.12g}&seed={options.seed}"
        f"&users={preset.crowd.users}&vcs={preset.crowd.vcs}"
    )
    note = f"Synthetic: made to resemble {preset.title}; none of these jobs ever ran."
    return Provenance(source, hashlib.sha256(source.encode()).hexdigest(), rows, notes=(note,))


def _arrivals(preset: Preset, jobs_count: int, days: float, seeds: Seeds) -> Arrivals:
    bursts = preset.bursts
    sizes = _burst_sizes(bursts, round((1 - bursts.lone_share) * jobs_count), seeds)
    session_of_burst = _group(len(sizes), bursts.per_session, seeds)
    lone_count = jobs_count - int(sizes.sum())
    worked = int(session_of_burst.max(initial=-1)) + 1
    sessions = np.concatenate([session_of_burst, np.arange(worked, worked + lone_count)])
    sizes = np.concatenate([sizes, np.ones(lone_count, dtype=np.int64)])
    start_s = _session_starts_s(preset, worked + lone_count, days, seeds)
    burst = np.repeat(np.arange(len(sizes)), sizes)
    exact_s = (start_s[sessions] + _burst_delays_s(bursts, sizes, seeds))[burst]
    exact_s += _spread_s(bursts, sizes, seeds)
    # What runs over the end comes in at the start, as if its session had begun before the trace did.
    submit_s = (exact_s % (days * DAY_S)).astype(np.int64)
    order = np.argsort(submit_s, kind="stable")
    user = _zipf_draws(preset.crowd.users, preset.crowd.user_zipf, len(start_s), seeds.stream("user"))
    return Arrivals(submit_s[order], burst[order], sessions[burst][order], start_s, user)


def _burst_sizes(bursts: Bursts, jobs: int, seeds: Seeds) -> IntArray:
    """Return sizes that add up to nearly `jobs`, never more; shape (bursts,)."""

    def size_at(share: FloatArray) -> FloatArray:
        sizes = bursts.jobs_median * np.exp(bursts.jobs_sigma * _normal(share))
        return np.asarray(np.clip(np.rint(sizes), 2, bursts.jobs_max), dtype=np.float64)

    mean = float(size_at((np.arange(1000) + 0.5) / 1000).mean())
    shares = _strata(max(1, round(jobs / mean)), seeds.stream("burst", "size"))
    sizes = size_at(shares).astype(np.int64)
    return sizes[np.cumsum(sizes) <= jobs]


def _group(bursts_count: int, per_session: float, seeds: Seeds) -> IntArray:
    """Return the session of each burst, dense from 0."""
    boxes = max(1, round(bursts_count / per_session))
    drawn = seeds.stream("burst", "session").integers(boxes, size=bursts_count)
    return np.unique(drawn, return_inverse=True)[1].astype(np.int64)


def _session_starts_s(preset: Preset, count: int, days: float, seeds: Seeds) -> FloatArray:
    """Draw start times in [0, days) by the rhythm of hours, weekdays and good and bad days."""
    hour = np.arange(math.ceil(days * 24))
    mood = preset.bursts.day_sigma * seeds.stream("day").standard_normal(math.ceil(days))
    rate = np.take(preset.hours, hour % 24) * np.take(preset.weekdays, hour // 24 % 7)
    rate = rate * np.exp(mood)[hour // 24]
    edges_s = np.append(hour * float(HOUR_S), days * DAY_S)
    expected = np.append(0.0, np.cumsum(rate * np.diff(edges_s)))
    drawn = seeds.stream("session", "start").random(count)
    return np.asarray(np.interp(drawn * expected[-1], expected, edges_s), dtype=np.float64)


def _burst_delays_s(bursts: Bursts, sizes: IntArray, seeds: Seeds) -> FloatArray:
    """Return how long after its session's start each burst begins; a lone job begins its session."""
    delays_s = seeds.stream("burst", "delay").exponential(bursts.session_h * HOUR_S, len(sizes))
    return np.where(sizes > 1, delays_s, 0.0)


def _spread_s(bursts: Bursts, sizes: IntArray, seeds: Seeds) -> FloatArray:
    """Return each job's distance from its burst's start, shape (jobs,)."""
    stream = seeds.stream("burst", "spread")
    gap_s = bursts.gap_s_median * np.exp(bursts.gap_sigma * stream.standard_normal(len(sizes)))
    gap_s *= (sizes / bursts.jobs_median) ** -bursts.hurry
    return np.repeat(gap_s * (sizes - 1), sizes) * stream.random(int(sizes.sum()))


def _kinds(arrivals: Arrivals, crowd: Crowd, seeds: Seeds) -> Kinds:
    """Let each session repeat the kind of a random earlier one of its user, or bring a new kind.

    Repeating a random earlier session favours kinds in proportion to their use so far, which gives the
    few very frequent and many rare kinds that users have (Simon's process).
    """
    order = np.lexsort((arrivals.session_start_s, arrivals.session_user))
    user = arrivals.session_user[order]
    place = np.arange(len(order))
    first = np.searchsorted(user, user, side="left")  # where the user's sessions begin
    stream = seeds.stream("kind")
    fresh = (stream.random(len(order)) < crowd.new_kind_share) | (place == first)
    model = np.where(fresh, place, first + (stream.random(len(order)) * (place - first)).astype(np.int64))
    while not np.array_equal(model, model[model]):
        model = model[model]
    seen = np.cumsum(fresh)  # kinds up to here, over all users
    of_session = np.empty(len(order), dtype=np.int64)
    of_session[order] = seen[model] - 1
    return Kinds(of_session, (seen - seen[first] + 1)[fresh])


def _widths(preset: Preset, kind: IntArray, seeds: Seeds) -> IntArray:
    """Return the GPUs of each job: one width per kind, and the mix of jobs as the preset has it.

    The most frequent kinds choose first, each in proportion to the quotas that still have room for all
    its jobs. So a kind that would upset the mix gets a common width, as the great sweeps of one-GPU jobs do.
    """
    widths = np.array([width for gang in preset.gangs for width in gang.widths], dtype=np.int64)
    shares = np.array([share for gang in preset.gangs for share in gang.widths.values()])
    room = shares / shares.sum() * len(kind)
    jobs_of_kind = np.bincount(kind)
    chances = seeds.stream("width").random(len(jobs_of_kind))
    chosen = np.empty(len(jobs_of_kind), dtype=np.int64)
    for item in np.argsort(-jobs_of_kind, kind="stable"):
        jobs = jobs_of_kind[item]
        fitting = np.cumsum(np.where(room >= jobs, room, 0.0))
        if fitting[-1] > 0:
            pick = int(np.searchsorted(fitting, chances[item] * fitting[-1], side="right"))
        else:
            pick = int(np.argmax(room))
        room[pick] -= jobs
        chosen[item] = widths[pick]
    return chosen[kind]


def _latent_length(arrivals: Arrivals, kind: IntArray, seeds: Seeds) -> FloatArray:
    """Return a standard normal number per job that jobs of one kind, session and burst partly share."""
    own = 1 - LIKENESS.kind - LIKENESS.session - LIKENESS.burst
    parts = (
        ("kind", LIKENESS.kind, kind),
        ("session", LIKENESS.session, arrivals.session),
        ("burst", LIKENESS.burst, arrivals.burst),
        ("job", own, np.arange(len(kind))),
    )
    length = np.zeros(len(kind))
    for name, share, group in parts:
        drawn = seeds.stream("length", name).standard_normal(int(group.max()) + 1)
        length += math.sqrt(share) * drawn[group]
    return length


def _run_times_s(preset: Preset, gpus: IntArray, length: FloatArray) -> IntArray:
    """Read each job's rank among its gang class off the class's quantile function; whole seconds, >= 1."""
    duration_s = np.ones(len(gpus))
    for gang in preset.gangs:
        jobs = np.flatnonzero(np.isin(gpus, list(gang.widths)))
        share = _ranks(length[jobs])
        duration_s[jobs] = _quantile_s(gang, share)
    return np.maximum(1, np.rint(duration_s)).astype(np.int64)


def _quantile_s(gang: GangClass, share: FloatArray) -> FloatArray:
    percents, seconds = np.array(list(gang.run_time_s)), np.array(list(gang.run_time_s.values()))
    return np.asarray(np.exp(np.interp(100 * share, percents, np.log(seconds))), dtype=np.float64)


def _states(duration_s: IntArray, seeds: Seeds) -> pl.Series:
    """Return final states: failed jobs tend to be short, cancelled ones long."""
    noise = seeds.stream("state").standard_normal(len(duration_s))
    score = ENDINGS.pull * _normal(_ranks(duration_s)) + math.sqrt(1 - ENDINGS.pull**2) * noise
    percent = 100 * _ranks(score)
    states = np.where(percent < ENDINGS.failed, "failed", "completed")
    return pl.Series(np.where(percent > 100 - ENDINGS.cancelled, "cancelled", states))


def _user_vcs(crowd: Crowd, seeds: Seeds) -> IntArray:
    """Return the virtual cluster of each user, shape (users,); every one has a user, the first has most."""
    vcs = _zipf_draws(crowd.vcs, crowd.vc_zipf, crowd.users, seeds.stream("vc"))
    vcs[: crowd.vcs] = np.arange(crowd.vcs)
    return vcs


def _zipf_draws(ranks: int, exponent: float, count: int, stream: np.random.Generator) -> IntArray:
    weight = np.cumsum(np.arange(1, ranks + 1, dtype=np.float64) ** -exponent)
    drawn = _strata(count, stream) * weight[-1]
    return np.asarray(np.searchsorted(weight, drawn, side="right"), dtype=np.int64)


def _strata(count: int, stream: np.random.Generator) -> FloatArray:
    """Return uniform numbers in random order, one from each of `count` equal slices of [0, 1).

    A heavy tail drawn this way is as heavy in every trace, instead of missing from most and huge in a few.
    """
    drawn = (stream.permutation(count) + stream.random(count)) / count
    return np.asarray(np.minimum(drawn, np.nextafter(1.0, 0.0)), dtype=np.float64)  # may have rounded to 1


def _normal(share: FloatArray) -> FloatArray:
    """Return the standard normal quantiles of shares in (0, 1)."""
    from scipy.special import ndtri  # here because only synthetic traces need it, and importing it takes long

    return np.asarray(ndtri(share), dtype=np.float64)


def _ranks(values: np.ndarray) -> FloatArray:
    """Return each value's rank as a share in (0, 1); equal values keep their order."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values)) + 0.5
    return ranks / len(values)


def _labels(prefix: str, numbers: np.ndarray) -> pl.Series:
    """Return prefix + number, padded to the width of the largest so that labels sort as numbers do."""
    digits = max(3, len(str(int(numbers.max(initial=1)))))
    return prefix + pl.Series(numbers).cast(pl.String).str.zfill(digits)
