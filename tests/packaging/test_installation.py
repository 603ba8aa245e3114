"""Installation into fresh environments: with a compiler, without one, and without wanting the core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang")
SIMULATION = ["simulate", "synthetic:philly?days=0.2&seed=5", "--policy", "tiresias", "--nodes", "4"]
NOTICE = "trimtab: this installation has no compiled core: the reference engine runs, with the same results"


@dataclass(frozen=True)
class Installation:
    """A fresh virtual environment; what Trimtab needs is lent to it by the one that runs the tests."""

    folder: Path
    environment: Mapping[str, str]

    @classmethod
    def fresh(cls, folder: Path, *, compiler: bool = True, **wishes: str) -> Installation:
        """Make one, with or without a compiler on the path; `wishes` are variables of the environment."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        lent = "\n".join(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))
        (folder / "lib" / python / "site-packages" / "lent.pth").write_text(lent)
        told = ("TRIMTAB_", "SKBUILD_", "CMAKE_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(told) and name not in ("CC", "CXX", "PYTHONPATH")
        }
        path = os.environ["PATH"] if compiler else _tools_without_a_compiler(folder / "tools")
        return cls(folder, {**kept, "PATH": path, **wishes})

    def install(self) -> subprocess.CompletedProcess[str]:
        """Build and install this checkout, from nothing but what is here."""
        offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        return self.run("-m", "pip", "install", *offline, str(ROOT))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run its Python."""
        command = [str(self.folder / "bin" / "python"), *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def simulated(self) -> tuple[str, str, str]:
        """Return engine, digest and stderr of a small simulation."""
        ran = self.run("-m", "trimtab", *SIMULATION, "--format", "json")
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        return found["engine"], found["digest"], ran.stderr


def _tools_without_a_compiler(folder: Path) -> str:
    """Return a path with what a build needs, but for a compiler."""
    folder.mkdir()
    for tool in ("cmake", "ninja", "uname"):
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    assert not any(shutil.which(name, path=str(folder)) for name in COMPILERS)
    return str(folder)


@pytest.fixture(scope="module")
def digest() -> str:
    """What the reference engine of the tests' own environment makes of the simulation."""
    command = [sys.executable, "-m", "trimtab", *SIMULATION, "--engine", "reference", "--format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return str(json.loads(ran.stdout)["digest"])


def test_with_a_compiler_the_core_is_built_and_runs(tmp_path: Path, digest: str) -> None:
    if not any(map(shutil.which, COMPILERS[:3])):
        pytest.skip("no C++ compiler on the path")
    here = Installation.fresh(tmp_path / "venv", TRIMTAB_REQUIRE_CORE="1")
    installed = here.install()
    assert installed.returncode == 0, installed.stdout + installed.stderr
    engine, found, said = here.simulated()
    assert (engine, found) == ("compiled", digest)
    assert "reference" not in said


def test_without_a_compiler_the_reference_engine_runs_and_says_so(tmp_path: Path, digest: str) -> None:
    here = Installation.fresh(tmp_path / "venv", compiler=False)
    installed = here.install()
    assert installed.returncode == 0, installed.stdout + installed.stderr
    engine, found, said = here.simulated()
    assert (engine, found) == ("reference", digest)
    assert [line.startswith(NOTICE) for line in said.splitlines()].count(True) == 1
    told = json.loads(here.run("-m", "trimtab", "doctor", "--format", "json").stdout)
    assert told["why"] == "this installation has no compiled core"


def test_a_required_core_without_a_compiler_is_no_installation(tmp_path: Path) -> None:
    here = Installation.fresh(tmp_path / "venv", compiler=False, TRIMTAB_REQUIRE_CORE="1")
    installed = here.install()
    assert installed.returncode != 0
    assert "CMAKE_CXX_COMPILER" in installed.stdout + installed.stderr
    assert not list((tmp_path / "venv").rglob("trimtab"))


def test_the_core_is_left_out_on_purpose_and_nothing_is_said(tmp_path: Path, digest: str) -> None:
    here = Installation.fresh(tmp_path / "venv", TRIMTAB_NO_CORE="1")
    installed = here.install()
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert not list((tmp_path / "venv").rglob("_core*.so"))
    engine, found, said = here.simulated()
    assert (engine, found) == ("reference", digest)
    assert "compiled core" not in said
