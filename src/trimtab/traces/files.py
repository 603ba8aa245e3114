"""Bytes in, bytes out: reads a stored trace whatever its packing, writes a result whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import InputError, OutputError

_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
_JOB_LOG = "cluster_job_log"  # the one of Philly's five files that has the jobs
_FILE_MAX = 2**31


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as read: `data` is unpacked, `sha256` is of the bytes on disk."""

    path: Path
    sha256: str
    data: bytes

    @property
    def parquet(self) -> bool:
        """Whether the data is Parquet, by its first bytes."""
        return self.data.startswith(_PARQUET_MAGIC)

    def text(self) -> str:
        """Return the data as text; bytes that are not UTF-8 become U+FFFD, a byte order mark goes.

        Raises:
            InputError: If the data holds NUL bytes, as no text does, or nothing but blanks.
        """
        if b"\x00" in self.data:
            raise InputError(f"{self.path}: is binary, not text; nothing was loaded.")
        text = self.data.decode("utf-8-sig", errors="replace")
        if not text.strip():
            raise InputError(f"{self.path}: is empty; nothing was loaded.")
        return text.replace("\r\n", "\n").replace("\r", "\n")


def read(path: str | Path) -> Stored:
    """Read a file; gzip is recognised by its first bytes, a tar archive of one file is unpacked.

    Raises:
        InputError: If the file is missing, a folder, unreadable, empty or damaged.
    """
    path = Path(path)
    with contextlib.suppress(RuntimeError):  # the shell leaves the ~ of FORMAT:~/file alone
        path = path.expanduser()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; nothing was loaded.") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a file; nothing was loaded.") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(f"{path}: cannot be read ({reason}); nothing was loaded.") from None
    data = _unpacked(path, raw)
    if not data.strip():
        raise InputError(f"{path}: is empty; nothing was loaded.")
    return Stored(path, hashlib.sha256(raw).hexdigest(), data)


def write(path: str | Path, data: bytes) -> None:
    """Write a file whole: to a neighbour first, then renamed over the target.

    A device or pipe that exists is written to directly, since renaming would replace it.

    Raises:
        OutputError: If it cannot be written; an older file of that name stays as it was.
    """
    target = Path(path)
    part: Path | None = None
    try:
        target = target.resolve()
        if target.exists() and not target.is_file():
            with target.open("wb") as out:
                out.write(data)
            return
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        with part.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise OutputError(f"{path}: cannot be written ({reason}); nothing was written.") from None
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _unpacked(path: Path, raw: bytes) -> bytes:
    try:
        if not raw.startswith(_GZIP_MAGIC):
            return _member(path, raw) if _is_tar(raw[:512]) else raw
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            head = packed.read(512)
        return _member(path, raw) if _is_tar(head) else gzip.decompress(raw)
    except EOFError:
        raise InputError(f"{path}: the gzip file is cut short; fetch it again, nothing was loaded.") from None
    except (OSError, zlib.error, tarfile.TarError, ValueError) as problem:
        raise InputError(f"{path}: the packed file is damaged ({problem}); nothing was loaded.") from None


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _member(path: Path, raw: bytes) -> bytes:
    """Return the job log of an archive, or its only file; large neighbours are skipped, not held."""
    names: list[str] = []
    data = b""
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for member in archive:
            if not member.isfile():
                continue
            names.append(member.name)
            wanted = Path(member.name).name == _JOB_LOG
            stream = (
                archive.extractfile(member)
                if wanted or (len(names) == 1 and member.size < _FILE_MAX)
                else None
            )
            if stream is not None:
                data = stream.read()
            if wanted:
                return data
    if len(names) != 1 or not data:
        raise InputError(
            f"{path}: the archive holds {len(names)} files, one is needed; unpack it and name one of them."
        )
    return data
