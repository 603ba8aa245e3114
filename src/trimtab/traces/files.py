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
            InputError: If the data holds NUL bytes, as no text does.
        """
        if b"\x00" in self.data:
            raise InputError(f"{self.path}: is binary, not text; nothing was loaded.")
        text = self.data.decode("utf-8-sig", errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n")


def read(path: str | Path) -> Stored:
    """Read a file; gzip is recognised by its first bytes, a tar archive of one file is unpacked.

    Raises:
        InputError: If the file is missing, a folder, unreadable, empty or damaged.
    """
    path = Path(path)
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
    data = raw
    if raw.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(raw)
        except EOFError:
            raise InputError(
                f"{path}: the gzip file is cut short; fetch it again, nothing was loaded."
            ) from None
        except (OSError, zlib.error) as problem:
            raise InputError(f"{path}: the gzip file is damaged ({problem}); nothing was loaded.") from None
    if data[257:262] == b"ustar":
        return _only_member(path, data)
    return data


def _only_member(path: Path, data: bytes) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            stream = archive.extractfile(files[0]) if len(files) == 1 else None
            if stream is not None:
                return stream.read()
    except (tarfile.TarError, OSError, EOFError, ValueError) as problem:
        raise InputError(f"{path}: the tar archive is damaged ({problem}); nothing was loaded.") from None
    raise InputError(f"{path}: holds {len(files)} files, one is needed; unpack it and name one of them.")
