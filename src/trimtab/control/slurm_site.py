"""What a Slurm cluster has decided of its partitions, QOS and accounts, as a site file has it.

Read from `scontrol show partition` and, where there is accounting, from `sacctmgr show qos` and `show assoc`:
their lines of text are the same from 20.11 on, whatever later releases add to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trimtab.control.adapter import Unreachable
from trimtab.control.slurm_commands import Commands
from trimtab.control.slurm_jobs import span_ms
from trimtab.control.slurm_keys import is_accounted
from trimtab.site import Site

_MINUTE_MS = 60_000
_ENDLESS = ("UNLIMITED", "INFINITE")
_ROOT, _OF_PARENT = "root", "parent"
_QOS = ("Name", "Priority", "Preempt")
_ACCOUNT = ("Account", "User", "Share", "ParentName")


class SiteFound(NamedTuple):
    """A cluster's site, and what of it a site file cannot say, one sentence each."""

    site: Site
    notes: tuple[str, ...]


def read_site(commands: Commands, config: Mapping[str, str]) -> SiteFound:
    """Return a cluster's partitions and, where they count for anything, its QOS and accounts.

    Args:
        config: Of `read_config`.

    Raises:
        Unreachable: If Slurm does not answer, or not as it should.
        ConfigError: If a value is beyond what a site file may say.
    """
    notes: list[str] = []
    tables = {
        "partition": partitions_of(commands.ask("scontrol", "--all", "--oneliner", "show", "partition"))
    }
    if is_accounted(config):
        tables["qos"] = qualities_of(_listed(commands, "qos", _QOS))
        of_cluster = f"cluster={config.get('clustername', '')}"
        tables["account"] = accounts_of(_listed(commands, "assoc", _ACCOUNT, of_cluster), notes)
    return SiteFound(Site.of_tables("the site of this cluster", tables), tuple(notes))


def _listed(commands: Commands, what: str, names: tuple[str, ...], *words: str) -> list[dict[str, str]]:
    text = commands.ask("sacctmgr", "--parsable2", "show", what, *words, f"format={','.join(names)}")
    return listed(f"sacctmgr show {what}", text, names)


def listed(program: str, text: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows that `sacctmgr --parsable2` prints, by the names asked for.

    Raises:
        Unreachable: If there is no heading, or a row has another number of fields.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    heading = next((at for at, line in enumerate(lines) if line.split("|")[0] == names[0]), None)
    if heading is None:
        raise Unreachable(f"{program}: answers without a heading, so it is not known what it says.")
    found = [line.split("|") for line in lines[heading:]]
    for fields in found:
        if len(fields) != len(names):
            raise Unreachable(
                f"{program}: answers with {len(fields)} fields where {len(names)} were asked for: "
                f"{'|'.join(fields)!r:.80}."
            )
    return [dict(zip(names, (one.strip() for one in fields), strict=True)) for fields in found[1:]]


def partitions_of(text: str) -> list[dict[str, Any]]:
    """Return the partitions that `scontrol --oneliner show partition` prints, as tables of a site file.

    Raises:
        Unreachable: If there is none, or one lacks what is asked for.
    """
    found = []
    for line in text.splitlines():
        pairs = dict(part.partition("=")[::2] for part in line.split())
        if "PartitionName" in pairs:
            found.append(_partition(pairs))
    if not found:
        raise Unreachable("scontrol show partition: shows no partition.")
    return found


def _partition(pairs: Mapping[str, str]) -> dict[str, Any]:
    name = pairs["PartitionName"]
    row: dict[str, Any] = {"name": name}
    for key in ("PriorityTier", "PriorityJobFactor"):
        row[key] = _whole(f"scontrol show partition: {key} of {name!r:.40}", pairs.get(key, ""))
    # A job that asks for no limit gets the partition's longest where there is no usual one.
    usual, longest = (pairs.get(key, "") for key in ("DefaultTime", "MaxTime"))
    key, text = ("MaxTime", longest) if usual == "NONE" else ("DefaultTime", usual)
    if text not in _ENDLESS:
        limit_ms = span_ms(text)
        if not limit_ms:
            raise Unreachable(f"scontrol show partition: {key} of {name!r:.40} is {text!r:.40}, no time.")
        row["DefaultTime"] = -(-limit_ms // _MINUTE_MS)
    return row


def _whole(what: str, text: str) -> int:
    if not text.isdecimal():
        raise Unreachable(f"{what} is {text!r:.40}, no whole number.")
    return int(text)


def qualities_of(found: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return qualities of service as tables of a site file.

    Raises:
        Unreachable: If a priority is no whole number.
    """
    return [
        {
            "name": row["Name"],
            "Priority": _whole(f"sacctmgr show qos: Priority of {row['Name']!r:.40}", row["Priority"]),
            "Preempt": [name for name in row["Preempt"].split(",") if name],
        }
        for row in found
    ]


def accounts_of(found: list[dict[str, str]], notes: list[str]) -> list[dict[str, Any]]:
    """Return accounts as tables of a site file; what it cannot say is noted.

    Args:
        found: Associations: of accounts, and of users, which are passed over.

    Raises:
        Unreachable: If a share is neither a whole number nor that of the parent.
    """
    accounts = [row for row in found if not row["User"] and row["Account"] != _ROOT]
    rows = []
    for row in accounts:
        name, text = row["Account"], row["Share"]
        share = 1 if text == _OF_PARENT else _whole(f"sacctmgr show assoc: Share of {name!r:.40}", text)
        if text in (_OF_PARENT, "0"):
            notes.append(f"account {name}: its Fairshare = {text} counts as 1")
        rows.append({"name": name, "Fairshare": max(1, share)})
    if deep := [row["Account"] for row in accounts if row["ParentName"] not in (_ROOT, "")]:
        notes.append(f"{len(deep)} accounts below others count as if they were below root ({deep[0]} is one)")
    return rows
