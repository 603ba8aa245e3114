"""What every page says about its runs: where they come from, and what its words mean."""

from __future__ import annotations

from trimtab import __version__
from trimtab.cluster import Cluster
from trimtab.report import numbers
from trimtab.report.markup import Html, breakable, join, tag
from trimtab.traces.trace import Provenance

NOISE = 0.05  # of a mean, that the order of ties alone can make up
NOISE_WARNING = "A difference this small may come from the order of simultaneous jobs alone."
TERMS: dict[str, str] = {
    "Wait": "Time from submission to completion less the run time: queueing, work lost to preemption, "
    "restarts and slower speed, all of it.",
    "Queue": "The part of waiting in which the job holds no GPUs.",
    "JCT": "Job completion time: from submission to completion.",
    "Median, p95, p99": "Half, 95 % and 99 % of the jobs have at most this value (linear interpolation). "
    "Few long jobs move a mean; the median says what a usual job sees, p99 what the unlucky ones see.",
    "Slowdown": "Time a job holds its GPUs over its run time: above 1 through restarts and slower placement.",
    "GPU utilisation": "GPU time held over the cluster's, from the first submission to the last completion; "
    "while jobs arrive: to the last submission. Restarts count as held, so more is not better in itself "
    "and none is marked as best.",
    "Makespan": "From the first submission to the last completion; one long job can decide it.",
    "ρ ≤ 1": "Jobs that finish no later than with a fair share of the cluster of their own.",
    "Deadlines missed": "Share of the jobs with a deadline that did not finish by their first one; jobs that "
    "never finished have missed it. Jobs of best effort are left out.",
    "Value lost": "The mean share of a job's best value that it lost: a job that meets a later deadline "
    "loses a part, one that meets none loses all.",
    "Tardiness": "How long after its first deadline a job finishes, 0 if before.",
    "To the first start": "From submission to a job's first start; Queue counts later waiting as well.",
    "Ratio": "The small grey number under a value: the value over the first one's. 0.50× is half.",
    "Best": "The best value of a measure. None is marked where all are equal, or where the spread over tie "
    "orders leaves it open.",
    "Ties": "Jobs submitted at the same instant have no natural order, and their order moves results by "
    "some per cent. --tie-seeds repeats the simulation in random orders and shows the range.",
    "Oracle": "Chooses with knowledge of the future, as no scheduler can: what better forecasts could bring "
    "at most.",
    "Predicted gain": "What the running setting cost over what the best one found did, on the forecast of "
    "that round: 1 is no gain. The cost is what is tuned for, in seconds, or the per cent of jobs with "
    "ρ > 1; 1 is added to both.",
    "Switch": "A change of the running scheduler's settings.",
}


def terms(*names: str) -> tuple[tuple[str, str], ...]:
    """Return the named terms with their meaning."""
    return tuple((name, TERMS[name]) for name in names)


def provenance_facts(provenance: Provenance, kept: int) -> tuple[tuple[str, str], ...]:
    """Return the facts about the trace: source, what was kept and what was left out."""
    left_out = sum(item.count for item in provenance.left_out)
    jobs = f"{numbers.many(kept, 'job')} simulated of {numbers.many(provenance.rows, 'row')} read"
    return (
        ("Trace", breakable(provenance.source)),
        ("Jobs", jobs),
        ("Left out while reading", _left_out(provenance) if left_out else "nothing"),
    )


def digest_fact(provenance: Provenance) -> tuple[str, str]:
    """Return the fact that says which bytes were read."""
    return "SHA-256 of the trace", tag("span", provenance.sha256, class_="mono")


def cluster_text(cluster: Cluster) -> str:
    """Return the cluster in one line."""
    if cluster.pooled:
        one = cluster.vcs[0]
        return (
            f"{numbers.many(one.nodes, 'node')} × {one.gpus_per_node} GPUs = {numbers.count(one.gpus)} GPUs"
        )
    return (
        f"{numbers.count(cluster.gpus)} GPUs on {numbers.many(cluster.nodes, 'node')} in "
        f"{numbers.many(len(cluster.vcs), 'virtual cluster')}"
    )


def version_fact() -> tuple[str, str]:
    """Return the fact of our version."""
    return "Trimtab", __version__


def _left_out(provenance: Provenance) -> Html:
    items = [f"{numbers.count(item.count)} × {item.reason}" for item in provenance.left_out if item.count]
    return join(*(tag("div", item) for item in items))
