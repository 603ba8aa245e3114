"""Run-time estimates: the history's back-off by hand, no knowledge of the future, the same bits anywhere."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.cluster import Cluster
from trimtab.errors import InvariantError
from trimtab.forecast import durations
from trimtab.forecast.durations import FIRST_GUESS_MS, HistoryEstimator
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import Estimator, OracleEstimator, Workload
from trimtab.traces.synthetic import generate
from trimtab.world import Seeds

HOUR_MS = 3_600_000
FULL_SPEED = 1_000_000


def job(label: str, gpus: int = 1, submit_ms: int = 0, **who: str) -> JobFacts:
    return JobFacts(label, submit_ms, gpus, who.get("vc"), who.get("user"), who.get("name"))


def crowd(seed: int, count: int = 260) -> Workload:
    """Jobs of a few users who repeat themselves, one every five minutes or so."""
    stream = Seeds(seed).stream("crowd")
    submit_ms = stream.integers(600_000, size=count).cumsum().tolist()
    user, name = stream.integers(4, size=count).tolist(), stream.integers(3, size=count).tolist()
    noise = stream.lognormal(0, 0.7, size=count).tolist()
    facts = [
        job(
            f"j{i}",
            1 << (user[i] + name[i]) % 3,
            submit_ms[i],
            user=f"u{user[i]}",
            name=f"n{name[i]}",
            vc="v",
        )
        for i in range(count)
    ]
    return Workload(facts, [1 + round(60_000 * 3 ** (user[i] + name[i]) * noise[i]) for i in range(count)])


class Asked:
    """Passes everything on, and notes each estimate with its instant."""

    def __init__(self, inner: Estimator) -> None:
        self.inner = inner
        self.answers: list[tuple[int, int, int]] = []  # instant, job, estimate
        self.trained_ms: list[int] = []

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        self.inner.observe(facts, duration_ms, now_ms)

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        happened = self.inner.retrain(now_ms, period_ms)
        self.trained_ms += [now_ms] * happened
        return happened

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        answer = self.inner.estimate_ms(job_id, facts, now_ms, history_weight)
        self.answers.append((now_ms, job_id, answer))
        return answer

    def fork(self) -> Asked:
        twin = Asked(self.inner.fork())
        twin.answers, twin.trained_ms = self.answers[:], self.trained_ms[:]
        return twin


def run(
    workload: Workload, nodes: int, estimator: Estimator | None, policy: str = "qssf", **knobs: str
) -> Engine:
    chosen = find_policy(policy)
    environment = Environment(restart_ms=flat_restart(0), estimator=estimator)
    engine = Engine(workload, Cluster.pool(nodes, 8), chosen, chosen.space.parse(knobs), environment)
    engine.run()
    return engine


def mean_wait_s(engine: Engine) -> float:
    waits_ms = [
        record.first_start_ms - facts.submit_ms
        for record, facts in zip(engine.records, engine.workload.facts, strict=True)
        if record.first_start_ms is not None
    ]
    return sum(waits_ms) / len(waits_ms) / 1000


def trained(count: int = 260, seed: int = 0) -> tuple[HistoryEstimator, int]:
    """An estimator with a model, and its present."""
    estimator, workload = HistoryEstimator(), crowd(seed, count)
    history = [
        (facts, duration_ms, facts.submit_ms + duration_ms)
        for facts, duration_ms in zip(workload.facts, workload.duration_ms, strict=True)
    ]
    estimator.warm(history)
    now_ms = max(finish_ms for _, _, finish_ms in history)
    assert estimator.retrain(now_ms, HOUR_MS)
    return estimator, now_ms


def answers(estimator: HistoryEstimator, now_ms: int, alpha: float = 0.1) -> list[int]:
    """What a copy of the estimator says of jobs it has and has not seen the like of."""
    copy = estimator.fork()
    asked = [*crowd(0, 40).facts, job("new"), job("wide", 64, user="u1")]
    return [copy.estimate_ms(place, facts, now_ms, alpha) for place, facts in enumerate(asked)]


# ---- the history mean --------------------------------------------------------------------------


def test_back_off_by_hand() -> None:
    """Five completed jobs, one answer from each group:

    (ann, train, 4): 100 and 201 ms -> 301 // 2 = 150.   (ann, 4): and eval's 900 -> 1201 // 3 = 400.
    (lab, 4): and bob's 3000 in lab -> 4201 // 4 = 1050.  (4): the same four.
    All: and bob's 8-GPU job of 10000 ms -> 14201 // 5 = 2840.
    """
    estimator = HistoryEstimator()
    ann, bob = {"vc": "lab", "user": "ann"}, {"vc": "lab", "user": "bob"}
    for now_ms, (facts, duration_ms) in enumerate(
        [
            (job("1", 4, **ann, name="train"), 100),
            (job("2", 4, **ann, name="train"), 201),
            (job("3", 4, **ann, name="eval"), 900),
            (job("4", 4, **bob, name="train"), 3000),
            (job("5", 8, vc="other", user="bob", name="train"), 10_000),
        ]
    ):
        estimator.observe(facts, duration_ms, now_ms)

    def mean_ms(gpus: int, **who: str) -> int:
        return estimator.estimate_ms(9, job("9", gpus, **who), 5, 0.1)

    assert mean_ms(4, **ann, name="train") == 150
    assert mean_ms(4, **ann, name="other") == 400
    assert mean_ms(4, **ann) == 400
    assert mean_ms(4, vc="lab", user="eve", name="train") == 1050
    assert mean_ms(4, vc="nowhere", user="eve") == 1050
    assert mean_ms(8, **ann, name="train") == 10_000  # nobody but bob, elsewhere, has used 8
    assert mean_ms(2, **ann, name="train") == 2840


def test_an_hour_while_nothing_is_known() -> None:
    assert HistoryEstimator().estimate_ms(0, job("a"), 0, 0.1) == FIRST_GUESS_MS == HOUR_MS


def test_what_the_trace_does_not_tell_makes_no_group() -> None:
    """Two jobs of unknown users are not one user's: the 2-GPU group answers, (7 + 2) // 2, not the last."""
    estimator = HistoryEstimator()
    estimator.observe(job("1", 2, user="ann"), 7, 0)
    estimator.observe(job("2", 2), 2, 1)
    assert estimator.estimate_ms(2, job("3", 2), 1, 0.1) == 4
    assert estimator.estimate_ms(3, job("4", 2, name="x"), 1, 0.1) == 4


def test_an_estimate_is_at_least_a_millisecond() -> None:
    estimator = HistoryEstimator()
    estimator.observe(job("1"), 0, 0)
    assert estimator.estimate_ms(1, job("2"), 0, 1.0) == 1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 10**9)), min_size=1, max_size=12), st.integers(1, 5)
)
def test_only_the_last_jobs_are_remembered(completed: list[tuple[int, int]], keep: int) -> None:
    long, short = HistoryEstimator(keep), HistoryEstimator(keep)
    jobs = [(job(str(i), user=f"u{user}"), duration_ms) for i, (user, duration_ms) in enumerate(completed)]
    for facts, duration_ms in jobs:
        long.observe(facts, duration_ms, 0)
    for facts, duration_ms in jobs[-keep:]:
        short.observe(facts, duration_ms, 0)
    assert (long._completed, long._totals) == (short._completed, short._totals)


# ---- the model ---------------------------------------------------------------------------------


def test_the_blend() -> None:
    estimator, now_ms = trained()
    history, model, blend = (answers(estimator, now_ms, alpha) for alpha in (1.0, 0.0, 0.25))
    assert history != model
    assert blend == [(25 * h + 75 * m) // 100 for h, m in zip(history, model, strict=True)]


def test_training_waits_for_a_period_and_for_100_examples() -> None:
    """Periods of 1000 ms from the first instant, 500: the second begins at 1500, the third at 2500."""
    estimator = HistoryEstimator()

    def complete(count: int, now_ms: int) -> None:
        for i in range(count):
            facts = job(f"{now_ms}/{i}", submit_ms=now_ms)
            estimator.estimate_ms(0, facts, now_ms, 0.1)
            estimator.observe(facts, 10 + i, now_ms)

    complete(99, 500)
    assert not estimator.retrain(1500, 1000), "99 examples"
    complete(1, 1600)
    assert estimator.retrain(1600, 1000), "the period was due since 1500"
    assert not estimator.retrain(2499, 1000)
    assert estimator.retrain(2500, 1000)
    assert not estimator.retrain(2500, 1000)
    assert not estimator.retrain(9999, 0), "no period, no training"


def test_jobs_nobody_asked_about_are_history_and_no_examples() -> None:
    estimator = HistoryEstimator()
    for i in range(200):
        estimator.observe(job(str(i)), 10, 0)
    assert not estimator.retrain(HOUR_MS, 1)


def test_an_example_knows_what_its_submission_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Job 0 is submitted when nothing is known, job k when jobs before k - 1 have completed. Each is asked
    about once more, as after a rescore; that must not replace what its submission knew."""
    seen: list[tuple[float, ...]] = []
    monkeypatch.setattr(
        durations, "_train", lambda rows, duration_ms: seen.extend(map(durations._ROW.unpack, rows))
    )
    estimator = HistoryEstimator()
    jobs = [job(str(k), 2, submit_ms=6 * HOUR_MS + k) for k in range(101)]
    for k, facts in enumerate(jobs):
        estimator.estimate_ms(k, facts, facts.submit_ms, 0.1)
        if k >= 1:
            estimator.estimate_ms(k - 1, jobs[k - 1], facts.submit_ms, 0.1)
            estimator.observe(jobs[k - 1], 50, facts.submit_ms)
    assert estimator.retrain(jobs[-1].submit_ms, 1)
    assert len(seen) == 100
    gpus, sine, cosine, weekday, *groups = seen[0]
    assert (gpus, weekday) == (1, 0)
    assert (sine, cosine) == pytest.approx((1, 0), abs=1e-12)
    assert all(math.isnan(mean) and count == 0 for mean, count in zip(groups[::2], groups[1::2], strict=True))
    for k in range(1, 100):
        # The last two groups are those of the same GPUs and of all; jobs 0 .. k - 2 completed before k came.
        known = k - 1
        assert seen[k][-1] == seen[k][-3] == math.log1p(known)
        assert known == 0 or seen[k][-2] == seen[k][-4] == math.log(50)


# ---- no knowledge of the future ----------------------------------------------------------------


def futures(workload: Workload, engine: Engine, until_ms: int, seed: int) -> list[int]:
    """Run times that differ wherever `until_ms` cannot tell: permuted, and drawn out past it where needed."""
    open_jobs = [
        place
        for place, record in enumerate(engine.records)
        if record.finish_ms is None or record.finish_ms > until_ms
    ]
    altered = list(workload.duration_ms)
    order = Seeds(seed).stream("future").permutation(len(open_jobs)).tolist()
    for place, source in zip(open_jobs, order, strict=True):
        start_ms = engine.records[place].first_start_ms
        ran_ms = max(0, until_ms - start_ms) if start_ms is not None else 0
        altered[place] = max(workload.duration_ms[open_jobs[source]] + 1, ran_ms + 1)
    return altered


def answers_until(workload: Workload, asked: Asked, until_ms: int) -> list[tuple[int, int, int]]:
    run(workload, 3, asked, retrain_period="3600")
    return [answer for answer in asked.answers if answer[0] <= until_ms]


Family = Callable[[Sequence[int]], Estimator]


def leaks(family: Family, seed: int, share: float) -> bool:
    """Whether estimates up to an instant change when the run times of what has not completed by it do."""
    workload = crowd(seed, 200)
    asked = Asked(family(workload.duration_ms))
    engine = run(workload, 3, asked, retrain_period="3600")
    until_ms = round(share * workload.facts[-1].submit_ms)
    before = [answer for answer in asked.answers if answer[0] <= until_ms]
    altered = Workload(workload.facts, futures(workload, engine, until_ms, seed))
    truncated = Workload(
        [facts for facts in altered.facts if facts.submit_ms <= until_ms], altered.duration_ms[: len(before)]
    )
    return any(
        before != answers_until(other, Asked(family(other.duration_ms)), until_ms)
        for other in (altered, truncated)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 0.99))
def test_the_future_changes_no_estimate(seed: int, share: float) -> None:
    assert not leaks(lambda duration_ms: HistoryEstimator(), seed, share)


def test_a_peek_is_found_and_models_were_asked() -> None:
    """The test above is able to fail, and its runs do train."""
    assert leaks(OracleEstimator, 0, 0.5)
    asked = Asked(HistoryEstimator())
    run(crowd(0, 200), 3, asked, retrain_period="3600")
    assert len(asked.trained_ms) >= 5, asked.trained_ms


def test_an_estimator_that_knows_later_things_is_refused() -> None:
    """As when two runs share one estimator instead of forking it."""
    estimator = HistoryEstimator()
    estimator.observe(job("a"), 5, 100)
    with pytest.raises(InvariantError, match="at 99 ms would know what happened until 100 ms"):
        estimator.estimate_ms(0, job("b"), 99, 0.1)
    workload = crowd(0, 20)
    estimator = HistoryEstimator()
    run(workload, 1, estimator.fork())
    run(workload, 1, estimator)
    with pytest.raises(InvariantError, match="own fork"):
        run(workload, 1, estimator)


# ---- copies ------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**8)), max_size=20), st.booleans())
def test_a_fork_is_independent(news: list[tuple[int, int]], retrained: bool) -> None:
    estimator, now_ms = trained()
    before, twin = answers(estimator, now_ms), estimator.fork()
    assert answers(twin, now_ms) == before
    assert twin._model is estimator._model
    for i, (user, duration_ms) in enumerate(news):
        facts = job(f"new{i}", user=f"u{user}", submit_ms=now_ms)
        twin.estimate_ms(0, facts, now_ms + i, 0.1)
        twin.observe(facts, duration_ms, now_ms + 1 + i)
    if retrained:
        assert twin.retrain(now_ms + HOUR_MS + len(news), HOUR_MS)
    assert answers(estimator, now_ms) == before
    assert not estimator._waiting


def test_a_pickled_estimator_says_the_same() -> None:
    """Searches send snapshots, estimator included, to other processes."""
    estimator, now_ms = trained()
    assert answers(pickle.loads(pickle.dumps(estimator)), now_ms) == answers(estimator, now_ms)


def test_warming_equals_having_been_there() -> None:
    """A run's own estimator and one warmed with its completions afterwards agree to the bit. In whole minutes
    many things happen at one instant: completions come first."""
    exact, lived, warmed = crowd(3), HistoryEstimator(), HistoryEstimator()
    facts = [facts._replace(submit_ms=facts.submit_ms // 60_000 * 60_000) for facts in exact.facts]
    workload = Workload(facts, [duration_ms // 60_000 * 60_000 + 60_000 for duration_ms in exact.duration_ms])
    engine = run(workload, 3, lived, retrain_period="2592000")
    finish_ms = [record.finish_ms or 0 for record in engine.records]
    assert set(finish_ms) & {one.submit_ms for one in facts}
    warmed.warm(zip(facts, workload.duration_ms, finish_ms, strict=True))
    assert (warmed._totals, warmed._completed) == (lived._totals, lived._completed)
    assert lived.retrain(max(finish_ms), HOUR_MS)
    assert warmed.retrain(max(finish_ms), HOUR_MS)
    assert answers(warmed, max(finish_ms)) == answers(lived, max(finish_ms))


def test_history_may_be_given_in_any_order() -> None:
    jobs = [(job("a", submit_ms=-9), 5, -4), (job("b", submit_ms=-8), 3, -2), (job("c", submit_ms=-3), 1, -1)]
    forwards, backwards = HistoryEstimator(), HistoryEstimator()
    forwards.warm(jobs)
    backwards.warm(jobs[::-1])
    assert forwards._completed == backwards._completed
    assert forwards.estimate_ms(0, job("d"), 0, 0.1) == 3


_DIGEST = """
import sys
sys.path.insert(0, {folder!r})
from test_durations import digest
print(digest())
"""


def digest() -> str:
    """Of every estimate of one run and every instant of training."""
    asked = Asked(HistoryEstimator())
    run(crowd(5), 2, asked, retrain_period="3600")
    return hashlib.sha256(repr((asked.answers, asked.trained_ms)).encode()).hexdigest()


def test_the_same_in_every_process() -> None:
    here = digest()
    for hash_seed in ("0", "1"):
        paths = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        code = _DIGEST.format(folder=str(Path(__file__).parent))
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert (found.stdout.strip(), found.stderr) == (here, "")


def test_the_model_library_is_imported_only_when_needed() -> None:
    code = (
        "import sys; from trimtab.forecast.durations import HistoryEstimator as H; H();"
        " sys.exit('lightgbm' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


# ---- whole runs --------------------------------------------------------------------------------


def test_training_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    trained()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("policy", ["sjf", "qssf", "srtf", "srsf"])
def test_every_policy_that_reads_estimates_runs_on_predicted_ones(policy: str) -> None:
    engine = run(crowd(1), 1, HistoryEstimator(), policy)
    assert all(record.finish_ms is not None for record in engine.records)


def test_rescoring_asks_anew_about_jobs_in_the_queue() -> None:
    asked, workload = Asked(HistoryEstimator()), crowd(0)
    engine = run(workload, 3, asked, retrain_period="3600", rescore="on")
    assert all(record.finish_ms is not None for record in engine.records)
    anew = [instant for instant, job_id, _ in asked.answers if instant > workload.facts[job_id].submit_ms]
    assert anew
    assert set(anew) <= set(asked.trained_ms)


def test_a_resumed_run_estimates_like_the_uninterrupted_one() -> None:
    workload, policy = crowd(2), find_policy("qssf")
    knobs = policy.space.parse({"retrain_period": "3600"})
    whole = run(workload, 2, HistoryEstimator(), retrain_period="3600")
    environment = Environment(restart_ms=flat_restart(0), estimator=HistoryEstimator())
    first = Engine(workload, Cluster.pool(2, 8), policy, knobs, environment)
    first.run(workload.facts[150].submit_ms)
    snapshot = first.snapshot()
    for _ in range(2):  # the first resumed run must leave the snapshot as it found it
        resumed = Engine.resume(snapshot, workload, first.cluster, policy, environment)
        resumed.run()
        ends_ms = [record.finish_ms for record in resumed.records[150:]]
        assert ends_ms == [record.finish_ms for record in whole.records[150:]]


@pytest.mark.parametrize(("seed", "nodes"), [(0, 54), (1, 52), (2, 54)])
def test_predicted_qssf_lies_between_fifo_and_the_oracle(seed: int, nodes: int) -> None:
    """A week of users who repeat themselves, on a cluster with a little less than it takes. Jobs that do not
    fit are skipped: in strict order one gang as wide as the cluster outweighs all estimates."""
    workload = Workload.of(generate(f"pai?days=7&seed={seed}"), FULL_SPEED)
    work = sum(f.gpus * ms for f, ms in zip(workload.facts, workload.duration_ms, strict=True))
    load = work / (7 * 24 * HOUR_MS * nodes * 8)
    fifo = mean_wait_s(run(workload, nodes, None, "fifo", backfill="skip"))
    oracle = mean_wait_s(run(workload, nodes, OracleEstimator(workload.duration_ms), backfill="skip"))
    predicted = mean_wait_s(run(workload, nodes, HistoryEstimator(), backfill="skip"))
    figures = (
        f"load {load:.3f}; mean wait in s: FIFO {fifo:.0f}, predicted {predicted:.0f}, oracle {oracle:.0f}"
    )
    assert load > 1, figures
    assert oracle < predicted < 0.75 * fifo, figures


def test_predicted_qssf_waits_less_than_fifo_in_strict_order() -> None:
    workload = Workload.of(generate("pai?days=7"), FULL_SPEED)
    fifo = mean_wait_s(run(workload, 54, None, "fifo"))
    predicted = mean_wait_s(run(workload, 54, HistoryEstimator()))
    assert predicted < fifo / 5, f"mean wait in s: FIFO {fifo:.0f}, predicted {predicted:.0f}"
