"""A user's own policy from a file: as an order, as a whole pass, and with every kind of mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import strategies as some
from scenario import acts, expect, jobs, run
from trimtab.errors import ConfigError, TrimtabError
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.workload import Workload

IMPORTS = "from trimtab.policies.policy import *\nfrom trimtab.knobs import *\n\n"

NARROW_FIRST = '''
class Own(QueuePolicy):
    """Narrow jobs first; after 10 s of running a job sinks, and wide ones sink below it."""
    name = "own"
    preemptive = True
    levels = 3
    def key(self, job, now_ms, knobs):
        return job.gpus
    def level(self, job, knobs):
        return 0 if job.held_ms < 10_000 else 1 if job.gpus < 3 else 2
    def next_change_ms(self, job, knobs):
        return 10_000 - job.held_ms if job.held_ms < 10_000 else None
'''

WHOLE_PASS = '''
class Own:
    """Starts the widest job that fits, one a pass, and asks to be asked again after 5 s."""
    name = "own"
    space = Space()
    def decide(self, view, knobs):
        for job in sorted(view.pending, key=lambda job: (-job.gpus, job.id)):
            with view.free.trial() as free:
                if free.place(job.gpus):
                    return [Start(job.id)]
        return []
    def next_review_ms(self, view, knobs):
        return view.now_ms + 5_000 if view.pending else None
'''

THREE = """
    job  submit_s  duration_s  gpus
    a    0         20          3
    b    0         15          1
    c    4         30          2
"""


def own(folder: Path, text: str):
    """Load a policy from a file as `--policy file.py::Own` does."""
    path = folder / f"own{len(list(folder.iterdir()))}.py"
    path.write_text(IMPORTS + text)
    return find_policy(f"{path}::Own")


def test_an_order_of_ones_own(tmp_path):
    """1x4. b (1 GPU) and a (3) start together. At 4 c (2) is narrower than a and takes its GPUs. At 10 b has
    held its GPU for 10 s and sinks to level 1; it stays, for a needs three GPUs and c, before it in level 0,
    has two. At 14 c sinks to level 1 and a takes the three that b does not hold. b ends at 15. At 20 a has
    held GPUs for 4 + 6 s and sinks to level 2; c does its last 20 s, then a its last 10."""
    engine = run(jobs(THREE), own(tmp_path, NARROW_FIRST))
    assert acts(engine) == expect("""
         0 start   b a
         4 preempt a
         4 start   c
        10 demote  b
        14 demote  c
        14 preempt c
        14 start   a
        15 finish  b
        20 demote  a
        20 preempt a
        20 start   c
        40 finish  c
        40 start   a
        50 finish  a
    """)


def test_a_whole_pass_of_ones_own(tmp_path):
    """1x4, one start a pass. a (3 GPUs) at 0; the next pass is at 4, when c comes: only b (1) fits. b ends at
    19, but c needs two GPUs, and has them when a ends at 20."""
    case = some.plain_case(_workload(), "fifo", {})
    policy = own(tmp_path, WHOLE_PASS)
    engine = Engine(jobs(THREE), case.cluster, policy, policy.space.defaults, case.environment, timeline=True)
    engine.run()
    assert acts(engine) == expect("""
         0 start  a
         4 start  b
        19 finish b
        20 finish a
        20 start  c
        50 finish c
    """)


MISTAKES = {
    "start twice": "[Start(0), Start(0)]",
    "start a running job": "[Start(view.running[0].id)] if view.running else [Start(0)]",
    "unknown id": "[Start(99)]",
    "no id": "[Start('j0')]",
    "preempt an unknown id": "[Preempt(99)]",
    "preempt a pending job": "[Preempt(0)]",
    "GPUs that are not there": "[Start(0, ((7, 2),))]",
    "a node below zero": "[Start(0, ((-1, 2),))]",
    "more than a node has": "[Start(0, ((0, 9),))]",
    "half a gang": "[Start(0, ((0, 1),))]",
    "one node twice": "[Start(2, ((0, 3), (0, 2)))]",
    "negative GPUs": "[Start(0, ((0, 3), (1, -1)))]",
    "nodes that are none": "[Start(0, 5)]",
    "not a decision": "['start 0']",
    "no list": "None",
    "its own exception": "1 / 0",
    "never starts": "[]",
}


@pytest.mark.parametrize("decisions", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_bad_decision_is_one_line(tmp_path, decisions):
    text = f"""
class Own:
    name = "own"
    space = Space()
    def decide(self, view, knobs):
        return {decisions}
    def next_review_ms(self, view, knobs):
        return None
"""
    _refused(own(tmp_path, text))


def test_a_policy_that_only_asks_to_be_asked_again_is_a_refusal(tmp_path):
    """It would wait for ever; reviews after the last job has left, however, just end."""
    text = """
class Own:
    name = "own"
    space = Space()
    def decide(self, view, knobs):
        return []
    def next_review_ms(self, view, knobs):
        return view.now_ms + 1_000
"""
    _refused(own(tmp_path, text))
    patient = text.replace(
        "return []", "return [Start(job.id) for job in view.pending if view.now_ms > 90_000]"
    )
    engine = run(jobs(THREE), own(tmp_path, patient), gpus_per_node=8)
    assert acts(engine).splitlines()[0] == "91 start a b c"


HOOKS = {
    "level too deep": "def level(self, job, knobs): return 2",
    "level below zero": "def level(self, job, knobs): return -1",
    "level that is none": "def level(self, job, knobs): return 0.5",
    "no change at all": "def next_change_ms(self, job, knobs): return 0",
    "a change in the past": "def next_change_ms(self, job, knobs): return -5",
    "half a millisecond": "def next_change_ms(self, job, knobs): return 0.5",
    "a key that raises": "def key(self, job, now_ms, knobs): return job.nothing",
    "keys without an order": "def key(self, job, now_ms, knobs): return [None, 1][job.id % 2]",
    "a plan that raises": "def plan(self, knobs, completed_gpu_ms=()): return {}['x']",
    "a review of now": "def next_review_ms(self, view, knobs): return view.now_ms\n"
    "    def decide(self, view, knobs): return super().decide(view, knobs)",
}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS.keys())
def test_a_bad_hook_is_one_line(tmp_path, hook):
    text = f"""
class Own(QueuePolicy):
    name = "own"
    preemptive = True
    levels = 2
    {hook}
"""
    policy = own(tmp_path, text)
    _refused(policy, by_the_book="review" in hook)


def _refused(policy, by_the_book=True):
    case = some.plain_case(_workload(), "fifo", {})
    with pytest.raises(ConfigError) as refusal:
        Engine(
            case.workload,
            case.cluster.pool(2, 4),
            policy,
            policy.space.defaults,
            case.environment,
            by_the_book=by_the_book,
        ).run()
    assert isinstance(refusal.value, TrimtabError)
    assert "policy own" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def _workload() -> Workload:
    return Workload(
        [JobFacts("j0", 0, 2), JobFacts("j1", 0, 4), JobFacts("j2", 0, 5)], [10_000, 20_000, 30_000]
    )


def test_new_knobs_reach_the_levels_of_an_own_order(tmp_path):
    """A hot update asks `level` anew, of jobs that wait as of those that run."""
    text = """
class Own(QueuePolicy):
    name = "own"
    preemptive = True
    levels = 2
    space = Space((
        Knob(name="wide", kind="int", default=9, low=1, high=9, trades="", takes_effect="", in_flight=""),
    ))
    def level(self, job, knobs):
        return int(job.gpus >= knobs["wide"])
"""
    policy = own(tmp_path, text)
    case = replace(some.plain_case(_workload(), "fifo", {}), cluster=some.Cluster.pool(1, 5))
    for by_the_book in (False, True):
        engine = Engine(
            case.workload,
            case.cluster,
            policy,
            policy.space.defaults,
            case.environment,
            timeline=True,
            by_the_book=by_the_book,
        )
        engine.update(5_000, policy.space.project({"wide": 3}))
        engine.run(5_001)
        levels = {job.facts.label: job.level for job in engine.snapshot().jobs}
        assert levels == {"j0": 0, "j1": 1, "j2": 1}
        engine.run()
