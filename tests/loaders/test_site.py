"""What a site file says, what is refused in one, and how limits, accounts and qualities reach the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab.simulate.workload import Workload
from trimtab.site import PLAIN_SITE, Qos, Site, SlurmPartition
from trimtab.traces.loader import load

GOOD = """
[[partition]]
name = "urgent"
PriorityTier = 2
PriorityJobFactor = 5
DefaultTime = 10

[[qos]]
name = "high"
Priority = 100
Preempt = ["low"]

[[qos]]
name = "low"

[[account]]
name = "vision"
Fairshare = 3
"""


def site(folder: Path, text: str) -> Site:
    path = folder / "site.toml"
    path.write_text(text)
    return Site.from_toml(str(path))


def test_a_site_file_says_what_names_are_worth(tmp_path: Path) -> None:
    found = site(tmp_path, GOOD)
    assert found.partition("urgent") == SlurmPartition(2, 5, 600_000)
    assert found.partition("other") == found.partition(None) == SlurmPartition(1, 1, None)
    assert (found.qos("high"), found.qos("low"), found.qos(None)) == (Qos(100, ("low",)), Qos(), Qos())
    assert found.shares == {"vision": 3}
    assert (found.factor_max, found.qos_max) == (5, 100)
    assert (PLAIN_SITE.factor_max, PLAIN_SITE.qos_max) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[[qos]]", "[[quality]]", "'quality'"),
        ("[[account]]", "[account]", "tables"),
        ("PriorityTier = 2", "PriorityTier = 65534", "PriorityTier = 65534, which must be a whole number 0"),
        ("PriorityTier = 2", "PriorityTier = true", "PriorityTier = True"),
        ("PriorityTier = 2", "priority_tier = 2", "'priority_tier'; it may have PriorityTier"),
        ("DefaultTime = 10", "DefaultTime = 0", "whole minutes, at least 1"),
        ("Priority = 100", "Priority = -1", "Priority = -1"),
        ('Preempt = ["low"]', 'Preempt = "low"', "a list of names"),
        ('Preempt = ["low"]', 'Preempt = ["lwo"]', "'lwo', which is no"),
        ("Fairshare = 3", "Fairshare = 0", "Fairshare = 0"),
        ('name = "low"', 'name = "high"', "name of its own"),
        ('name = "low"', "", "name of its own"),
        ('name = "low"', "name = ", "site.toml"),
        ("Priority = 100", f"Priority = {'9' * 5000}", "beyond 64 bits"),
        ("Priority = 100", f"Priority = {'[' * 5000}{']' * 5000}", "too deep"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        site(tmp_path, GOOD.replace(old, new))
    assert why in str(refusal.value)
    assert str(refusal.value).endswith("nothing was run.")
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was run"):
        Site.from_toml(str(tmp_path / "none.toml"))


def test_limits_accounts_and_qualities_reach_the_jobs(tmp_path: Path) -> None:
    """A limit of its own, the partition's where there is none, none where neither tells one."""
    table = tmp_path / "jobs.csv"
    table.write_text(
        "job_id,submit_s,duration_s,gpus,partition,account,qos,time_limit_s\n"
        "a,0,900,1,urgent,vision,high,60\nb,1,900,1,urgent,,low,\nc,2,900,1,usual,speech,,\n"
    )
    jobs = Workload.of(load(f"table:{table}"), 500_000, site=site(tmp_path, GOOD))
    assert [one.limit_ms for one in jobs.facts] == [60_000, 600_000, None]
    assert [(one.account, one.qos) for one in jobs.facts] == [
        ("vision", "high"),
        (None, "low"),
        ("speech", None),
    ]
    assert list(jobs.duration_ms) == [60_000, 600_000, 900_000]
