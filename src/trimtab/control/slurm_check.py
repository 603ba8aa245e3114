"""What a Slurm cluster would let Trimtab do, found out by reading alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trimtab.control import slurm_keys as keys
from trimtab.control.adapter import Unreachable
from trimtab.control.slurm import permission
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_file import Owned
from trimtab.control.slurm_jobs import Jobs, job_rows, read_layout
from trimtab.errors import ConfigError
from trimtab.world import epoch_ms

_BASIC = "priority/basic"


@dataclass(frozen=True)
class KeyFound:
    """A setting of Slurm's as it is now.

    Attributes:
        value: As Slurm shows it; its default where it shows nothing.
        applies: `reconfigure`, `restart`, `never` (not changed by Trimtab), or `ignored`: it counts for
            nothing on this cluster.
        tunable: Whether Trimtab could change it.
    """

    name: str
    value: str | None
    applies: str
    tunable: bool
    range: str


@dataclass
class Check:
    """What was found.

    Attributes:
        warnings: What is worth knowing. refusals: what keeps Trimtab from changing anything.
    """

    version: str
    accounting: str
    scheduler: str
    priority: str
    nodes: int = 0
    gpus: int = 0
    keys: list[KeyFound] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def check(commands: Commands, file: Path | None) -> Check:
    """Find out what a cluster would let Trimtab do; nothing is changed and no job is touched.

    Args:
        file: That changes would be written to, None if none is thought of yet.

    Raises:
        Unreachable: If Slurm does not answer.
    """
    config = read_config(commands)
    found = Check(
        version=config["slurm_version"],
        accounting=config.get("accountingstoragetype", ""),
        scheduler=config.get("schedulertype", ""),
        priority=config.get("prioritytype", ""),
    )
    owned = None if file is None else Owned(commands.conf, file)
    _look_at_keys(found, config, owned)
    _look_at_nodes(found, commands)
    _look_at_history(found, config)
    _look_at_rights(found, config, owned)
    return found


def _look_at_keys(found: Check, config: Mapping[str, str], owned: Owned | None) -> None:
    accounted, basic = keys.is_accounted(config), found.priority == _BASIC
    elsewhere: dict[str, str] = {}
    if owned is not None:
        for name in dict.fromkeys(key.line for key in keys.KEYS.values() if key.applies == "reconfigure"):
            elsewhere.update({name.lower(): place for place in owned.elsewhere([name])})
    for key in keys.KEYS.values():
        idle = (key.needs == "accounting" and not accounted) or (basic and key.name.startswith("Priority"))
        shown = keys.shown(key, config)
        value = shown if shown is not None else None if key.default is None else str(key.default)
        applies = "ignored" if idle else key.applies
        tunable = applies == "reconfigure" and key.line.lower() not in elsewhere
        found.keys.append(KeyFound(key.name, value, applies, tunable, key.range))
    found.warnings += [f"{place}: move that line to {owned and owned.path}" for place in elsewhere.values()]
    if basic:
        found.refusals.append(f"{_BASIC}: jobs start in order of submission, weights count for nothing")
    if not accounted:
        found.warnings.append(
            "without slurmdbd, ages, fair shares and QOS count for nothing, and priorities of waiting jobs "
            "are never made anew: other weights count for jobs submitted afterwards"
        )
    else:
        period = config.get("prioritycalcperiod", "")
        found.warnings.append(
            f"other weights reach waiting jobs within PriorityCalcPeriod ({period}): let guardrails.confirm "
            "be longer"
        )


def _look_at_nodes(found: Check, commands: Commands) -> None:
    rows = job_rows(commands)
    try:
        layout = read_layout(commands, rows)
    except (ConfigError, Unreachable) as problem:
        found.refusals.append(str(problem).rstrip("."))
        return
    found.nodes, found.gpus = layout.cluster.nodes, layout.cluster.gpus
    jobs = Jobs()
    jobs.look(rows, layout, epoch_ms())
    if layout.away:
        found.warnings.append(f"nodes with GPUs that are not in service: {', '.join(layout.away)}")
    if jobs.left_out:
        found.warnings.append(
            f"{len(jobs.left_out)} jobs ask for more than there is: {', '.join(jobs.left_out[:5])}"
        )


def _look_at_history(found: Check, config: Mapping[str, str]) -> None:
    if "gres/gpu" not in config.get("accountingstoragetres", ""):
        found.warnings.append(
            "AccountingStorageTRES lacks gres/gpu: no history says how many GPUs a job had that asked "
            "by --gpus"
        )
    if not keys.is_accounted(config):
        where = config.get("jobcomploc", "")
        told = (
            f"the history is that of {where}"
            if config.get("jobcomptype") == "jobcomp/filetxt"
            else "there is none"
        )
        found.warnings.append(f"without slurmdbd there is no sacct; {told}")


def _look_at_rights(found: Check, config: Mapping[str, str], owned: Owned | None) -> None:
    version = keys.release(found.version)
    if not keys.OLDEST <= version <= keys.NEWEST:
        found.refusals.append(f"Slurm {found.version}: its settings are not known here")
    if owned is not None:
        try:
            owned.check_included()
        except ConfigError as problem:
            found.refusals.append(str(problem).rstrip("."))
            return
    if why := permission(config, owned):
        found.refusals.append(why)
