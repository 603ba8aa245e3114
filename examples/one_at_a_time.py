"""A policy that decides for itself: the whole cluster for one job at a time, in order of arrival.

    trimtab compare "synthetic:philly?days=0.1&seed=1" --nodes 20 --engine reference --quiet \
        --policy fifo --policy examples/one_at_a_time.py::OneAtATime

What it prints is in one_at_a_time.out: why nobody runs a cluster like this.
"""

from trimtab.cluster import ClusterView
from trimtab.knobs import Knobs, Space
from trimtab.policies.policy import Decision, Start


class OneAtATime:
    """Starts the first waiting job once nothing runs any more."""

    name = "one-at-a-time"
    space = Space()

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return the changes to make now; the view is a copy, trying things on it is free."""
        if view.running or not view.pending:
            return []
        return [Start(view.pending[0].id)]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return None: arrivals and completions ask anyway, and nothing else matters here."""
        return None
