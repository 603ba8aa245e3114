"""The one file that Trimtab writes on a Slurm cluster: included by slurm.conf, and how it is checked.

Its first lines are comments that say what was written, when and under which key, so that one rename makes a
change and its record, and a process that was killed in between finds out what it had done. Lines of others in
it stay as they are. All other files of Slurm's are only read.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trimtab.control import slurm_keys as keys
from trimtab.control.adapter import Refused, Unreachable
from trimtab.control.slurm_commands import Commands
from trimtab.errors import ConfigError

RECORDS_MAX = 100
_MARK = "# trimtab "
_LINE_MAX = 3500  # Slurm cuts lines off soon after that
_DEPTH_MAX = 10
_SIZE_MAX = 1 << 20
_INCLUDE = re.compile(r"^\s*include\s+(\S+)\s*$", re.IGNORECASE)
_SETTING = re.compile(r"(?:^|\s)([A-Za-z_]\w*)\s*=")


class Line(NamedTuple):
    """A line of slurm.conf or of what it includes, without its comment."""

    path: Path
    number: int
    text: str

    @property
    def keys(self) -> list[str]:
        """The keys it sets, in lower case."""
        return [name.lower() for name in _SETTING.findall(self.text)]


def lines_of(conf: Path, depth: int = 0) -> Iterator[Line]:
    """Yield the lines of a slurm.conf and of the files it includes, in the order in which they count.

    Raises:
        Unreachable: If one cannot be read: Slurm's own commands would wait a minute for it, and fail.
    """
    if depth > _DEPTH_MAX:
        raise Unreachable(f"{conf}: files include each other without end.")
    for number, raw in enumerate(_text(conf).splitlines(), 1):
        text = _bare(raw)
        if found := _INCLUDE.match(text):
            yield from lines_of(conf.parent / found[1], depth + 1)
        elif text.strip():
            yield Line(conf, number, text)


def _bare(line: str) -> str:
    """Return a line without its comment; `\\#` is none."""
    return re.split(r"(?<!\\)#", line, maxsplit=1)[0].rstrip()


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise Unreachable(
            f"{path}: cannot be read ({problem.strerror}), and without it no command of Slurm's works."
        ) from None
    return data.decode(errors="replace")


class Record(NamedTuple):
    """A setting that was written.

    Attributes:
        knobs: As `Knobs.text` has them. was, was_version: what was in force before.
    """

    key: str
    version: int
    knobs: str
    was: str
    was_version: int


@dataclass(frozen=True)
class Owned:
    """The file, and the slurm.conf that includes it.

    Attributes:
        conf: The slurm.conf. path: the file.
    """

    conf: Path
    path: Path

    def check_included(self) -> None:
        """Refuse a file that slurm.conf does not include.

        Raises:
            ConfigError: If it does not.
        """
        if not any(self._is_own(path) for path in _included(self.conf)):
            raise ConfigError(
                f"{self.conf}: has no line `Include {self.path}`, so what is written there would do nothing."
            )

    def text(self) -> str:
        """Return what is in it.

        Raises:
            Unreachable: If it is gone; Slurm then refuses to work on this machine.
        """
        if not self.path.exists():
            raise Unreachable(
                f"{self.path}: is gone, and until it is there again no command of Slurm's works here; an "
                "empty file will do."
            )
        return _text(self.path)

    def elsewhere(self, names: Iterable[str]) -> list[str]:
        """Return where keys are set in another file, so that what is written here might not count."""
        wanted = {name.lower() for name in names}
        return [
            f"{line.path}:{line.number} sets {name}"
            for line in lines_of(self.conf)
            if not self._is_own(line.path)
            for name in line.keys
            if name in wanted
        ]

    def records(self) -> list[Record]:
        """Return what was written, oldest first; lines that are no records are passed over."""
        found = []
        for line in self.text().splitlines():
            with suppress(ValueError, TypeError, KeyError):
                if line.startswith(_MARK):
                    one = json.loads(line.removeprefix(_MARK))
                    found.append(Record(**{name: one[name] for name in Record._fields}))
        return found

    def candidate(self, record: Record, values: Mapping[str, str]) -> str:
        """Return the file as it would be with a setting.

        Args:
            values: Lines to be set by key; of others nothing changes.

        Raises:
            Refused: If a line there sets one of the keys and something else, or goes on in the next line.
        """
        ours = {name.lower() for name in values}
        kept = []
        for number, line in enumerate(self.text().splitlines(), 1):
            if line.startswith(_MARK):
                continue
            found = Line(self.path, number, _bare(line)).keys
            if not ours & set(found):
                kept.append(line)
            elif len(found) > 1 or line.rstrip().endswith("\\"):
                raise Refused(f"{self.path}:{number}: holds more than one setting; nothing was changed.")
        past = [*self.records(), record][-RECORDS_MAX:]
        told = [_MARK + json.dumps(one._asdict()) for one in past]
        return "\n".join([*told, *kept, *values.values(), ""])

    def edited(self, values: Mapping[str, str]) -> list[str]:
        """Return the lines of some keys that say something else than they would if those were written."""
        ours = {name.lower(): _settled(value) for name, value in values.items()}
        found = []
        for number, raw in enumerate(self.text().splitlines(), 1):
            for name in Line(self.path, number, line := _bare(raw)).keys:
                if name in ours and _settled(line) != ours[name]:
                    found.append(line.strip())
        return found

    def refuse(self, text: str, commands: Commands) -> None:
        """Refuse a text that Slurm would stumble over; the file itself is not touched.

        Slurm's own parser reads it beside a copy of slurm.conf. It takes nonsense in SchedulerParameters, so
        that is looked at here.

        Raises:
            Refused: If it must not be put in place. Unreachable: if Slurm cannot be asked.
        """
        self._lint(text)
        with tempfile.TemporaryDirectory(prefix="trimtab-slurm-") as folder:
            beside = Path(folder) / "slurm.conf"
            beside.write_text(self._whole(text))
            answer = commands.run("scontrol", "ping", conf=beside)
        if answer.code != 0:
            live = commands.run("scontrol", "ping")
            if live.code != 0:
                raise Unreachable(f"scontrol ping: {live.complaint}")
            reason = " ".join(answer.errors.split())[:300].replace(str(beside), "the candidate")
            raise Refused(f"Slurm cannot read this setting ({reason}); nothing was changed.")

    def _lint(self, text: str) -> None:
        there = set(self.text().splitlines())
        present = keys.parameters(self._present(keys.PARAMETERS))
        if len(text) > _SIZE_MAX or not text.replace("\n", "").replace("\t", "").isprintable():
            raise Refused("a setting holds what is no plain text; nothing was changed.")
        for raw in text.splitlines():
            line = _bare(raw)
            if len(raw) > _LINE_MAX:
                raise Refused("a setting is longer than a line of slurm.conf may be; nothing was changed.")
            if raw in there or not line.strip():
                continue
            if _INCLUDE.match(line) or line.endswith("\\"):
                raise Refused(f"{line[:80]!r}: is no setting on a line of its own; nothing was changed.")
            name, _, value = line.strip().partition("=")
            _refuse_value(name.strip(), value.strip(), present)

    def _present(self, name: str) -> str:
        """Return what the file says of a key now, nothing if it says nothing."""
        found = ""
        for line in self.text().splitlines():
            key, equals, value = _bare(line).strip().partition("=")
            if equals and key.strip().lower() == name.lower():
                found = value.strip()
        return found

    def _whole(self, text: str) -> str:
        """Return slurm.conf with all that it includes, the text in place of the file."""
        return "\n".join([*_flat(self.conf, self, text), ""])

    def replace(self, text: str) -> None:
        """Put a text in the file's place, whole or not at all; owner and mode stay.

        Raises:
            Refused: If it cannot be written.
        """
        part = self.path.with_name(f".{self.path.name}.trimtab")
        try:
            with part.open("w") as out:
                before = self.path.stat()
                os.fchmod(out.fileno(), before.st_mode & 0o7777)
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(out.fileno(), before.st_uid, before.st_gid)
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            part.replace(self.path)
        except OSError as problem:
            part.unlink(missing_ok=True)
            raise Refused(
                f"{self.path}: cannot be written ({problem.strerror}); nothing was changed."
            ) from None

    def _is_own(self, path: Path) -> bool:
        return path.resolve() == self.path.resolve()


def _settled(line: str) -> tuple[str, frozenset[tuple[str, object]]]:
    """Return what a line sets, the same for two ways to write it; a part at its default is left out."""
    name, _, value = line.strip().partition("=")
    parts = (
        keys.parameters(value) if name.lower() == keys.PARAMETERS.lower() else {name.lower(): value.strip()}
    )
    read: dict[str, object] = {}
    for part, text in parts.items():
        key = keys.KEYS.get(part)
        read[part] = text if key is None else keys.number_of(key, text)
        if key is not None and key.parameter and read[part] == key.default:
            del read[part]
    return name.lower(), frozenset(read.items())


def _refuse_value(name: str, value: str, present: Mapping[str, str]) -> None:
    if name.lower() == keys.PARAMETERS.lower():
        if re.search(r"\s", value):
            raise Refused(f"{name}: there is a blank in its list; nothing was changed.")
        for part, what in keys.parameters(value).items():
            if present.get(part) != what:
                _refuse_number(part, what)
    elif name.lower() in keys.KEYS and not keys.KEYS[name.lower()].parameter:
        _refuse_number(name, value)


def _refuse_number(name: str, text: str) -> None:
    if name.lower() not in keys.KEYS:
        raise Refused(f"{name}: is unknown as a part of {keys.PARAMETERS}; nothing was changed.")
    key = keys.KEYS[name.lower()]
    number = keys.number_of(key, text)
    if number is None or not key.low <= number <= key.high:
        raise Refused(
            f"{key.name} = {text!r:.60}: it must be {key.low:,} .. {key.high:,}; nothing was changed."
        )


def _included(conf: Path, depth: int = 0) -> Iterator[Path]:
    for line in _text(conf).splitlines() if depth <= _DEPTH_MAX else ():
        if found := _INCLUDE.match(_bare(line)):
            yield conf.parent / found[1]
            if (conf.parent / found[1]).exists():
                yield from _included(conf.parent / found[1], depth + 1)


def _flat(path: Path, owned: Owned, text: str) -> Iterator[str]:
    for line in _text(path).splitlines():
        found = _INCLUDE.match(_bare(line))
        if found is None:
            yield line
        elif owned._is_own(path.parent / found[1]):
            yield text
        else:
            yield from _flat(path.parent / found[1], owned, text)
