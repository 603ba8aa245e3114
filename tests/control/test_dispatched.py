"""A dispatcher as the loop tunes it: the promises of every adapter, and who is there to keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from trimtab.control import dispatched, slurm_desk, slurm_dispatch, slurm_queue
from trimtab.control.adapter import Adapter, Change, Refused, Unreachable
from trimtab.control.dispatch_settings import read_dispatch
from trimtab.control.dispatched import Dispatched
from trimtab.control.slurm_dispatch import Dispatcher
from trimtab.control.slurm_ticket import Ticket, make_service
from trimtab.testing import AdapterConformance

_TO_GO = Ticket(preemptable=True, estimate_ms=600_000)


class TestPromises(AdapterConformance):
    """Beside a fake Slurm with jobs that run, wait, were requeued, have ended, and belong to others."""

    @pytest.fixture(autouse=True)
    def _slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm, self.folder = FakeSlurm(), tmp_path
        for module in (slurm_queue, slurm_dispatch, slurm_desk, dispatched):
            monkeypatch.setattr(module, "epoch_ms", lambda: self.slurm.now_s * 1000)
        path = tmp_path / "dispatch.toml"
        path.write_text('policy = "tiresias"\ndesk = "desk"\n[knobs]\nqueue_thresholds = [60]\n')
        self.settings, self.told = read_dispatch(path), []  # type: ignore[var-annotated]
        self.dispatcher = Dispatcher(self.slurm, self.settings, self.told.append)
        self.slurm.submit(4, 1000, comment="other")
        self.slurm.submit(3, 3, _TO_GO)
        self.slurm.submit(8, 1000, Ticket(make_service(None, (self.slurm.now_s * 1000 + 9000,), ())))
        self.slurm.submit(4, 1000, _TO_GO)
        for _ in range(8):
            self._step()
        self.slurm.submit(4, 1000, _TO_GO)
        self.slurm.submit(4, 1000, comment="waits")
        for _ in range(4):
            self._step()

    def _step(self) -> None:
        self.dispatcher.step()
        self.slurm.tick(5)

    def make(self) -> Adapter:
        return Dispatched(self.slurm, self.settings)

    def unreachable(self) -> Adapter:
        self.slurm.set(answers=dict.fromkeys(("squeue", "sinfo", "scontrol"), "no answer in 20 s."))
        self.slurm.tick(1000)
        return Dispatched(self.slurm, self.settings)

    def pass_time(self, adapter: Adapter) -> None:
        self._step()

    def test_a_job_tells_its_deadline(self) -> None:
        facts = {one.label: one.facts for one in self.make().events(0, 100) if one.facts is not None}
        assert facts["3"].service.kind == "strict"
        assert facts["1"].service.kind == "best"

    def test_a_requeued_job_keeps_its_submission(self) -> None:
        state = self.make().state()
        jobs = dict(zip(state.labels, state.snapshot.jobs, strict=True))
        again = [job for job in jobs.values() if job.preemptions]
        assert again
        assert all(job.submit_ms < job.stopped_ms for job in again)

    def test_other_knobs_are_decided_with_at_the_next_look(self) -> None:
        adapter = self.make()
        change = self.change(adapter, "other")
        adapter.apply(change)
        assert adapter.in_force().knobs != change.knobs
        self._step()
        assert self.told.count(f"tiresias goes by {change.knobs.text()}") == 1

    def test_a_dispatcher_that_says_nothing_is_not_there(self) -> None:
        adapter = self.make()
        now = adapter.in_force()
        self.slurm.tick(200)
        with pytest.raises(Unreachable, match="has said nothing for"):
            adapter.in_force()
        with pytest.raises(Unreachable):
            adapter.apply(Change("gone", now.knobs, now.version))

    def test_what_is_in_the_folder_and_none_of_ours_is_said(self) -> None:
        adapter = self.make()
        for text in ("", "[]", "{}", '{"writes": [1]}', '{"writes": [{"key": 1}]}', "[" * 100_000):
            (self.folder / "desk" / "wanted.json").write_text(text)
            with pytest.raises((Unreachable, Refused), match="none of ours"):
                adapter.apply(Change("odd", adapter.in_force().knobs, 1))
            with pytest.raises(Unreachable, match="none of ours"):
                self.dispatcher.step()
