"""A Slurm for tests that is nothing but its commands: it keeps jobs and nodes, and time passes on request.

It does what a Slurm 22.05 was seen to do where a dispatcher meets it: priorities of 0 hold, a requeued job is
eligible two minutes later, a requeue without `Incomplete` runs a finished job once more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trimtab.control.adapter import Unreachable
from trimtab.control.slurm_commands import Answer, Commands
from trimtab.control.slurm_jobs import instant_ms
from trimtab.control.slurm_ticket import Record, Ticket, write_comment

BEGAN_S = 1_796_000_000
_ENDED = ("COMPLETED", "CANCELLED", "TIMEOUT")
_OK = Answer(0, "", "")


@dataclass
class FakeNode:
    """A node: what it has, and how sinfo calls it."""

    gpus: int = 8
    cores: int = 64
    memory_mib: int = 512_000
    state: str = "idle"


@dataclass
class FakeJob:
    """A job. `work_s` is how long it runs in all; `runs` holds its starts, `ends` how often it ended."""

    label: str
    gpus: int
    work_s: int
    submit_s: int
    comment: str = ""
    cores: int = 1
    memory_mib: int = 1024
    state: str = "PENDING"
    priority: int = 100
    reason: str = "None"
    dependency: str = "(null)"
    pinned: tuple[str, ...] = ()
    held: dict[str, int] = field(default_factory=dict)  # node -> GPUs
    eligible_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None
    clears_s: int | None = None
    done_s: int = 0
    restarts: int = 0
    ends: int = 0
    runs: list[int] = field(default_factory=list)
    limit_s: int = 86_400

    def runs_now(self) -> bool:
        return self.state == "RUNNING"


class FakeSlurm(Commands):
    """Slurm's commands for a cluster that is kept here.

    Attributes:
        log: The commands that were given. before, after: are called around each command.
        clear_s: How long a requeued job takes to leave its nodes.
    """

    def __init__(self, nodes: int = 2, clear_s: int = 2) -> None:
        super().__init__(Path("slurm.conf"))
        self.__dict__.update(
            nodes={f"g{place + 1}": FakeNode() for place in range(nodes)},
            jobs={},
            now_s=BEGAN_S,
            log=[],
            clear_s=clear_s,
            answers={},
            before=lambda: None,
            after=lambda: None,
        )

    nodes: dict[str, FakeNode]
    jobs: dict[str, FakeJob]
    now_s: int
    log: list[tuple[str, ...]]
    clear_s: int
    answers: dict[str, Answer | str]  # program -> what it says in place of the truth; a text: it hangs
    before: Callable[[], None]
    after: Callable[[], None]

    def set(self, **values: object) -> None:
        """Change how it behaves."""
        self.__dict__.update(values)

    # ---- users and time ----------------------------------------------------------------------------

    def submit(self, gpus: int, work_s: int, ticket: Ticket | None = None, **values: object) -> FakeJob:
        """Submit a job: held with a ticket, as one of somebody else without."""
        label = str(len(self.jobs) + 1)
        job = FakeJob(label, gpus, work_s, self.now_s, eligible_s=self.now_s)
        if ticket is not None:
            job.comment = write_comment(ticket, Record())
            job.priority, job.reason, job.eligible_s = 0, "JobHeldUser", None
        for name, value in values.items():
            setattr(job, name, value)
        self.jobs[label] = job
        return job

    def cancel(self, job: FakeJob) -> None:
        self._end(job, "CANCELLED")

    def tick(self, seconds: int = 1) -> None:
        """Let time pass: jobs end, clear their nodes, and start where they fit."""
        for _ in range(seconds):
            self.set(now_s=self.now_s + 1)
            for job in self.jobs.values():
                if job.runs_now():
                    job.done_s += 1
                    if job.done_s >= job.work_s:
                        self._end(job, "COMPLETED")
                elif job.state == "COMPLETING" and job.clears_s is not None and job.clears_s <= self.now_s:
                    job.state, job.held = "PENDING", {}
            for job in self.jobs.values():
                if job.state == "PENDING" and job.priority and (job.eligible_s or 0) <= self.now_s:
                    self._start(job)

    def free(self, name: str) -> tuple[int, int, int]:
        """Return the free GPUs, cores and MiB of a node."""
        node = self.nodes[name]
        gpus, cores, memory = node.gpus, node.cores, node.memory_mib
        for job in self.jobs.values():
            if name in job.held:
                gpus -= job.held[name]
                cores -= -(-job.cores // len(job.held))
                memory -= -(-job.memory_mib // len(job.held))
        return gpus, cores, memory

    def _start(self, job: FakeJob) -> None:
        left, held = job.gpus, {}
        for name in job.pinned or tuple(self.nodes):
            gpus, cores, memory = self.free(name)
            if self.nodes[name].state != "idle" or not cores >= job.cores or not memory >= job.memory_mib:
                continue
            if taken := min(gpus, left):
                held[name] = taken
                left -= taken
        if left or (job.pinned and set(held) != set(job.pinned)):
            job.reason = "Resources"
            return
        job.state, job.reason, job.held = "RUNNING", "None", held
        job.start_s = self.now_s
        job.runs.append(self.now_s)

    def _end(self, job: FakeJob, state: str) -> None:
        job.state, job.held, job.end_s = state, {}, self.now_s
        job.ends += 1

    # ---- commands ----------------------------------------------------------------------------------

    def run(self, program: str, *words: str, conf: Path | None = None) -> Answer:
        self.before()
        self.log.append((program, *words))
        said = self.answers.get(program)
        if isinstance(said, str):
            raise Unreachable(f"{program}: {said}")
        answer = said if said is not None else self._answer(program, words)
        self.after()
        return answer

    def _answer(self, program: str, words: tuple[str, ...]) -> Answer:
        if program == "squeue":
            return self._table(words[-1], [self._shown(job) for job in self.jobs.values()])
        if program == "sinfo":
            return self._table(words[-1], [self._node(name) for name in self.nodes])
        if words[0] == "ping":
            return Answer(0, "Slurmctld(primary) at fake is UP\n", "")
        if words[:2] == ("show", "config"):
            return Answer(
                0, "ClusterName = fake\nSLURM_VERSION = 22.05.8\nSchedulerParameters = (null)\n", ""
            )
        if words[:2] == ("show", "job"):
            held = self.jobs[words[-1]].held
            parts = [f" Nodes={name} CPU_IDs=0 Mem=1 GRES=gpu:{gpus}(IDX:0)" for name, gpus in held.items()]
            return Answer(0, "\n".join(parts), "")
        return getattr(self, f"_{words[0]}")(words[1:])

    def _refused(self, why: str) -> Answer:
        return Answer(1, "", f"a warning\n{why}\n")

    def _update(self, words: tuple[str, ...]) -> Answer:
        pairs = dict(word.split("=", 1) for word in words)
        job = self.jobs[pairs.pop("jobid")]
        if job.state in _ENDED:
            return self._refused("Job has already finished")
        if job.state == "RUNNING" and set(pairs) != {"Comment"}:
            return self._refused("Job is no longer pending execution")
        for name, value in pairs.items():
            match name:
                case "Comment":
                    job.comment = value
                case "ReqNodeList":
                    job.pinned = tuple(value.split(","))
                case "NumCPUs":
                    job.cores = int(value)
                case "MinMemoryNode":
                    job.memory_mib = int(value)
                case "StartTime":
                    assert value == "now"
                    job.eligible_s = self.now_s
                case _:
                    assert name in ("NumNodes", "MinCPUsNode"), name
        return _OK

    def _release(self, words: tuple[str, ...]) -> Answer:
        job = self.jobs[words[0]]
        if job.state in _ENDED:
            return self._refused("Job has already finished")
        if job.priority == 0:
            job.priority, job.reason = 100, "None"
            job.eligible_s = max(self.now_s, job.eligible_s or 0)
        return _OK

    def _uhold(self, words: tuple[str, ...]) -> Answer:
        job = self.jobs[words[0]]
        if job.state in _ENDED:
            return self._refused("Job has already finished")
        job.priority, job.reason = 0, "JobHeldUser"
        return _OK

    def _requeuehold(self, words: tuple[str, ...]) -> Answer:
        job = self.jobs[words[-1]]
        if words[0] == "Incomplete" and job.state in _ENDED:
            return _OK
        if job.state in ("PENDING", "COMPLETING"):
            return self._refused("Job is pending execution")
        if job.state == "COMPLETED":
            job.done_s = 0
        job.priority, job.reason, job.state = 0, "job requeued in held state", "COMPLETING"
        job.clears_s, job.submit_s = self.now_s + self.clear_s, self.now_s
        job.eligible_s, job.restarts = self.now_s + 121, job.restarts + 1
        return _OK

    # ---- tables ------------------------------------------------------------------------------------

    def _table(self, form: str, rows: list[dict[str, str]]) -> Answer:
        found = re.findall(r"([\w-]+):(\|t[0-9a-f]+\|)", form)
        lines = ["".join(name.upper() + mark for name, mark in found)]
        lines += ["".join(row[name] + mark for name, mark in found) for row in rows]
        return Answer(0, "\n".join([*lines, ""]), "")

    def _shown(self, job: FakeJob) -> dict[str, str]:
        used_s = self.now_s - job.start_s if job.runs_now() and job.start_s is not None else 0
        runs = job.state != "PENDING"
        return {
            "JobArrayID": job.label,
            "State": job.state,
            "SubmitTime": _time(job.submit_s),
            "EligibleTime": _time(job.eligible_s),
            "StartTime": _time(job.start_s) if runs else "N/A",
            "EndTime": _time(job.end_s),
            "TimeUsed": f"0-{used_s // 3600:02}:{used_s // 60 % 60:02}:{used_s % 60:02}",
            "TimeLimit": f"{job.limit_s // 60}:{job.limit_s % 60:02}",
            "Partition": "batch",
            "UserName": "ada",
            "NumNodes": str(max(1, len(job.held))),
            "tres-alloc": f"cpu={job.cores},mem={job.memory_mib}M,node=1,billing=1",
            "tres-per-node": "N/A",
            "tres-per-job": f"gres:gpu:{job.gpus}",
            "NodeList": ",".join(job.held) if runs else "",
            "RestartCnt": str(job.restarts),
            "Account": "",
            "QOS": "",
            "Name": "odd | name\nof two lines",
            "PriorityLong": str(job.priority),
            "Reason": job.reason,
            "Dependency": job.dependency,
            "ReqNodes": ",".join(job.pinned),
            "Comment": job.comment or "(null)",
        }

    def _node(self, name: str) -> dict[str, str]:
        node, (_, cores, memory) = self.nodes[name], self.free(name)
        return {
            "NodeList": name,
            "Partition": "batch*",
            "StateLong": node.state,
            "Gres": f"gpu:a100:{node.gpus}",
            "CPUsState": f"{node.cores - cores}/{cores}/0/{node.cores}",
            "Memory": str(node.memory_mib),
            "AllocMem": str(node.memory_mib - memory),
        }


def _time(seconds: int | None) -> str:
    if seconds is None:
        return "N/A"
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert instant_ms(text) == seconds * 1000
    return text
