"""A scheduler in sixty lines that Trimtab can tune: two nodes of 8 GPUs, first come, first served.

    SCHEDULER_TOKEN=a-token-nobody-guesses python examples/grpc/small_scheduler.py --port 50051 --speedup 100

It makes its own jobs, and an hour of its clock passes in 36 s. What it prints is in small_scheduler.out.
"""

import argparse
import os
import random
import time

from trimtab.cluster import Cluster
from trimtab.control.adapter import Change, Identity, InForce, JobEvent, Receipt, Refused, State
from trimtab.control.authority import Tokens
from trimtab.control.grpc_server import serve
from trimtab.control.observed import Seen, observe
from trimtab.job import JobFacts
from trimtab.knobs import Knobs

CLUSTER = Cluster.pool(nodes=2, gpus_per_node=8)


class SmallScheduler:
    """`backfill=strict`: a job that does not fit holds up all behind it; `skip`: it is passed over."""

    def __init__(self, speedup: float) -> None:
        self.speedup, self.began_s, self.dice = speedup, time.monotonic(), random.Random(1)
        self.setting, self.asked = InForce(Knobs({"backfill": "strict"}), 1, 0), {}
        self.next_ms, self.waiting, self.running, self.told = 0, [], [], []  # a running job: end, start, node

    def identity(self) -> Identity:
        return Identity("small", "fifo", CLUSTER, writes=True)

    def now_ms(self) -> int:
        now_ms = int(1000 * self.speedup * (time.monotonic() - self.began_s))
        while (due_ms := min([self.next_ms, *(job[0] for job in self.running)])) < now_ms:
            self.step(due_ms)
        return now_ms

    def in_force(self) -> InForce:
        return InForce(self.setting.knobs, self.setting.version, self.now_ms())

    def state(self) -> State:
        now_ms, jobs = self.now_ms(), [Seen(facts=facts) for facts in self.waiting]
        for _, start_ms, node, facts in self.running:
            held = {"held_ms": now_ms - start_ms, "started_ms": start_ms}
            jobs.append(Seen(facts=facts, nodes=((node, facts.gpus),), **held))
        return observe("fifo", CLUSTER, self.setting.knobs, now_ms, jobs)

    def events(self, after: int, most: int) -> list[JobEvent]:
        self.now_ms()
        return self.told[after : after + most]

    def apply(self, change: Change) -> Receipt:
        knobs, version = self.asked.get(change.key, (change.knobs, self.setting.version + 1))
        if knobs != change.knobs or (change.key not in self.asked and change.expected != version - 1):
            raise Refused(f"change {change.key}: version {self.setting.version} is in force.")
        if change.key not in self.asked:
            self.asked[change.key], self.setting = (knobs, version), InForce(knobs, version, self.now_ms())
            print(f"{knobs.text()} is in force, version {version}", flush=True)
        return Receipt(change.key, version)

    def step(self, now_ms: int) -> None:
        for job in [job for job in self.running if job[0] == now_ms]:
            self.running.remove(job)
            self.tell("finish", now_ms, job[3], ran_ms=job[0] - job[1])
        if now_ms == self.next_ms:
            self.next_ms += self.dice.randint(1, 720_000)
            facts = JobFacts(f"job-{len(self.told)}", now_ms, self.dice.choice((1, 1, 2, 4, 8)))
            self.waiting.append(facts)
            self.tell("submit", now_ms, facts, facts=facts)
        for facts in list(self.waiting):
            free = [8 - sum(job[3].gpus for job in self.running if job[2] == node) for node in (0, 1)]
            room = [(left, node) for node, left in enumerate(free) if left >= facts.gpus]
            if room:
                end_ms = now_ms + self.dice.randint(60_000, 3_000_000)
                self.running.append((end_ms, now_ms, min(room)[1], facts))
                self.waiting.remove(facts)
                self.tell("start", now_ms, facts)
            elif self.setting.knobs["backfill"] == "strict":
                return

    def tell(self, kind: str, now_ms: int, job: JobFacts, **more: object) -> None:
        self.told.append(JobEvent(len(self.told) + 1, kind, now_ms, job.label, **more))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=50051)
    parser.add_argument("--speedup", type=float, default=100)
    options = parser.parse_args()
    scheduler = SmallScheduler(options.speedup)
    server = serve(scheduler, f"127.0.0.1:{options.port}", Tokens(write=os.environ["SCHEDULER_TOKEN"]))
    print(f"listening at 127.0.0.1:{server.port}, {scheduler.setting.knobs.text()}", flush=True)
    server.wait()
