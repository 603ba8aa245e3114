"""A queue policy in one hook: narrow gangs first, in order of arrival among equals.

    trimtab compare "synthetic:philly?days=1&seed=1" --nodes 20 --engine reference --quiet \
        --policy fifo --policy examples/shortest_gang_first.py::ShortestGangFirst

What it prints is in shortest_gang_first.out.
"""

from trimtab.job import JobView
from trimtab.knobs import Knobs
from trimtab.policies.policy import QueuePolicy


class ShortestGangFirst(QueuePolicy):
    """Order (GPUs, submit, id); a wide gang waits until nothing narrower does."""

    name = "shortest-gang-first"
    preemptive = False

    def key(self, job: JobView, now_ms: int, knobs: Knobs) -> int:
        """Return the order among waiting jobs: smaller first; ties go to the earlier arrival."""
        return job.gpus
