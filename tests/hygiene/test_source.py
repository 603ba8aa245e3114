"""The code's own habits: who imports whom, who reads clocks, how long files are and what they are called."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trimtab"
MODULES = sorted(PACKAGE.rglob("*.py"))

STAGES = ("traces", "forecast", "policies", "simulate", "search", "control", "report", "studies", "cli")
PICTURE = f"""
    nouns (job, profile, cluster, site, knobs, objective, timeline, errors, world)
      -> {" -> ".join(STAGES)}

A stage imports nouns, itself and earlier stages; a noun imports nouns; only `__main__` imports `cli`."""

# Importer -> what it may import beside the rule, and why.
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "testing": STAGES[:-1],  # conformance suites for users' own parts of any stage
    "__main__": ("cli",),  # `python -m trimtab`
}

LINES_MAX = 700
# Longer than that today: to be split, never to grow.
LONG_FILES: dict[str, int] = {}

BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}

CLOCKS = ("time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today")
DICE = ("random", "secrets", "uuid.uuid", "os.urandom", "np.random", "numpy.random")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each of the package's own modules that a file imports."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "trimtab":
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif (node.module or "").startswith("trimtab."):
                yield node.lineno, (node.module or "").removeprefix("trimtab.")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("trimtab."):
                    yield node.lineno, alias.name.removeprefix("trimtab.")


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_point_upstream(path: Path) -> None:
    stage = _name(path).split(".")[0]
    allowed = STAGES[: STAGES.index(stage) + 1] if stage in STAGES else ()
    for line, imported in _imports(path):
        target = imported.split(".")[0]
        fine = target not in STAGES or target in allowed or target in EXCEPTIONS.get(stage, ())
        assert fine, f"{path.relative_to(ROOT)}:{line} imports {imported}\n{PICTURE}"


def test_stages_are_the_folders() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(STAGES), PICTURE


def _loaded_by(program: str) -> set[str]:
    """Return the top-level modules that a new process has when it has run a program."""
    tell = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{tell}"], check=True, capture_output=True, text=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_what_takes_long_to_import_waits_until_it_is_needed() -> None:
    slow = {"scipy", "lightgbm", "xgboost", "joblib", "dask", "ray", "pooch", "causallearn", "optuna"}
    slow |= {"sqlalchemy", "alembic", "psycopg"}
    every_verb = (
        "from trimtab.cli.verbs import VERBS, Verbs\nfor name in VERBS: Verbs().get_command(None, name)"
    )
    assert not slow & _loaded_by(every_verb), "import it in the function that needs it, and say why"


def test_help_needs_nothing_that_computes() -> None:
    shown = "from trimtab.cli.app import app\napp(['-h'], standalone_mode=False)"
    assert not {"numpy", "polars"} & _loaded_by(shown)


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _uses(tree: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield where a module of these names is imported or something of them is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            yield node.lineno, str(node.module)
        elif isinstance(node, ast.Call):
            called = _called(node.func)
            if any(called == name or called.startswith(f"{name}.") for name in names if "." in name):
                yield node.lineno, called


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "world.py"], ids=_name)
def test_only_world_reads_clocks_and_dice(path: Path) -> None:
    found = list(_uses(_tree(path), CLOCKS + DICE))
    assert not found, f"{path.relative_to(ROOT)} at {found}: time and chance come in through world.py"


@pytest.mark.parametrize(
    "planted",
    [
        "import time",
        "from random import random",
        "datetime.now()",
        "x = np.random.default_rng(3)",
        "import secrets",
    ],
)
def test_a_planted_clock_is_found(planted: str) -> None:
    assert list(_uses(ast.parse(planted), CLOCKS + DICE))


def _source_files() -> list[Path]:
    return [path for folder in ("src", "tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", _source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_named_for_what_they_hold(path: Path) -> None:
    most = LONG_FILES.get(str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else "", LINES_MAX)
    assert len(path.read_text().splitlines()) <= most
    assert not BANNED_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", _source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    if path.read_text().strip():
        assert ast.get_docstring(_tree(path)), f"{path.relative_to(ROOT)} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_what_is_public_is_documented(path: Path) -> None:
    """Classes and functions of a module; methods where they are not overridden or trivial are up to taste."""
    bare = [
        node.name
        for node in _tree(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not bare, f"{path.relative_to(ROOT)}: {bare}"


@pytest.mark.parametrize("path", _source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_ignored_types_name_their_rule(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"#\s*type:\s*ignore", line):
            assert re.search(r"#\s*type:\s*ignore\[[\w, -]+\]", line), f"{path.relative_to(ROOT)}:{number}"


def _told() -> list[Path]:
    """Return what a reader of the repository reads: everything under version control that is text."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_path_of_one_machine_is_named() -> None:
    """Nobody else has these folders."""
    machine = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work|private|mnt)/\w")
    found = []
    for path in _told():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
            for number, line in enumerate(text.splitlines(), 1)
            if machine.search(line)
        ]
    assert not found, "\n".join(found)
