"""The cluster: virtual clusters of equal nodes, and free GPUs as a map one can try things on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trimtab.curve import FULL_SPEED_PPM, Curve, Share, total
from trimtab.errors import ConfigError
from trimtab.job import Jobs, JobView, Nodes
from trimtab.profile import PairSpeeds
from trimtab.site import PLAIN_SITE, Site
from trimtab.toml import toml_table

Placement = Literal["count", "consolidated", "relaxed"]
PLACEMENTS: tuple[Placement, ...] = ("count", "consolidated", "relaxed")

# What a node has for each of its GPUs, unless it is told (Synergy's servers: 24 cores and 500 GiB for 8).
CORES_PER_GPU = 3
MEMORY_MIB_PER_GPU = 64_000
_MIB = 1024  # of a GiB

# Beyond these a number is a mistake: Synergy's pass over a node takes as long as it has cores, and more nodes
# or wider ones would need more memory than a workstation has.
CORES_PER_GPU_MAX = 1_000
MEMORY_GIB_PER_GPU_MAX = 1_000_000
NODES_MAX = 100_000
GPUS_PER_NODE_MAX = 100_000


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """Nodes of one size with a queue of their own; `first_node` is the id of its first node.

    Attributes:
        cores_per_node, memory_mib_per_node: CPU and memory; 0 becomes 3 cores and 62.5 GiB a GPU.
    """

    name: str
    nodes: int
    gpus_per_node: int
    first_node: int = 0
    cores_per_node: int = 0
    memory_mib_per_node: int = 0

    def __post_init__(self) -> None:
        """Give a node of which nothing else is told the usual CPU and memory."""
        for name, per_gpu in (("cores_per_node", CORES_PER_GPU), ("memory_mib_per_node", MEMORY_MIB_PER_GPU)):
            if not getattr(self, name):
                object.__setattr__(self, name, per_gpu * self.gpus_per_node)

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def node_share(self) -> Share:
        """CPU and memory of a node."""
        return Share(self.cores_per_node, self.memory_mib_per_node)

    def proportional(self, gpus: int) -> Share:
        """Return what so many GPUs of a node come with: their part of its CPU and memory, rounded down."""
        size = self.gpus_per_node
        return Share(gpus * self.cores_per_node // size, gpus * self.memory_mib_per_node // size)

    def held(self, job: JobView) -> Share:
        """Return the CPU and memory a running job has on its nodes together; none while it is pending."""
        if job.share is not None:
            return job.share
        return total(self.proportional(gpus) for _, gpus in job.nodes)

    def speed_ppm(self, curve: Curve, gpus: int, share: Share) -> int:
        """Return how fast a job is with a share, in ppm of its speed with the proportional one, at least 1.

        That one is full speed whatever a node has for each GPU: curves are normalised here, not where they
        were measured.
        """
        base = curve.at(gpus, self.proportional(gpus))
        return max(1, curve.at(gpus, share) * FULL_SPEED_PPM // max(1, base))


@dataclass(frozen=True)
class Cluster:
    """All virtual clusters. With `pooled`, there is one, and a job's `vc` is only a label."""

    vcs: tuple[VirtualCluster, ...]
    pooled: bool = True

    @classmethod
    def pool(
        cls, nodes: int, gpus_per_node: int, cores_per_node: int = 0, memory_mib_per_node: int = 0
    ) -> Cluster:
        """Return a cluster of one pool; 0 CPU cores or memory stand for the usual.

        Raises:
            ConfigError: If a number is below 1, or a GPU would come with no CPU core or no MiB.
        """
        _require_positive("nodes", nodes)
        _require_positive("gpus-per-node", gpus_per_node)
        _require_care("", cores_per_node, memory_mib_per_node, gpus_per_node)
        return cls((VirtualCluster("all", nodes, gpus_per_node, 0, cores_per_node, memory_mib_per_node),))

    @classmethod
    def partitioned(cls, sizes: Sequence[tuple[str, int, int] | tuple[str, int, int, int, int]]) -> Cluster:
        """Return hard partitions, node ids running on.

        Args:
            sizes: (name, nodes, GPUs a node), or these with CPU cores and MiB a node, 0 for the usual.

        Raises:
            ConfigError: As of `pool`, or if two have one name.
        """
        vcs: list[VirtualCluster] = []
        first_node = 0
        for name, nodes, gpus_per_node, *more in sizes:
            _require_positive(f"vc {name}: nodes", nodes)
            _require_positive(f"vc {name}: gpus_per_node", gpus_per_node)
            cores, memory_mib = more or (0, 0)
            _require_care(f"vc {name}: ", cores, memory_mib, gpus_per_node)
            vcs.append(VirtualCluster(name, nodes, gpus_per_node, first_node, cores, memory_mib))
            first_node += nodes
        if len({vc.name for vc in vcs}) < len(vcs) or not vcs:
            raise ConfigError("a cluster needs virtual clusters with different names; nothing was run.")
        return cls(tuple(vcs), pooled=False)

    @classmethod
    def from_toml(cls, path: Path) -> Cluster:
        """Read `[[vc]]` tables with `name`, `nodes`, `gpus_per_node`.

        They may have `cores_per_node` and `memory_gib_per_node` as well.

        Raises:
            ConfigError: If the file cannot be read or has other keys.
        """
        try:
            tables = toml_table(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"cluster file {path}: {error}; nothing was run.") from None
        rows = tables.get("vc")
        if set(tables) != {"vc"} or not isinstance(rows, list):
            raise ConfigError(f"cluster file {path}: it must hold [[vc]] tables and nothing else.")
        keys = {"name", "nodes", "gpus_per_node"}
        more = {"cores_per_node", "memory_gib_per_node"}
        for row in rows:
            if not isinstance(row, dict) or not keys <= set(row) <= keys | more:
                raise ConfigError(
                    f"cluster file {path}: each [[vc]] has {', '.join(sorted(keys))}, and at most "
                    f"{' and '.join(sorted(more))} besides."
                )
            if not isinstance(row["name"], str) or not row["name"].isprintable() or not row["name"]:
                raise ConfigError(
                    f"cluster file {path}: name = {row['name']!r:.60}: it must be a text; nothing was run."
                )
        return cls.partitioned([_size(f"vc {row['name']}: ", **row) for row in rows])

    @property
    def gpus(self) -> int:
        return sum(vc.gpus for vc in self.vcs)

    @property
    def nodes(self) -> int:
        return sum(vc.nodes for vc in self.vcs)

    def home(self, vc: str | None) -> int | None:
        """Return the index of the virtual cluster a job belongs to, or None if it has none."""
        if self.pooled:
            return 0
        return next((index for index, one in enumerate(self.vcs) if one.name == vc), None)

    def jsonable(self) -> dict[str, object]:
        """Return plain values for JSON."""
        names = "name", "nodes", "gpus_per_node", "cores_per_node", "memory_mib_per_node"
        vcs = [{name: getattr(vc, name) for name in names} for vc in self.vcs]
        return {"nodes": self.nodes, "gpus": self.gpus, "pooled": self.pooled, "vcs": vcs}


def _require_positive(what: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(
            f"{what} = {number!r:.60}: it must be a whole number of at least 1; nothing was run."
        )


def _require_care(vc: str, cores: int, memory_mib: int, gpus_per_node: int) -> None:
    """Refuse what a node cannot have of CPU or memory; 0 stands for the usual."""
    if cores != 0:
        _require_each(f"{vc}cores_per_node", cores, CORES_PER_GPU_MAX, gpus_per_node)
    if memory_mib != 0:
        _require_each(f"{vc}memory_mib_per_node", memory_mib, _MIB * MEMORY_GIB_PER_GPU_MAX, gpus_per_node)


def _require_each(what: str, number: object, most: int, gpus_per_node: int) -> None:
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not gpus_per_node <= number <= most * gpus_per_node:  # type: ignore[operator]
        raise ConfigError(
            f"{what} = {number!r:.60}: it must be a whole number, 1 .. {most:,} for each of "
            f"{gpus_per_node:,} GPUs; nothing was run."
        )


def _size(
    vc: str,
    name: str,
    nodes: Any,
    gpus_per_node: Any,
    cores_per_node: object = None,
    memory_gib_per_node: object = None,
) -> tuple[str, int, int, int, int]:
    """Return a virtual cluster of a file as `partitioned` takes it."""
    _require_positive(f"{vc}gpus_per_node", gpus_per_node)
    cores = cores_of(f"{vc}cores_per_node", cores_per_node, gpus_per_node)
    memory_mib = memory_mib_of(f"{vc}memory_gib_per_node", memory_gib_per_node, gpus_per_node)
    return name, nodes, gpus_per_node, cores, memory_mib


def cores_of(what: str, cores: Any, gpus_per_node: int) -> int:
    """Return CPU cores of a node, 0 where nothing is said.

    Raises:
        ConfigError: If a node cannot have so many.
    """
    if cores is None:
        return 0
    _require_each(what, cores, CORES_PER_GPU_MAX, gpus_per_node)
    return int(cores)


def memory_mib_of(what: str, gib: object, gpus_per_node: int) -> int:
    """Return the memory of a node in whole MiB, 0 where nothing is said.

    Raises:
        ConfigError: If a node cannot have so much.
    """
    if gib is None:
        return 0
    least, most = gpus_per_node / _MIB, MEMORY_GIB_PER_GPU_MAX * gpus_per_node
    if isinstance(gib, bool) or not isinstance(gib, int | float) or not least <= gib <= most:
        raise ConfigError(
            f"{what} = {gib!r:.60}: it must be GiB, 1/{_MIB} .. {MEMORY_GIB_PER_GPU_MAX:,} for each of "
            f"{gpus_per_node:,} GPUs; nothing was run."
        )
    return round(gib * _MIB)


def check_size(cluster: Cluster) -> None:
    """Refuse a cluster that is larger than can be simulated.

    Raises:
        ConfigError: If it is.
    """
    widest = max(vc.gpus_per_node for vc in cluster.vcs)
    for what, size, most in (
        ("nodes", cluster.nodes, NODES_MAX),
        ("gpus-per-node", widest, GPUS_PER_NODE_MAX),
    ):
        if size > most:
            raise ConfigError(f"{what} = {size:,}: at most {most:,} can be simulated; nothing was run.")


class FreeMap:
    """Free GPUs of each node, with the placement rules written as they are said.

    This is the specification; the engine's index gives the same answers faster.
    """

    def __init__(self, free: Sequence[int], gpus_per_node: int, placement: Placement) -> None:
        self.free = list(free)
        self.gpus_per_node = gpus_per_node
        self.placement = placement

    @contextmanager
    def trial(self) -> Iterator[FreeMap]:
        """Try things on the map; leaving the block puts every node back as it was."""
        before = list(self.free)
        try:
            yield self
        finally:
            self.free[:] = before

    def take(self, nodes: Nodes) -> None:
        for node, gpus in nodes:
            self.free[node] -= gpus

    def give(self, nodes: Nodes) -> None:
        for node, gpus in nodes:
            self.free[node] += gpus

    def holds(self, nodes: Nodes) -> bool:
        """Whether all these GPUs are free."""
        return all(self.free[node] >= gpus for node, gpus in nodes)

    def may_take(self, nodes: Nodes, gpus: int) -> bool:
        """Whether these are so many free GPUs on different nodes that there are."""
        return (
            len({node for node, _ in nodes}) == len(nodes)
            and all(0 <= node < len(self.free) and part > 0 for node, part in nodes)
            and sum(part for _, part in nodes) == gpus
            and self.holds(nodes)
        )

    def place(self, gpus: int, consolidate: bool = False) -> Nodes | None:
        """Return where a gang goes by the placement rule, or None; `consolidate` forbids spreading."""
        if self.placement == "count":
            return ((0, gpus),) if self.free[0] >= gpus else None
        found = self._consolidated(gpus)
        if found is None and self.placement == "relaxed" and not consolidate:
            found = self._spread(gpus)
        return found

    def _consolidated(self, gpus: int) -> Nodes | None:
        """Best fit on one node; a wider gang takes wholly free nodes, lowest first, then best fit."""
        whole, rest = divmod(gpus, self.gpus_per_node)
        if gpus <= self.gpus_per_node:
            whole, rest = 0, gpus
        full = [node for node, free in enumerate(self.free) if free == self.gpus_per_node][:whole]
        if len(full) < whole:
            return None
        chosen = tuple((node, self.gpus_per_node) for node in full)
        if not rest:
            return chosen
        fits = [(free, node) for node, free in enumerate(self.free) if free >= rest and node not in full]
        return (*chosen, (min(fits)[1], rest)) if fits else None

    def _spread(self, gpus: int) -> Nodes | None:
        """Take from the nodes with most free GPUs first, ties by node."""
        chosen: list[tuple[int, int]] = []
        for free, node in sorted(((free, node) for node, free in enumerate(self.free)), key=_most_free):
            if free <= 0:
                return None
            part = min(free, gpus)
            chosen.append((node, part))
            gpus -= part
            if gpus == 0:
                return tuple(chosen)
        return None


def _most_free(item: tuple[int, int]) -> tuple[int, int]:
    free, node = item
    return -free, node


def is_spread(nodes: Nodes, gpus_per_node: int) -> bool:
    """Whether a gang is anywhere else than wholly taken nodes and one for the rest."""
    whole, rest = divmod(sum(gpus for _, gpus in nodes), gpus_per_node)
    return len(nodes) > whole + (rest > 0) or sum(gpus == gpus_per_node for _, gpus in nodes) < whole


class Pace(Protocol):
    """A forecast of submissions, made anew from time to time from what was submitted before."""

    def at(self, now_ms: int) -> int:
        """Return the jobs per ten minutes forecast at an instant, in ppm of a job."""
        ...

    def next_ms(self, now_ms: int) -> int | None:
        """Return the next instant with another forecast, None if there is none."""
        ...

    def supposing(self, now_ms: int, coming_ms: Sequence[int]) -> Pace:
        """Return the forecast if from an instant on jobs come at these instants."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a policy may know of one virtual cluster at one instant. Node ids start at 0 in each.

    Attributes:
        free: A copy: take, give and trial on it change nothing outside.
        completed_gpu_ms: Services of completed jobs, where the policy asks for them.
        job_ms: Integral of the number of active jobs over time, up to now, in job x ms.
        review_ms: The review the policy asked for last, None if it asked for none; now if it is this one.
        memory: What the policy wrote down about the virtual cluster last; it alone knows what it means.
        site: What partitions, qualities of service and accounts are worth.
    """

    now_ms: int
    vc: VirtualCluster
    pending: Jobs
    running: Jobs
    free: FreeMap
    completed_gpu_ms: tuple[int, ...] = ()
    job_ms: int = 0
    review_ms: int | None = None
    speeds: PairSpeeds | None = None
    pace: Pace | None = None
    memory: tuple[int, ...] = ()
    site: Site = PLAIN_SITE
