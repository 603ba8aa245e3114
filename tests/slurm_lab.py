"""A real Slurm for tests: several slurmd on this machine, fake GPUs, loopback only, gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trimtab.control.adapter import Adapter, Change
from trimtab.control.slurm import SlurmAdapter
from trimtab.control.slurm_commands import Commands
from trimtab.knobs import Knobs

_LIVE = Path(__file__).resolve().parent / "live"
_SCRIPT = _LIVE / "lab" / "lab.sh"
WEIGHTS, BOLD = f"{_LIVE}/weights.py::Weights", f"{_LIVE}/weights.py::Bold"
_NODES, _FIRST_PORT, _PORTS = 4, 21_000, 40

# `trimtab serve` beside a lab, as `serving.written` fills it in: quick, and bold.
_FILE = """
mode = "{{mode}}"
journal = "sqlite:///{{folder}}/journal.db"

[scheduler]
address = "slurm:{conf}"
file = "{owned}"
policy = "{policy}"
{more}

[server]
listen = "127.0.0.1:{{port}}"
read_token_file = "read.token"
write_token_file = "write.token"

[search]
line = "trimtab"
budget = 20
background = "off"
interval = "10s"
poll = "1s"
arrivals_horizon = "10m"
run_on = "1h"

[guardrails]
read_only = [{read_only}]
gain_min = 1.05
belief_min = 0.0
history = "0s"
confirm = "70s"
dwell = "75s"
return = "0s"
"""


def missing() -> str | None:
    """Say what keeps a lab from being started here; None if nothing does."""
    if os.geteuid() != 0:
        return "a lab's daemons need root"
    here = all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd", "squeue"))
    return None if here else "no Slurm is installed (Debian: munge slurmctld slurmd slurm-client)"


def missing_accounting() -> str | None:
    """The same of a lab with accounting."""
    here = shutil.which("slurmdbd") and shutil.which("mariadbd")
    return missing() or (
        None if here else "no Slurm accounting is installed (Debian: slurmdbd mariadb-server)"
    )


class Lab:
    """A small cluster: 4 nodes of 8 GPUs, partitions `batch` and `urgent` over all of them.

    Attributes:
        conf: Its slurm.conf. owned: the included file that may be changed.
    """

    def __init__(self, accounting: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-lab-"))  # a socket's path must be short
        self.folder.chmod(0o755)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "LAB_"))},
            **{"LAB_DBD": str(int(accounting)), "LAB_PORT": str(_free_ports()), "LAB_NODES": str(_NODES)},
        }
        self.conf = self.folder / "etc" / "slurm.conf"
        self.owned = self.folder / "etc" / "tunable.conf"

    def start(self) -> None:
        """Start all its daemons and wait until its nodes are idle; those that run stay."""
        self._do("up")

    def remove(self) -> None:
        """Cancel its jobs, stop its daemons, remove its folder."""
        try:
            self._do("purge")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, verb: str) -> None:
        done = subprocess.run(
            [_SCRIPT, self.folder, verb], env=self._environment, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]

    # ---- what an operator and users do -------------------------------------------------------------

    def run(self, *words: str, check: bool = True, seconds: float = 90) -> str:
        """Run one of Slurm's commands; return what it prints."""
        environment = {**os.environ, "SLURM_CONF": str(self.conf), "TZ": "UTC", "LC_ALL": "C"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=seconds)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str, gpus: int = 1, seconds: float = 600) -> str:
        """Submit a job; return its id."""
        asked = [f"--gpus={gpus}"] if gpus else []
        line = ["sbatch", "--parsable", "-o", "/dev/null", *asked, *words, f"--wrap=sleep {seconds}"]
        return self.run(*line).strip()

    def clear(self) -> None:
        """Cancel all jobs, let nodes serve, and wait until they are idle."""
        self.run("scancel", "--user=root")
        self.wait(lambda: not self.run("squeue", "-h"), "jobs to end")
        for node in range(1, _NODES + 1):
            self.run("scontrol", "update", f"nodename=g{node}", "state=resume", check=False)
        self.wait(lambda: self.node_states() == ["idle"] * _NODES, "idle nodes")

    @contextmanager
    def as_set(self) -> Iterator[None]:
        """Go back to the settings of now afterwards."""
        text = self.owned.read_text()
        try:
            yield
        finally:
            if not self.owned.exists() or self.owned.read_text() != text:
                self.owned.write_text(text)
                self.run("scontrol", "reconfigure")

    def node_states(self) -> list[str]:
        return self.run("sinfo", "-h", "-N", "-p", "batch", "-o", "%T").split()

    def partition_factors(self) -> set[int]:
        """Return what its partition adds to the priority of each job that waits."""
        return {round(float(text)) for text in self.run("sprio", "-h", "-o", "%P").split()}

    def wait(self, what: Callable[[], object], name: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if what():
                return
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s for {name}\n{self.log()[-3000:]}")

    def log(self) -> str:
        return (self.folder / "log" / "slurmctld.log").read_text(errors="replace")

    # ---- its controller ----------------------------------------------------------------------------

    def controller(self) -> int | None:
        """Return the process id of slurmctld, None if it does not run."""
        with suppress(OSError, ValueError, IndexError):
            found = int((self.folder / "run" / "slurmctld.pid").read_text())
            state = Path(f"/proc/{found}/stat").read_text().rpartition(") ")[2][0]
            return None if state == "Z" else found
        return None

    def kill_controller(self) -> None:
        """Kill slurmctld as a crash would."""
        found = self.controller()
        assert found is not None
        os.kill(found, signal.SIGKILL)
        self.wait(lambda: self.controller() is None, "slurmctld to be gone")

    def saved(self) -> None:
        """Wait until slurmctld has saved its jobs as they are: of later ones a crash leaves nothing."""
        began_s = time.time()
        path = self.folder / "state" / "job_state"

        def is_saved() -> bool:
            self.run("scancel", self.submit("--hold", gpus=0))  # without a change nothing is saved again
            return path.exists() and path.stat().st_mtime > began_s + 1

        self.wait(is_saved, "a saved state")

    def answers(self) -> bool:
        """Whether slurmctld answers."""
        return " is UP" in self.run("scontrol", "ping", check=False)


@contextmanager
def opened(*, accounting: bool) -> Iterator[Lab]:
    """Start a lab, and leave nothing of it."""
    lab = Lab(accounting)
    try:
        lab.start()
        yield lab
    finally:
        lab.remove()


def beside(lab: Lab, policy: str, read_only: Iterable[str], more: str = "") -> str:
    """Return the settings of a `trimtab serve` beside a lab; `more` is said of its scheduler."""
    names = ", ".join(map(repr, read_only))
    return _FILE.format(conf=lab.conf, owned=lab.owned, policy=policy, read_only=names, more=more)


def _free_ports() -> int:
    """Return the first of so many neighbouring ports that nobody listens on; processes begin elsewhere."""
    begin = _FIRST_PORT + os.getpid() % 100 * _PORTS
    for first in range(begin, begin + 100 * _PORTS, _PORTS):
        if all(_is_free(port) for port in range(first, first + _PORTS)):
            return first
    raise AssertionError("no free ports for a lab")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def adapter_to(lab: Lab, policy: str = WEIGHTS) -> SlurmAdapter:
    return SlurmAdapter(Commands(lab.conf), policy, lab.owned)


def changed(adapter: Adapter, key: str, **values: int | bool) -> Change:
    """Return a change of some knobs, decided on what is in force now."""
    now = adapter.in_force()
    return Change(f"{key}-{now.version}", Knobs({**now.knobs, **values}), now.version)
