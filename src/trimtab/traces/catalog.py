"""The public traces by name: where they are, whose, what is missing in them; and how to fetch one."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import ConfigError, InputError, OutputError, UnknownName


@dataclass(frozen=True, slots=True)
class Public:
    """A public trace.

    Attributes:
        name: What `trace fetch` calls it.
        url: Where it is.
        sha256: Of the file at the URL; None where no checksum is published: then it is recorded at the
            first download and printed.
        load_as: The source that loads it, after unpacking where `unpack` says how.
        holes: What it does not say or gets wrong.
    """

    name: str
    title: str
    url: str
    sha256: str | None
    size_mb: int | None
    licence: str
    cite: str
    load_as: str
    holes: tuple[str, ...]
    unpack: str = ""

    @property
    def file(self) -> str:
        """The file's name at the URL."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A trace on disk; `known` says whether its checksum was known before, and so verified."""

    path: Path
    sha256: str
    known: bool


_HELIOS = "Hu et al., Characterization and Prediction of Deep Learning Workloads, SC'21"
_PAI = "Weng et al., MLaaS in the Wild, NSDI'22"
_PAI_URL = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
_CHRONUS = "Gao et al., Chronus: A Novel Deadline-aware Scheduler, SoCC'21"
_CHRONUS_URL = "https://raw.githubusercontent.com/S-Lab-System-Group/ChronusArtifact/main/code/data/exp"
_ACME = "Hu et al., Characterization of Large Language Model Development in the Datacenter, NSDI'24"
_ACME_URL = "https://raw.githubusercontent.com/InternLM/AcmeTrace/main/data/job_trace"
_NO_LICENCE = "none stated; cite the paper"

CATALOG: tuple[Public, ...] = (
    Public(
        name="philly",
        title="Microsoft Philly, 117,325 jobs, 2017-08-07 .. 12-22",
        url="https://media.githubusercontent.com/media/msr-fiddle/philly-traces/master/trace-data.tar.gz",
        sha256="2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c",  # its Git LFS pointer
        size_mb=1056,
        licence="as is; cite the paper",
        cite="Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters, ATC'19",
        load_as="philly:trace-data.tar.gz",
        holes=(
            "no time zone stated",
            "attempts without a start or an end, jobs without an attempt (their GPUs are unknown)",
            "some jobs hold more GPUs of a machine than the machine list gives it",
        ),
    ),
    Public(
        name="helios",
        title="SenseTime Helios, clusters Earth, Saturn, Uranus, Venus, 2020-04 .. 09",
        url="https://raw.githubusercontent.com/S-Lab-System-Group/HeliosData/master/data.zip",
        sha256="3d22a5f6c0ae669e2fcbfe4200fa9c48664507bc397c677bad8f085222c032ac",  # as its users publish it
        size_mb=36,
        licence="CC BY 4.0",
        cite=_HELIOS,
        load_as="helios:data/Venus/cluster_log.csv",
        unpack="unzip data.zip",
        holes=(
            "half of the jobs ask for no GPU and are left out",
            "no GPU utilisation columns",
            "nodes were added over the six months: the cluster's size is not one number",
        ),
    ),
    Public(
        name="pai-tasks",
        title="Alibaba PAI 2020, tasks of two months",
        url=f"{_PAI_URL}/pai_task_table.tar.gz",
        sha256="cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",  # the source's README
        size_mb=34,
        licence=_NO_LICENCE,
        cite=_PAI,
        load_as="pai:pai_task_table.tar.gz",
        holes=(
            "no header line, no submit time, no user: the task's start stands for its arrival",
            "half of the tasks ask for a part of a GPU",
            "dates are shifted: hour and weekday are true in UTC+8, the date is not",
        ),
    ),
    Public(
        name="pai-jobs",
        title="Alibaba PAI 2020, jobs (submit times and users); put it beside pai-tasks",
        url=f"{_PAI_URL}/pai_job_table.tar.gz",
        sha256="5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",  # the source's README
        size_mb=60,
        licence=_NO_LICENCE,
        cite=_PAI,
        load_as="pai:pai_job_table.tar.gz",
        holes=("no GPU counts: they are the tasks'",),
    ),
    Public(
        name="chronus-slo",
        title="Chronus, Philly-derived, 30,940 jobs, every one with a deadline",
        url=f"{_CHRONUS_URL}/trace_job_Philly_SLO.csv",
        sha256="180fd7db3eeabe5df705c25259fcec972be2ba7b483887e26ca17e22d96b9f3e",
        size_mb=2,
        licence="MIT",
        cite=_CHRONUS,
        load_as="chronus:trace_job_Philly_SLO.csv",
        holes=("models, iterations and deadlines are synthetic", "about 200 jobs ask for no GPU"),
    ),
    Public(
        name="chronus-mix1",
        title="Chronus, Philly-derived, 30,940 jobs, 70 % with a deadline",
        url=f"{_CHRONUS_URL}/trace_job_Philly_MIX1.csv",
        sha256="6228d86e2c1fddb2d9e1c006f7a71b4127b7dbed4efbab5aea428fa72ea2dd74",
        size_mb=2,
        licence="MIT",
        cite=_CHRONUS,
        load_as="chronus:trace_job_Philly_MIX1.csv",
        holes=("models, iterations and deadlines are synthetic", "about 200 jobs ask for no GPU"),
    ),
    Public(
        name="acme-seren",
        title="Shanghai AI Lab Acme, cluster Seren, 2023-03 .. 08",
        url=f"{_ACME_URL}/trace_seren.csv",
        sha256=None,
        size_mb=None,
        licence="CC BY 4.0",
        cite=_ACME,
        load_as="helios:trace_seren.csv",
        holes=("no virtual cluster",),
    ),
    Public(
        name="acme-kalos",
        title="Shanghai AI Lab Acme, cluster Kalos, 2023-03 .. 08",
        url=f"{_ACME_URL}/trace_kalos.csv",
        sha256=None,
        size_mb=None,
        licence="CC BY 4.0",
        cite=_ACME,
        load_as="helios:trace_kalos.csv",
        holes=("no virtual cluster",),
    ),
)


def find(name: str) -> Public:
    """Return a trace of the catalogue.

    Raises:
        UnknownName: If there is none of that name; carries the nearest.
    """
    for public in CATALOG:
        if public.name == name:
            return public
    raise UnknownName("public trace", name, [public.name for public in CATALOG])


def fetch(name: str, folder: str | Path, base_url: str | None = None) -> Fetched:
    """Download a public trace into a folder, whole and verified or not at all.

    A file that is there already and has the known checksum is not fetched again.

    Args:
        name: A name of the catalogue.
        folder: Where to put it; made if need be.
        base_url: A mirror: the file is taken from `base_url/FILE`.

    Raises:
        UnknownName: If there is no such trace.
        ConfigError: If pooch is not installed.
        InputError: If it cannot be fetched, or its checksum is another.
        OutputError: If it cannot be written.
    """
    public = find(name)
    url = f"{base_url.rstrip('/')}/{public.file}" if base_url else public.url
    return download(url, Path(folder), public.sha256)


def download(url: str, folder: Path, sha256: str | None) -> Fetched:
    """Download one file; see `fetch`."""
    try:
        import pooch
        import requests
    except ImportError:
        raise ConfigError("fetching traces needs pooch: pip install pooch; nothing was fetched.") from None
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be made ({problem.strerror}); nothing was fetched.") from None
    target = folder / url.rsplit("/", 1)[-1]
    known = f"sha256:{sha256}" if sha256 else None
    try:
        path = Path(pooch.retrieve(url, known, fname=target.name, path=folder))
    except requests.HTTPError as problem:
        status = problem.response.status_code if problem.response is not None else "?"
        raise InputError(f"{url}: the server answers {status}; nothing was fetched.") from None
    except requests.RequestException as problem:
        reason = _line(problem)
        raise InputError(f"{url}: the download broke off ({reason}); nothing was kept.") from None
    except ValueError as problem:
        if "hash" not in str(problem).lower():
            raise InputError(f"{url}: cannot be fetched ({_line(problem)}); nothing was kept.") from None
        raise InputError(
            f"{url}: the file's SHA-256 is not the known {sha256} (changed or damaged); nothing was kept."
        ) from None
    except OSError as problem:
        raise OutputError(f"{target}: cannot be written ({problem.strerror}); nothing was kept.") from None
    return Fetched(path, hashlib.sha256(path.read_bytes()).hexdigest(), sha256 is not None)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:160] or type(problem).__name__
