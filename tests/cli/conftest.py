"""Runs the command line in this process, and makes the small files it is run on."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.speed_files import open_speeds

JOBS = """job_id,submit_s,duration_s,gpus,vc
a,0,100,4,x
b,10,50,2,x
c,20,30,2,y
d,20,3000,8,x
e,30,30,1,y
f,40,10,99,x
"""

POLICIES = """from trimtab.knobs import Space
from trimtab.policies.policy import QueuePolicy, Start

class Fine(QueuePolicy):
    name = "fine"

class NoPolicy:
    pass

class FailsToStart(QueuePolicy):
    def __init__(self):
        raise ValueError("not today")

class NeedsMore(QueuePolicy):
    def __init__(self, more):
        pass

class SpaceIsNone(QueuePolicy):
    space = None

class FailsInKey(QueuePolicy):
    name = "fails-in-key"
    def key(self, job, now_ms, knobs):
        return job.nonsense

class Whole:
    name = "whole"
    space = Space()
    def next_review_ms(self, view, knobs):
        return None

class FailsInDecide(Whole):
    def decide(self, view, knobs):
        return [1 / 0]

class ExitsInDecide(Whole):
    def decide(self, view, knobs):
        raise SystemExit(7)

class StartsAll(Whole):
    def decide(self, view, knobs):
        return [Start(job.id) for job in view.pending]

class StartsNone(Whole):
    def decide(self, view, knobs):
        return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with good and bad files; of other folders' files nothing is remembered."""
    monkeypatch.chdir(tmp_path)
    open_curves.cache_clear()
    open_speeds.cache_clear()
    texts = {
        "jobs.csv": JOBS,
        "no-columns.csv": "colour,size\nred,1\n",
        "no-gpus.csv": "job_id,submit_s,duration_s\na,0,1\n",
        "empty.csv": "",
        "header.csv": "job_id,submit_s,duration_s,gpus\n",
        "unsorted.csv": "job_id,submit_s,duration_s,gpus\nlate,20,5,1\nearly,5,1,1\n",
        "odd.csv": "job_id,submit_s,duration_s,gpus\nb,20,5,1\nnegative,10,-5,1\nzero,5,0,1\nnoone,1,4,0\n",
        "wide.csv": "job_id,submit_s,duration_s,gpus\nw,0,10,100\n",
        "one.csv": "job_id,submit_s,duration_s,gpus\nonly,0,10,1\n",
        "far.csv": "job_id,submit_s,duration_s,gpus\na,0,3000000000,99\nb,9000000000,3000000000,99\n",
        "zero.csv": "job_id,submit_s,duration_s,gpus\nx,0,0,1\ny,0,0,1\n",
        "good.toml": '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = 8\n',
        "zero.toml": '[[vc]]\nname = "x"\nnodes = 0\ngpus_per_node = 8\n',
        "text.toml": '[[vc]]\nname = "x"\nnodes = "two"\ngpus_per_node = 8\n',
        "huge.toml": '[[vc]]\nname = "x"\nnodes = 100001\ngpus_per_node = 8\n',
        "missing.toml": '[[vc]]\nname = "x"\nnodes = 1\n',
        "extra.toml": '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = 8\ncolour = "red"\n',
        "twice.toml": 2 * '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = 8\n',
        "number.toml": "[[vc]]\nname = 5\nnodes = 1\ngpus_per_node = 8\n",
        "no-cores.toml": '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = 8\ncores_per_node = 0\n',
        "no-memory.toml": '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = 8\nmemory_gib_per_node = 0\n',
        "list.toml": '[[vc]]\nname = "x"\nnodes = 1\ngpus_per_node = [8]\n',
        "long.toml": f'[[vc]]\nname = "x"\nnodes = {"9" * 5000}\ngpus_per_node = 8\n',
        "deep.toml": f"vc = {'[' * 5000}{']' * 5000}\n",
        "empty.toml": "",
        "broken.toml": "[[vc]\nname",
        "policies.py": POLICIES,
        "raises.py": 'raise RuntimeError("boom\\nsecond line")\n',
        "exits.py": "import sys\nsys.exit(0)\n",
        "syntax.py": "def (:\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "noise.bin").write_bytes(random.Random(7).randbytes(3000))
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(JOBS.encode())[:60])
    (tmp_path / "folder").mkdir()
    return tmp_path
