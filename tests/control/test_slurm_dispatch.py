"""A dispatcher beside a Slurm that is only its commands: what it decides, does, leaves alone, survives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from commands import Trimtab
from fake_slurm import BEGAN_S, FakeJob, FakeSlurm
from trimtab.control import slurm_desk, slurm_dispatch, slurm_queue
from trimtab.control.adapter import Unreachable
from trimtab.control.dispatch_settings import read_dispatch
from trimtab.control.slurm_commands import Answer
from trimtab.control.slurm_dispatch import Dispatcher, read_progress
from trimtab.control.slurm_ticket import Ticket, make_service, read_comment
from trimtab.errors import ConfigError

_TO_GO = Ticket(preemptable=True, estimate_ms=600_000)
_FIXED = Ticket(estimate_ms=600_000)


class Desk:
    """A fake Slurm, a settings file, and dispatchers that come and go."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.slurm, self.folder, self.told = FakeSlurm(nodes), folder, []  # type: tuple[FakeSlurm, Path, list[str]]
        self.write("")

    def write(self, knobs: str, policy: str = "tiresias", more: str = "") -> None:
        text = f'policy = "{policy}"\ndesk = "desk"\npatience = "30s"\n{more}\n[knobs]\n{knobs}\n'
        (self.folder / "dispatch.toml").write_text(text)

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.slurm, read_dispatch(self.folder / "dispatch.toml"), self.told.append)

    def play(self, seconds: int, every: int = 5) -> None:
        """Let one dispatcher work for a while."""
        one = self.dispatcher()
        for _ in range(seconds // every):
            one.step()
            self.slurm.tick(every)

    def told_of(self, job: FakeJob) -> list[str]:
        return [text.removeprefix(f"job {job.label}: ") for text in self.told if f"job {job.label}:" in text]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    one = Desk(tmp_path)
    for module in (slurm_queue, slurm_dispatch, slurm_desk):
        monkeypatch.setattr(module, "epoch_ms", lambda: one.slurm.now_s * 1000)
    yield one
    for job in one.slurm.jobs.values():
        assert sum(other.label == job.label for other in one.slurm.jobs.values()) == 1


# ---- what it does ------------------------------------------------------------------------------------


def test_jobs_start_in_the_policys_order_on_the_nodes_it_chose(desk: Desk) -> None:
    first, second, third = (desk.slurm.submit(8, 20, _FIXED) for _ in range(3))
    desk.play(60)
    assert [job.state for job in (first, second, third)] == ["COMPLETED"] * 3
    assert first.runs == second.runs == [BEGAN_S + 1]
    assert len(third.runs) == 1
    assert third.runs[0] > BEGAN_S + 20
    assert (first.pinned, second.pinned) == (("g1",), ("g2",))


def test_a_preemptable_job_gives_way_and_goes_on_from_where_it_was(desk: Desk) -> None:
    desk.write("queue_thresholds = [60]")
    long = desk.slurm.submit(16, 60, _TO_GO)
    desk.play(20)
    assert long.state == "RUNNING"
    short = desk.slurm.submit(16, 5, _TO_GO)
    desk.play(120)
    assert (long.state, short.state) == ("COMPLETED", "COMPLETED")
    assert (long.restarts, len(long.runs), long.done_s) == (1, 2, 60)
    assert short.runs[0] < long.runs[1]
    assert long.runs[1] - short.runs[0] < 30  # not the two minutes that Slurm would let it wait


def test_what_a_job_has_attained_outlasts_its_requeue(desk: Desk) -> None:
    desk.write("queue_thresholds = [600]")
    job = desk.slurm.submit(16, 100, _TO_GO)
    desk.play(50)
    desk.slurm.submit(16, 5, _TO_GO)
    desk.play(40)
    told = read_comment(job.comment)
    assert told is not None
    held_ms, work_ms = told[1].before(None)
    assert held_ms == work_ms
    assert held_ms == pytest.approx(50_000, abs=6000)
    assert told[1].submit == BEGAN_S * 1000


def test_a_job_that_may_not_be_requeued_keeps_its_gpus(desk: Desk) -> None:
    desk.write("queue_thresholds = [60]")
    long = desk.slurm.submit(16, 60, _FIXED)
    desk.play(20)
    short = desk.slurm.submit(16, 5, _TO_GO)
    desk.play(80)
    assert long.restarts == 0
    assert short.runs[0] > long.end_s - 10  # type: ignore[operator]


class TestWhoseJobsItAre:
    """It touches what is its own, and nothing else."""

    def test_jobs_of_others_are_room_that_is_taken(self, desk: Desk) -> None:
        other = desk.slurm.submit(8, 40, comment="nightly run")
        desk.slurm.tick()
        mine = [desk.slurm.submit(8, 10, _TO_GO) for _ in range(3)]
        desk.play(80)
        assert [job.state for job in mine] == ["COMPLETED"] * 3
        assert {job.pinned for job in mine} == {("g2",)}
        assert (other.comment, other.restarts, len(other.runs)) == ("nightly run", 0, 1)
        assert not [words for words in desk.slurm.log if words[0] == "scontrol" and "1" in words]

    @pytest.mark.parametrize(
        "values",
        [
            {"comment": "trimtab:2;class=soft"},
            {"comment": "trimtab:1;colour=red"},
            {"reason": "JobHeldAdmin"},
            {"reason": "launch failed requeued held"},
            {"dependency": "afterok:7(unfulfilled)"},
            {"eligible_s": BEGAN_S + 10**6},
            {"priority": 100, "reason": "Resources", "eligible_s": BEGAN_S + 10**6},
        ],
    )
    def test_what_is_kept_back_is_left_alone(self, desk: Desk, values: dict[str, object]) -> None:
        kept = desk.slurm.submit(4, 10, _TO_GO, **values)
        desk.play(20)
        assert (kept.state, kept.pinned) == ("PENDING", ())
        assert not [words for words in desk.slurm.log if words[0] == "scontrol"]
        if "comment" in values:
            assert len(desk.told_of(kept)) == 1
            assert desk.told_of(kept)[0].endswith("it is left alone")

    def test_a_job_that_fits_nowhere_is_said_once(self, desk: Desk) -> None:
        wide = desk.slurm.submit(17, 10, _TO_GO)
        desk.play(30)
        assert desk.told_of(wide) == ["has 17 GPUs, more than there are: it waits"]


# ---- shares ------------------------------------------------------------------------------------------

_CURVES = """model,cpus_per_gpu,memory_gib_per_gpu,speed
hungry,1,62.5,0.2
hungry,8,62.5,1.0
hungry,14,62.5,2.0
modest,1,62.5,1.0
modest,8,62.5,1.0
modest,14,62.5,1.0
"""


def test_shares_are_written_while_a_job_waits(desk: Desk) -> None:
    (desk.folder / "curves.csv").write_text(_CURVES)
    desk.write('unit_mode = "explicit"\npair_scope = "all"', "sensascale", 'curves = "curves.csv"')
    soon_ms = 1000 * (BEGAN_S + 3000)
    hungry = desk.slurm.submit(4, 60, Ticket(make_service(None, (soon_ms,), ()), 600_000, model="hungry"))
    modest = desk.slurm.submit(4, 60, Ticket(make_service(None, (soon_ms,), ()), 600_000, model="modest"))
    desk.play(20)
    assert hungry.pinned == modest.pinned
    assert hungry.cores > 32 > modest.cores >= 4
    assert hungry.cores + modest.cores <= 64
    assert {job.state for job in (hungry, modest)} == {"RUNNING"}


def test_a_share_is_what_the_node_still_has(desk: Desk) -> None:
    desk.write("", "sensascale")
    desk.slurm.submit(4, 600, cores=50, memory_mib=400_000)
    desk.slurm.submit(8, 600, comment="other", pinned=("g2",))
    desk.slurm.tick()
    mine = desk.slurm.submit(4, 60, _FIXED)
    desk.play(10)
    assert (mine.state, mine.cores, mine.memory_mib) == ("RUNNING", 14, 112_000)


def test_a_node_without_cpu_is_waited_for_and_said(desk: Desk) -> None:
    for _ in range(2):
        desk.slurm.submit(4, 30, cores=60)
    desk.slurm.tick()
    mine = desk.slurm.submit(4, 10, _FIXED, cores=10)
    one = desk.dispatcher()
    one.step()
    one.step()
    assert desk.told_of(mine)[0].startswith("node g1 has 4 cores")
    assert len(desk.told_of(mine)) == 1
    desk.play(60)
    assert mine.state == "COMPLETED"


# ---- faults ------------------------------------------------------------------------------------------


def test_a_controller_that_is_down_is_waited_for(desk: Desk) -> None:
    one, job = desk.dispatcher(), desk.slurm.submit(8, 10, _FIXED)

    class Stop:
        """Stands for the event; each wait is a second of Slurm's, which is down from the second on."""

        waits = 0

        def is_set(self) -> bool:
            return self.waits >= 8

        def wait(self, seconds: float) -> None:
            self.waits += 1
            down = {"squeue": Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")}
            desk.slurm.set(answers=down if 2 <= self.waits < 6 else {})
            desk.slurm.tick()

    one.run(Stop())  # type: ignore[arg-type]
    said = [text for text in desk.told if "contact" in text or "again" in text]
    assert said == [
        "squeue: slurm_load_jobs error: Unable to contact slurm controller Waiting until Slurm answers.",
        "Slurm answers again",
    ]
    assert job.runs


@pytest.mark.parametrize("program", ["squeue", "sinfo", "scontrol"])
@pytest.mark.parametrize(
    "said", ["no answer in 20 s.", Answer(0, "", ""), Answer(1, "", ""), Answer(0, "?\n", "")]
)
def test_an_answer_that_says_nothing_is_no_harm(desk: Desk, program: str, said: Answer | str) -> None:
    jobs = [desk.slurm.submit(8, 10, _TO_GO) for _ in range(3)]
    desk.slurm.set(answers={program: said})
    for _ in range(3):
        with suppress(Unreachable):
            desk.dispatcher().step()
        desk.slurm.tick()
    assert all(not job.runs for job in jobs)
    desk.slurm.set(answers={})
    desk.play(60)
    assert [(job.state, len(job.runs)) for job in jobs] == [("COMPLETED", 1)] * 3


def test_a_warning_printed_first_is_no_part_of_a_table(desk: Desk) -> None:
    job, plain = desk.slurm.submit(8, 10, _FIXED), desk.slurm._table
    warned = lambda form, rows: Answer(0, "squeue: warning: odd\n" + plain(form, rows).out, "")  # noqa: E731
    desk.slurm.set(_table=warned)
    desk.play(30)
    assert job.state == "COMPLETED"


@pytest.mark.parametrize("verb", ["update", "release"])
def test_a_job_cancelled_before_it_is_released_is_let_go(desk: Desk, verb: str) -> None:
    job, next_one = desk.slurm.submit(16, 10, _FIXED), desk.slurm.submit(16, 10, _FIXED)

    def cancel_in_time() -> None:
        if job.state == "PENDING" and len(desk.slurm.log) == (2 if verb == "update" else 3):
            desk.slurm.cancel(job)

    desk.slurm.set(before=cancel_in_time)
    desk.play(60)
    assert (job.state, job.runs) == ("CANCELLED", [])
    assert desk.told_of(job) == [f"scontrol {verb}: Job has already finished; it is looked at again"]
    assert next_one.state == "COMPLETED"


def test_a_job_that_ends_before_it_is_requeued_does_not_run_once_more(desk: Desk) -> None:
    desk.write("queue_thresholds = [60]")
    long = desk.slurm.submit(16, 30, _TO_GO)
    desk.play(20)
    desk.slurm.submit(16, 5, _TO_GO)

    def finish_in_time() -> None:
        if long.runs_now() and "losses=1" in desk.slurm.log[-1][-1]:
            desk.slurm._end(long, "COMPLETED")

    desk.slurm.set(before=finish_in_time)
    desk.play(60)
    assert ("scontrol", "requeuehold", "Incomplete", long.label) in desk.slurm.log
    assert (long.state, len(long.runs)) == ("COMPLETED", 1)


def test_a_drained_node_gets_no_jobs_and_gives_back_those_that_wait_for_it(desk: Desk) -> None:
    other = desk.slurm.submit(8, 10**6, comment="other")
    desk.slurm.tick()
    job, one = desk.slurm.submit(8, 10, _FIXED), desk.dispatcher()
    one.step()
    assert (job.pinned, job.priority) == (("g2",), 100)
    desk.slurm.nodes["g2"].state = "drained"
    one.step()
    assert job.priority == 0
    one.step()
    assert job.priority == 0
    desk.slurm.cancel(other)
    desk.slurm.tick()
    desk.play(30)
    assert (job.pinned, job.state) == (("g1",), "COMPLETED")


def test_a_job_that_slurm_does_not_start_is_held_again(desk: Desk) -> None:
    """Somebody else's job took the room in between."""
    job, one = desk.slurm.submit(8, 10, _FIXED), desk.dispatcher()
    desk.slurm.submit(8, 10**6, comment="other", pinned=("g2",))
    desk.slurm.tick()
    one.step()
    assert job.pinned == ("g1",)
    desk.slurm.submit(8, 10**6, comment="other", state="RUNNING", held={"g1": 8}, start_s=desk.slurm.now_s)
    desk.slurm.tick(31)
    one.step()
    assert desk.told_of(job)[-1] == "held again, Slurm has not started it in 31 s on g1"
    assert (job.priority, job.runs) == (0, [])


class Killed(BaseException):
    """A kill -9: nothing runs after it."""


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_command_no_job_is_lost_and_none_runs_twice(desk: Desk, seed: int) -> None:
    """Time passes at any command as well, so that what was decided on may be over when it is done."""
    dice, slurm = np.random.default_rng(seed), desk.slurm
    desk.write(*("queue_thresholds = [60]", "tiresias") if seed % 2 else ("", "sensascale-plus"))
    late_ms = 1000 * (BEGAN_S + 900)

    def new() -> FakeJob:
        service = make_service(None, (late_ms,), ()) if dice.random() < 0.5 else _TO_GO.service
        ticket = Ticket(service, int(dice.integers(5, 200)) * 1000, bool(dice.random() < 0.7))
        return slurm.submit(int(dice.integers(1, 17)), int(dice.integers(1, 80)), ticket)

    def perhaps_killed() -> None:
        slurm.tick(int(dice.integers(0, 3)))
        if dice.random() < 0.12:
            raise Killed

    mine = [new() for _ in range(6)]
    others = [slurm.submit(int(dice.integers(1, 9)), 50, comment="other") for _ in range(2)]
    slurm.set(before=perhaps_killed, after=perhaps_killed)
    for _ in range(40):
        if len(mine) < 12 and dice.random() < 0.3:
            mine.append(new())
        try:
            one = desk.dispatcher()
            for _ in range(5):
                one.step()
                slurm.tick(2)
        except Killed:
            continue
    slurm.set(before=lambda: None, after=lambda: None)
    for _ in range(100):
        if any(job.state != "COMPLETED" for job in mine):
            desk.play(15)
    for job in mine:
        assert job.state == "COMPLETED", (job, desk.told_of(job))
        assert (job.done_s, job.ends) == (job.work_s, 1)
        assert len(job.runs) == 1 + job.restarts
        assert job.restarts == 0 or "preempt=yes" in job.comment
    owned = {job.label for job in mine}
    changing = [words for words in slurm.log if words[:2] != ("scontrol", "show")]
    touched = {word.removeprefix("jobid=") for words in changing for word in words if _is_label(word)}
    assert touched <= owned
    assert all(job.comment == "other" and len(job.runs) == 1 for job in others)


def _is_label(word: str) -> bool:
    return word.removeprefix("jobid=").isdecimal()


# ---- knobs -------------------------------------------------------------------------------------------


def test_knobs_of_the_file_are_taken_up_while_it_runs(desk: Desk) -> None:
    one = desk.dispatcher()
    one.step()
    desk.write("num_queues = 1\nqueue_thresholds = []")
    one.step()
    one.step()
    assert [text.split(",")[0] for text in desk.told] == [
        "tiresias goes by num_queues=2",
        "tiresias goes by num_queues=1",
    ]
    desk.write("num_queues = 99")
    one.step()
    one.step()
    assert len(desk.told) == 3
    assert "num_queues" in desk.told[2]
    assert desk.told[2].endswith("The knobs from before stay.")


def test_what_was_written_last_outlasts_a_restart(desk: Desk) -> None:
    desk.dispatcher().step()
    desk.write("queue_thresholds = [60]")
    desk.dispatcher().step()
    desk.slurm.tick()
    desk.dispatcher().step()
    assert len(desk.told) == 3
    assert desk.told[1] == desk.told[2]
    assert "queue_thresholds=60," in desk.told[2]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "policy is missing"),
        ('policy = "lucid"\ndesk = "d"', "two jobs on one GPU"),
        ('policy = "slurm"\ndesk = "d"', "cannot drive Slurm"),
        ('policy = "tiresias"', "desk is missing"),
        ('policy = "tiresias"\ndesk = "d"\ncolour = 3', "unknown setting 'colour'"),
        ('policy = "tiresias"\ndesk = "d"\ninterval = "0s"', "interval"),
        ('policy = "tiresias"\ndesk = "d"\n[knobs]\nnum_queues = 99', "num_queues"),
        ('policy = "tiresias"\ndesk = "d"\n[knobs]\nnum_queues = {}', "num_queues"),
        ('policy = "tiresias"\ndesk = "d"\ncurves = "nothing.csv"', "nothing.csv"),
        ('policy = "tiresias"\ndesk = "d"\nplacement = "count"', "placement"),
        ("policy = ", "is no TOML"),
    ],
)
def test_settings_that_are_not_possible(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "dispatch.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rule) as said:
        read_dispatch(path)
    assert "\n" not in str(said.value)
    assert str(said.value).endswith("nothing was changed.")


def test_two_dispatchers_do_not_work_in_one_folder(desk: Desk) -> None:
    with (
        slurm_desk.Desk(desk.folder / "desk").alone(),
        pytest.raises(ConfigError, match="another dispatcher"),
    ):
        desk.dispatcher().once(is_dry=False)


# ---- what jobs say of themselves -----------------------------------------------------------------------


def test_progress_is_a_number_in_a_file(tmp_path: Path) -> None:
    good = {"1": "0.25\n", "2": "1", "3": ".5", "4": "0"}
    bad = {"5": "2", "6": "-1", "7": "nan", "8": "1e3", "9": "", "10": "0.1 " * 20, "11": "1.5"}
    for label, text in (good | bad).items():
        (tmp_path / label).write_text(text)
    (tmp_path / "12").symlink_to(tmp_path / "1")
    (tmp_path / "13").mkdir()
    labels = [str(number) for number in range(1, 15)]
    assert read_progress(tmp_path, labels) == {"1": 250_000, "2": 1_000_000, "3": 500_000, "4": 0}
    assert read_progress(None, labels) == {}


# ---- the command -------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    desk: Desk, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = desk.slurm.submit(8, 10, _FIXED)
    monkeypatch.setattr("trimtab.cli.slurm.commands_for", lambda conf, timeout_s: desk.slurm)
    ran = trimtab(f"slurm dispatch --config {desk.folder}/dispatch.toml --dry-run")
    assert (ran.code, ran.out, ran.err) == (0, "would do: job 1: released to g1\n", "")
    assert (job.priority, job.pinned) == (0, ())
    assert not [words for words in desk.slurm.log if words[0] == "scontrol"]
    found = trimtab(f"slurm dispatch --config {desk.folder}/dispatch.toml --once --format json").json()
    assert found["acts"][0]["commands"][1] == ["release", "1"]
    assert job.priority == 100
