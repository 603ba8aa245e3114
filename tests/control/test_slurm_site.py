"""A cluster's site from what its commands print, in releases old and new, and how it reaches the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from looped import settings
from trimtab.control import service
from trimtab.control.adapter import Unreachable
from trimtab.control.register import Register
from trimtab.control.sight import keep, kept_again
from trimtab.control.slurm_site import SiteFound, accounts_of, partitions_of, read_site
from trimtab.errors import ConfigError
from trimtab.policies.catalog import find_policy
from trimtab.search.spaces import search_space
from trimtab.simulate.run import World
from trimtab.simulate.workload import Workload
from trimtab.site import PLAIN_SITE, Qos, Site, SlurmPartition
from trimtab.traces import loader

_HEAD = "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A"
_MIDDLE = "GraceTime=0 Hidden=NO MaxNodes=UNLIMITED"
_TAIL = "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP"
_PARTITIONS = {  # as 20.11, 22.05 and 24.11 print them
    "20.11": f"PartitionName=batch {_HEAD} DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO {_MIDDLE} "
    "MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=g[1-4] PriorityJobFactor=1 "
    f"PriorityTier=1 {_TAIL} TotalCPUs=256 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null)\n",
    "22.05": f"PartitionName=batch {_HEAD} DefaultTime=2-00:00:00 DisableRootJobs=NO ExclusiveUser=NO "
    f"{_MIDDLE} MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=g[1-4] "
    f"PriorityJobFactor=1 PriorityTier=1 {_TAIL} TotalCPUs=256 TotalNodes=4 SelectTypeParameters=NONE "
    "JobDefaults=(null) DefMemPerNode=UNLIMITED TRES=cpu=256,mem=2000G,node=4,billing=256,gres/gpu=32\n",
    "24.11": f"PartitionName=batch {_HEAD} DefaultTime=1-23:59:30 DisableRootJobs=NO ExclusiveUser=NO "
    f"ExclusiveTopo=NO {_MIDDLE} MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "MaxCPUsPerSocket=UNLIMITED NodeSets=gpus Nodes=g[1-4] PriorityJobFactor=1 PriorityTier=1 "
    f"{_TAIL} TotalCPUs=256 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=DefCpuPerGPU=8 "
    "TRES=cpu=256,mem=2000G,node=4,billing=256,gres/gpu=32 TRESBillingWeights=CPU=1.0,GRES/gpu=8.0\n",
}
_QOS = "Name|Priority|Preempt\nnormal|0|\nhigh|100|low,normal\nlow|0|\n"
_ASSOC = (
    "Account|User|Share|ParentName\nroot||1|\nroot|root|1|\nproduct||1|root\nproduct|daemon|parent|\n"
    "research||3|root\nresearch|nobody|1|\n"
)
_ACCOUNTED = {"accountingstoragetype": "accounting_storage/slurmdbd", "clustername": "lab"}


@dataclass
class _Says:
    """Slurm's commands, each with an answer."""

    partition: str = _PARTITIONS["22.05"]
    qos: str = _QOS
    assoc: str = _ASSOC

    def ask(self, program: str, *words: str) -> str:
        (what,) = {"partition", "qos", "assoc"} & set(words)
        assert (program == "scontrol") == (what == "partition")
        return str(getattr(self, what))


def _found(said: _Says, config: Mapping[str, str] = _ACCOUNTED) -> SiteFound:
    return read_site(said, config)  # type: ignore[arg-type]


@pytest.mark.parametrize("release", _PARTITIONS)
def test_a_site_is_read_from_old_and_new_releases(release: str) -> None:
    """Two days by `DefaultTime`, by `MaxTime` where there is no usual limit, and rounded up to the minute."""
    site, notes = _found(_Says(partition=_PARTITIONS[release]))
    assert site == Site(
        {"batch": SlurmPartition(1, 1, 2 * 86_400_000)},
        {"normal": Qos(), "high": Qos(100, ("low", "normal")), "low": Qos()},
        {"product": 1, "research": 3},
    )
    assert notes == ()


def test_warnings_before_an_answer_are_no_part_of_it() -> None:
    odd = _Says(*(f"warning: something is odd\n\n{text}" for text in (_PARTITIONS["22.05"], _QOS, _ASSOC)))
    assert _found(odd) == _found(_Says())


def test_without_accounting_there_are_partitions_alone() -> None:
    site, _ = _found(_Says(qos="", assoc=""), {})
    assert (list(site.partitions), site.qualities, site.shares) == (["batch"], {}, {})


def test_no_limit_at_all_is_none() -> None:
    text = _PARTITIONS["20.11"].replace("2-00:00:00", "UNLIMITED")
    assert "DefaultTime" not in partitions_of(text)[0]


@pytest.mark.parametrize(
    ("share", "parent", "note"),
    [
        ("parent", "root", "account research: its Fairshare = parent counts as 1"),
        ("0", "root", "account research: its Fairshare = 0 counts as 1"),
        ("1", "product", "1 accounts below others count as if they were below root (research is one)"),
    ],
)
def test_what_a_site_file_cannot_say_is_noted(share: str, parent: str, note: str) -> None:
    notes: list[str] = []
    row = {"Account": "research", "User": "", "Share": share, "ParentName": parent}
    assert accounts_of([row], notes) == [{"name": "research", "Fairshare": 1}]
    assert notes == [note]


_BATCH = _PARTITIONS["22.05"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (_Says(partition=""), "scontrol show partition: shows no partition"),
        (_Says(partition="No partitions in the system\n"), "shows no partition"),
        (_Says(partition=_BATCH.replace("PriorityTier=1", "")), "PriorityTier of 'batch' is '', no whole"),
        (_Says(partition=_BATCH.replace("PriorityJobFactor=1", "PriorityJobFactor=x")), "is 'x', no whole"),
        (_Says(partition=_BATCH.replace("DefaultTime=2-00:00:00", "")), "DefaultTime of 'batch' is ''"),
        (_Says(partition=_BATCH.replace("=2-00:00:00", "=soon")), "DefaultTime of 'batch' is 'soon', no tim"),
        (_Says(qos=""), "sacctmgr show qos: answers without a heading"),
        (_Says(qos="normal|0|\n"), "without a heading"),
        (_Says(qos=_QOS.replace("low|0|", "low|0")), "sacctmgr show qos: answers with 2 fields where 3"),
        (_Says(qos=_QOS.replace("100", "1e2")), "Priority of 'high' is '1e2', no whole number"),
        (_Says(assoc="slurmdbd: cannot connect\n"), "sacctmgr show assoc: answers without a heading"),
        (_Says(assoc=_ASSOC.replace("|3|", "|much|")), "Share of 'research' is 'much', no whole number"),
        (_Says(assoc=_ASSOC.replace("|3|", "|9999999|")), "account 'research' has Fairshare = 9999999"),
        (_Says(partition=_BATCH.replace("PriorityTier=1", "PriorityTier=65535")), "PriorityTier = 65535"),
        (_Says(qos=_QOS.replace("low,normal", "low,gone")), "Preempt names 'gone', which is no"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(said: _Says, why: str) -> None:
    with pytest.raises((Unreachable, ConfigError), match=r"^.*\.$") as refusal:
        _found(said)
    assert why in str(refusal.value)


# ---- as a file, and as part of a state -------------------------------------------------------------


def test_a_site_file_says_what_was_read(tmp_path: Path) -> None:
    odd = {'of "both"\\': SlurmPartition(3, 0, 60_000), "größe": SlurmPartition()}
    for site in (_found(_Says()).site, Site(odd, {}, {"": 7}), PLAIN_SITE):
        path = tmp_path / "site.toml"
        path.write_text(site.text(), encoding="utf-8")
        assert Site.from_toml(str(path)) == site
        assert Site.of_tables("x", json.loads(json.dumps(site.tables()))) == site


def test_a_simulated_scheduler_goes_by_the_site_of_its_settings(tmp_path: Path) -> None:
    site = Site({"a": SlurmPartition(limit_ms=60_000)}, {"high": Qos(5)}, {"research": 3})
    (tmp_path / "site.toml").write_text(site.text())
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,submit_s,duration_s,gpus,vc\n1,0,500,1,a\n2,3,500,1,b\n")
    found = settings(tmp_path, "sqlite:///-", policy="slurm").scheduler
    scheduler = service.simulated(
        replace(found, site=tmp_path / "site.toml", start_ms=None), loader.load(f"table:{jobs}")
    )
    assert scheduler.identity().site == site
    scheduler.advance(504_000)
    ends = {event.label: event.time_ms for event in scheduler.events(0, 100) if event.kind == "finish"}
    assert ends == {"1": 60_000, "2": 503_000}


def test_what_is_decided_on_and_kept_goes_by_the_site_of_the_scheduler(tmp_path: Path) -> None:
    site = _found(_Says()).site
    found = settings(tmp_path, "sqlite:///-", policy="slurm").scheduler
    trace = loader.load("synthetic:philly?days=1&seed=3&load=0.3")
    state = service.simulated(replace(found, start_ms=None), trace).state()
    register, policy = Register(), find_policy("slurm")
    register.see(state)
    space = search_space(policy, policy.space.defaults, "consolidated")
    environment = World(estimates="none").environment(Workload([], []))
    for told in (site, PLAIN_SITE):
        sight = register.sight(state, found.cluster, told)
        for one in (sight, kept_again(keep(sight))):
            assert one.scene(policy.space.defaults, "slurm", environment, space).environment.site == told
