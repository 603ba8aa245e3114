"""A Slurm cluster as the loop sees it, through Slurm's own commands and one included file.

What is in force is what slurmctld says it goes by and, for weights of priorities, what `sprio` shows of jobs
that waited before and after a change: weights are shown at once, but priorities are made anew only once in a
PriorityCalcPeriod. A setting reaches the live file only after Slurm's own parser and the catalogue of keys
have both taken it; whatever goes wrong afterwards, the file that was there before is put back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.control import slurm_keys as keys
from trimtab.control.adapter import (
    Change,
    Identity,
    InForce,
    JobEvent,
    Receipt,
    Refused,
    State,
    Unreachable,
    refuse_illegal,
    refuse_key,
)
from trimtab.control.observed import observe
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_effect import Factors, factors_of, has_effect
from trimtab.control.slurm_file import Owned, Record
from trimtab.control.slurm_jobs import Jobs, Layout, Row, gpus_by_node, job_rows, read_layout
from trimtab.control.slurm_site import read_site
from trimtab.errors import ConfigError
from trimtab.job import Nodes
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.site import Site
from trimtab.world import epoch_ms

# A look at jobs and nodes serves all calls within that time: no more than one look a second is taken.
LOOK_MS = 1000
# How often it is asked what partitions, qualities of service and accounts are worth.
SITE_MS = 600_000

_READS, _READ_PAUSE_S = 5, 0.3
_TURNS = "PriorityFavorSmall"
_UNEVEN_MAX = 200  # jobs asked for one by one, at most so many at once
_FIXED = {"restart": "needs a restart of slurmctld", "never": "is not changed by Trimtab"}


@dataclass(frozen=True)
class _Look:
    """What jobs and nodes were at an instant."""

    now_ms: int
    layout: Layout
    active: Mapping[str, Row]


class _ToldSite:
    """What Slurm says of its partitions, QOS and accounts, asked now and then: they change seldom."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._last: tuple[int, Site] | None = None

    def at(self, now_ms: int, config: Mapping[str, str]) -> Site:
        """Return it; what was said last where nobody answers any more.

        Raises:
            Unreachable: If nobody ever answered. ConfigError: if a value is beyond what is modelled.
        """
        if self._last is None or not 0 <= now_ms - self._last[0] < SITE_MS:
            try:
                self._last = now_ms, read_site(self._commands, config).site
            except Unreachable:
                if self._last is None:
                    raise
        return self._last[1]


def permission(config: Mapping[str, str], owned: Owned | None) -> str | None:
    """Say why this process may not change settings; None if it may.

    Args:
        config: Of `read_config`.
    """
    if owned is None:
        return "no file to write to is named"
    user = config.get("slurmuser", "")
    if os.geteuid() != 0 and f"({os.geteuid()})" not in user:
        return f"only root and SlurmUser {user} may reconfigure Slurm"
    if not (os.access(owned.path, os.W_OK) and os.access(owned.path.parent, os.W_OK)):
        return f"{owned.path} cannot be written"
    return None


class SlurmAdapter:
    """A Slurm cluster; see `Adapter`.

    Args:
        commands: Slurm's commands for it.
        policy: The policy it is modelled by. Each of its knobs is called as Slurm calls the setting.
        owned: The file that changes are written to; None: the cluster is only watched.
        past: Is asked at the first look for what happened before it, oldest first; see `slurm_history`.
        site: What partitions, qualities of service and accounts are worth; None: as Slurm says itself.

    Attributes:
        jobs: The jobs seen so far.

    Raises:
        ConfigError: If a knob is no setting of Slurm's, or slurm.conf does not include the file.
    """

    def __init__(
        self,
        commands: Commands,
        policy: str,
        owned: Path | None = None,
        *,
        past: Callable[[], Sequence[JobEvent]] = tuple,
        site: Site | None = None,
    ) -> None:
        self._commands, self._policy = commands, policy
        self._space = find_policy(policy).space
        self._keys = {knob.name: keys.find_key(knob.name) for knob in self._space.knobs}
        self._owned = None if owned is None else Owned(commands.conf, owned)
        if self._owned is not None:
            self._owned.check_included()
        self.jobs = Jobs()
        self._past: Callable[[], Sequence[JobEvent]] | None = past
        self._site, self._told_site = site, _ToldSite(commands)
        self._last: _Look | None = None
        self._seen: InForce | None = None
        self._before: tuple[int, Factors] | None = None  # factors before the change of a version
        self._uneven: dict[tuple[str, int], dict[str, int]] = {}

    # ---- reading ---------------------------------------------------------------------------------

    def identity(self) -> Identity:
        """Return which cluster this is; its nodes are those in service, so that they may change.

        Raises:
            ConfigError: If nodes of one pool have different numbers of GPUs, or Slurm is of a release whose
                settings are not known.
        """
        config = self._config()
        version = keys.release(config.get("slurm_version", ""))
        if not keys.OLDEST <= version <= keys.NEWEST:
            raise ConfigError(
                f"Slurm {config['slurm_version']}: its settings are not known here; those of "
                f"{keys.OLDEST[0]}.{keys.OLDEST[1]:02d} to {keys.NEWEST[0]}.{keys.NEWEST[1]:02d} are."
            )
        return Identity(
            name=config.get("clustername") or "slurm",
            policy=self._policy,
            cluster=self._look().layout.cluster,
            writes=self._why_not(config) is None,
            site=self._told_site.at(epoch_ms(), config) if self._site is None else self._site,
        )

    def _why_not(self, config: Mapping[str, str]) -> str | None:
        """Say why settings cannot be changed; None if they can."""
        if why := permission(config, self._owned):
            return why
        assert self._owned is not None
        lines = {key.line for key in self._keys.values() if key.applies == "reconfigure"}
        return "; ".join(self._owned.elsewhere(lines)) or None

    def now_ms(self) -> int:
        self._readable()
        self._commands.check_up()
        return epoch_ms()

    def in_force(self) -> InForce:
        return self._in_force(self._config())

    def _in_force(self, config: Mapping[str, str]) -> InForce:
        """Return the setting in force where slurmctld shows this."""
        found, last = self._shown(config), self._written()
        knobs, version = found, self._version(found, last)
        if last is not None and version == last.version and not self._is_felt(last, config):
            knobs, version = self._space.parse_text(last.was), last.was_version
        self._seen = InForce(knobs, version, epoch_ms())
        return self._seen

    def state(self) -> State:
        look, knobs = self._look(), self.in_force().knobs
        seen = [
            self.jobs.seen(row, self._held(row, look.layout), look.now_ms) for row in look.active.values()
        ]
        return observe(self._policy, look.layout.cluster, knobs, look.now_ms, seen)

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        self._look()
        return self.jobs.events(after, most)

    def _readable(self) -> None:
        """Stop at a missing file before a command does, which would wait a minute for it."""
        if self._owned is not None:
            self._owned.text()

    def _config(self) -> dict[str, str]:
        self._readable()
        return read_config(self._commands)

    def _shown(self, config: Mapping[str, str]) -> Knobs:
        """Return the setting that slurmctld shows."""
        try:
            values = {
                knob.name: keys.value_of(key, knob, keys.shown(key, config))
                for knob, key in zip(self._space.knobs, self._keys.values(), strict=True)
            }
        except ConfigError as problem:
            raise Unreachable(f"scontrol show config: {problem}") from None
        # What counts for nothing beside the other settings is not told apart by the policy.
        return self._space.project(values)

    def _look(self) -> _Look:
        """Look at jobs and nodes, unless that was done a moment ago."""
        now_ms, last = epoch_ms(), self._last
        if last is not None and 0 <= now_ms - last.now_ms < LOOK_MS:
            return last
        self._readable()
        found = job_rows(self._commands)
        layout = read_layout(self._commands, found)
        if self._past is not None:
            self.jobs.remember(self._past(), layout)
            self._past = None
        # Of what began or ended during the look nothing is later than its end.
        now_ms = epoch_ms()
        self._last = look = _Look(now_ms, layout, self.jobs.look(found, layout, now_ms))
        self._ask_uneven(look.active)
        return look

    # ---- which GPUs a job holds --------------------------------------------------------------------

    def _held(self, row: Row, layout: Layout) -> Nodes:
        if row.began_ms is None:
            return ()
        return layout.held(row.gpus, row.nodes, self._uneven.get((row.label, row.began_ms), {}))

    def _ask_uneven(self, active: Mapping[str, Row]) -> None:
        """Ask where the GPUs are of jobs that do not have the same number on each node."""
        begun = {(row.label, row.began_ms): row for row in active.values() if row.began_ms is not None}
        self._uneven = {key: each for key, each in self._uneven.items() if key in begun}
        new = [
            (key, row) for key, row in begun.items() if row.gpus % len(row.nodes) and key not in self._uneven
        ]
        for key, row in new[:_UNEVEN_MAX]:
            self._uneven[key] = gpus_by_node(self._commands, row.label)

    # ---- versions ----------------------------------------------------------------------------------

    def _written(self) -> Record | None:
        """Return what was written last, None if nothing ever was."""
        records = [] if self._owned is None else self._owned.records()
        return records[-1] if records else None

    def _version(self, shown: Knobs, last: Record | None) -> int:
        """Return the version of a setting: the file's if it is what was written last, else one of its own.

        One's own is the instant at which it was first seen, so that versions rise over restarts, too.
        """
        seen = self._seen
        seen_version = seen.version if seen else 0
        if last is not None and shown.text() == last.knobs and last.version > seen_version:
            return last.version
        if seen is not None and seen.knobs == shown:
            return seen_version
        if last is not None and seen is None and shown.text() == last.was:
            return last.was_version
        return max(epoch_ms(), seen_version + 1, last.version + 1 if last else 0)

    def _is_felt(self, last: Record, config: Mapping[str, str]) -> bool:
        """Whether jobs that waited before a change have the priorities that it gives them.

        Without slurmdbd Slurm never makes the priorities of waiting jobs anew: there new jobs alone count.
        """
        if self._before is None or self._before[0] != last.version or not keys.is_accounted(config):
            return True
        was, wanted = (self._space.parse_text(text).get(_TURNS) for text in (last.was, last.knobs))
        turned = ("jobsize",) if was != wanted else ()
        if has_effect(self._before[1], factors_of(self._commands), self._weights(config), turned):
            self._before = None
        return self._before is None

    def _weights(self, config: Mapping[str, str]) -> dict[str, int]:
        weights = {}
        for key in keys.KEYS.values():
            if key.factor:
                weights[key.factor] = int(keys.number_of(key, config.get(key.name.lower(), "0")) or 0)
        return weights

    # ---- writing -----------------------------------------------------------------------------------

    def apply(self, change: Change) -> Receipt:
        config = self._config()
        now, owned = self._in_force(config), self._owned
        if owned is None:
            raise Refused(f"change {change.key}: this cluster is only watched, no file to write to is named.")
        records = owned.records()
        if (made := next((one for one in records if one.key == change.key), None)) is not None:
            if made.knobs != change.knobs.text():
                raise Refused(f"change {change.key}: was asked for before with another setting.")
            if made == records[-1] and now.version == made.was_version:
                self._commands.ask("scontrol", "reconfigure")  # it was written and perhaps never taken up
            return Receipt(change.key, made.version)
        lines = self._refuse(change, now, records, config)
        version = max(epoch_ms(), now.version + 1, records[-1].version + 1 if records else 0)
        record = Record(change.key, version, change.knobs.text(), now.knobs.text(), now.version)
        before = owned.text()
        text = owned.candidate(record, lines)
        owned.refuse(text, self._commands)
        factors = factors_of(self._commands)
        owned.replace(text)
        try:
            self._take_up(change)
        except (Refused, Unreachable):
            owned.replace(before)
            self._commands.run("scontrol", "reconfigure")
            raise
        self._before = version, factors
        return Receipt(change.key, version)

    def _refuse(
        self, change: Change, now: InForce, records: Sequence[Record], config: Mapping[str, str]
    ) -> dict[str, str]:
        """Refuse a change that must not be made now; return the lines that make it, by key.

        Raises:
            Refused: If another version is in force, or the file holds what is not.
        """
        assert self._owned is not None
        latest = records[-1].version if records and records[-1].was_version == now.version else now.version
        if change.expected != latest:
            raise Refused(f"change {change.key}: version {latest} was written last, not {change.expected}.")
        refuse_illegal(self._space, change.knobs)
        refuse_key(change)
        lines = self._values(change.knobs, config)
        for name, key in self._keys.items():
            if key.applies != "reconfigure" and change.knobs[name] != now.knobs[name]:
                raise Refused(
                    f"change {change.key}: {key.name} {_FIXED[key.applies]}; leave it as it is (read_only)."
                )
        if (why := self._why_not(config)) is not None:
            raise Refused(f"change {change.key}: {why}; nothing was changed.")
        if edited := self._owned.edited(self._values(now.knobs, config)) if latest == now.version else []:
            raise Refused(
                f"{self._owned.path}: says {edited[0]}, which is not in force: somebody edits it; nothing "
                "was changed. `scontrol reconfigure` takes it up."
            )
        return lines

    def _parts(self, knobs: Knobs) -> dict[keys.Key, str]:
        """Return a setting key by key, as the file has it.

        Raises:
            Refused: If Slurm would not do what it says.
        """
        try:
            return {
                key: keys.written(key, knob, knobs[knob.name])
                for knob, key in zip(self._space.knobs, self._keys.values(), strict=True)
                if key.applies == "reconfigure"
            }
        except ConfigError as problem:
            raise Refused(f"{problem} Nothing was changed.") from None

    def _values(self, knobs: Knobs, config: Mapping[str, str]) -> dict[str, str]:
        """Return a setting as lines of the file, by key; parts of SchedulerParameters by others stay."""
        parts = self._parts(knobs)
        lines = {key.name: line for key, line in parts.items() if not key.parameter}
        own = {key.name: part for key, part in parts.items() if key.parameter}
        if own:
            shown = config.get(keys.PARAMETERS.lower(), "")
            lines[keys.PARAMETERS] = f"{keys.PARAMETERS}={keys.merged(shown, own)}"
        return lines

    def _take_up(self, change: Change) -> None:
        """Have slurmctld read its files again, and read back what it then shows.

        Raises:
            Refused: If it does not take the setting up. Unreachable: if it does not answer.
        """
        answer = self._commands.run("scontrol", "reconfigure")
        if answer.code != 0:
            if self._commands.run("scontrol", "ping").code != 0:
                raise Unreachable(f"change {change.key}: slurmctld went away ({answer.complaint}).")
            raise Refused(f"change {change.key}: {answer.complaint}; the file is as it was.")
        for left in range(_READS - 1, -1, -1):
            if (found := self._shown(self._config())) == change.knobs:
                return
            if left:
                threading.Event().wait(_READ_PAUSE_S)
        raise Refused(
            f"change {change.key}: slurmctld shows {found.text()}, not what was written; "
            "the file is as it was."
        )
