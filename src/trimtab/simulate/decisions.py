"""A whole-pass policy's decisions, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.errors import ConfigError
from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Decision, Preempt, Start
from trimtab.simulate.partition import Partition


def carry_out(
    decisions: list[Decision], part: Partition, jobs: Mapping[int, JobView], home: int, policy: str
) -> tuple[list[JobView], dict[int, Nodes]]:
    """Check a policy's decisions, preemptions first, and enter them in the partition's index.

    Returns:
        The running jobs that lose their GPUs, and the places of those that get some, in order.

    Raises:
        ConfigError: If a decision is not possible; it names the job and the rule.
    """
    lost: list[JobView] = []
    places: dict[int, Nodes] = {}
    free = part.free_map()
    for decision in decisions:
        if isinstance(decision, Preempt):
            job = part.running.get(decision.job_id)
            if job is None or job.shielded or job in lost:
                raise _refusal(policy, decision, jobs, "it is not running, or may not be preempted now")
            lost.append(job)
            free.give(job.nodes)
            part.index.add(part.top(job), part.levels, job.nodes, 1)
        elif not isinstance(decision, Start):
            raise ConfigError(
                f"policy {policy} decides {decision!r}, which is neither Start nor Preempt; "
                "the run ends here."
            )
    for decision in decisions:
        if isinstance(decision, Start):
            waiting = jobs.get(decision.job_id)
            if (
                waiting is None
                or waiting.home != home
                or decision.job_id in places
                or (waiting.nodes and waiting not in lost)
            ):
                raise _refusal(policy, decision, jobs, "it is not pending here")
            nodes = free.place(waiting.gpus) if decision.nodes is None else decision.nodes
            if nodes is None or not free.may_take(nodes, waiting.gpus):
                raise _refusal(policy, decision, jobs, "its GPUs are not free")
            free.take(nodes)
            part.index.add(waiting.level if part.preemptive else 0, part.levels, nodes, -1)
            places[decision.job_id] = nodes
    return lost, places


def _refusal(policy: str, decision: Decision, jobs: Mapping[int, JobView], rule: str) -> ConfigError:
    verb, job = type(decision).__name__.lower(), jobs.get(decision.job_id)
    who = f"id {decision.job_id!r}" if job is None else job.facts.label
    return ConfigError(f"policy {policy} asks to {verb} job {who}: {rule}; the run ends here.")
