"""The policies there are, and a user's own from `path/to/file.py::Name`."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from functools import lru_cache
from pathlib import Path

from trimtab.errors import ConfigError, TrimtabError, UnknownName
from trimtab.knobs import Space
from trimtab.policies import USER_MODULE
from trimtab.policies.chronus import Chronus
from trimtab.policies.edf import Edf
from trimtab.policies.fifo import Fifo
from trimtab.policies.lucid import Lucid
from trimtab.policies.policy import Policy
from trimtab.policies.sensascale import SensaScale, SensaScalePlus
from trimtab.policies.shortest import Qssf, Sjf, Srsf, Srtf
from trimtab.policies.slurm import Slurm
from trimtab.policies.synergy import Synergy
from trimtab.policies.themis import Themis
from trimtab.policies.tiresias import Tiresias

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        *(Fifo, Sjf, Srtf, Srsf, Qssf, Tiresias, Themis, Lucid),
        *(Edf, Chronus, Synergy, SensaScale, SensaScalePlus, Slurm),
    )
}

# Published settings other than the defaults, as `--knob` takes them: preset -> policy -> knobs.
PRESETS: dict[str, dict[str, dict[str, str]]] = {
    # Lucid's own simulator on Philly: jobs of up to four GPUs are profiled, for 80 s [Hu et al., ASPLOS'23].
    "philly": {"lucid": {"t_prof": "80", "prof_factor": "2"}},
}


@lru_cache
def find_policy(name: str) -> Policy:
    """Return the policy called `name`, or a user's own `file.py::Name`.

    Raises:
        UnknownName: If there is no such policy.
        ConfigError: If a user's file cannot be loaded or does not hold a policy of that name.
    """
    path, separator, class_name = name.partition("::")
    if separator:
        return _load(Path(path), class_name)
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    return POLICIES[name]()


def _load(path: Path, class_name: str) -> Policy:
    if not path.is_file():
        raise ConfigError(f"policy file {path}: there is no such file; nothing was run.")
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]  # files may share a stem
    spec = importlib.util.spec_from_file_location(f"{USER_MODULE}{path.stem}_{place}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickling look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything while it is imported
        raise ConfigError(f"policy file {path} does not load: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        own = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise UnknownName(f"policy in {path}", class_name, own)
    try:
        return _checked(found(), path, class_name)
    except TrimtabError:
        raise
    except (Exception, SystemExit) as error:  # and when a policy is made of it
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"policy {class_name} in {path} cannot be made: {reason}") from error


def _checked(policy: Policy, path: Path, class_name: str) -> Policy:
    missing = [part for part in ("name", "space", "decide", "next_review_ms") if not hasattr(policy, part)]
    if missing:
        raise ConfigError(
            f"policy {class_name} in {path} lacks {', '.join(missing)}; "
            "inherit from QueuePolicy, or write decide and next_review_ms."
        )
    if not isinstance(policy.name, str) or not re.fullmatch(r"[\w.+ -]{1,60}", policy.name):
        raise ConfigError(
            f"policy {class_name} in {path}: its name {policy.name!r:.80} must be letters, digits, spaces "
            "and .+-_, at most 60 of them; nothing was run."
        )
    if not isinstance(policy.space, Space):
        raise ConfigError(f"policy {class_name} in {path}: `space` must be a Space; nothing was run.")
    return policy
