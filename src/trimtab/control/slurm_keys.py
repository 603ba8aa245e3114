"""Slurm's settings that a tuner may change: what they are called, which values do what they say.

Slurm itself takes nonsense in SchedulerParameters without a word, and ends on a wrong value of another key;
so what may be written is decided here. Ranges are those of slurm.conf(5); of weights, none
alone can overflow a priority's 32 bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trimtab.errors import ConfigError
from trimtab.knobs import Knob, Value

# The releases whose settings these are, as (year, month).
OLDEST, NEWEST = (20, 11), (25, 11)

PARAMETERS = "SchedulerParameters"

Kind = Literal["number", "time", "switch", "flag", "word", "gpus"]
Applies = Literal["reconfigure", "restart", "never"]

_UNIT_S = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}
_WEIGHT_MAX = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Key:
    """A setting of Slurm's.

    Attributes:
        kind: `number`; `time` (in s; a file has days-hours:minutes:seconds); `switch`: yes or no; `flag`: a
            word of SchedulerParameters that is there or not; `word`: any other text; `gpus`: of a list of
            weights that of gres/gpu.
        low, high: The least and the largest value, in the unit that Slurm counts in.
        default: What holds where nothing is said, None where that depends on other settings.
        parameter: Whether it is a part of SchedulerParameters. Others are keys of their own.
        needs: What it does nothing without: `accounting` is slurmdbd.
        factor: The column of `sprio` in which its effect shows.
        applies: When a change counts: with `scontrol reconfigure`; with a restart of slurmctld, which is
            nobody's business here; or never, because nobody here changes it. Those are only read.
    """

    name: str
    kind: Kind
    low: int
    high: int
    default: int | None
    parameter: bool = True
    needs: str = ""
    factor: str = ""
    applies: Applies = "reconfigure"

    @property
    def line(self) -> str:
        """The key of the line of slurm.conf that it stands on."""
        return PARAMETERS if self.parameter else self.name

    @property
    def range(self) -> str:
        """What it may be, as a person would say it."""
        if self.kind in ("switch", "flag"):
            return "on or off"
        unit = " s" if self.kind == "time" else ""
        return "" if self.kind == "word" else f"{self.low} .. {self.high}{unit}"


def _weight(name: str, factor: str, needs: str = "") -> Key:
    return Key(f"PriorityWeight{name}", "number", 0, _WEIGHT_MAX, 0, False, needs, factor)


_ALL = (
    _weight("Age", "age", "accounting"),
    _weight("Fairshare", "fairshare", "accounting"),
    _weight("JobSize", "jobsize"),
    _weight("Partition", "partition"),
    _weight("QOS", "qos", "accounting"),
    Key("PriorityMaxAge", "time", 60, 365 * 86_400, 7 * 86_400, False, "accounting"),
    Key("PriorityDecayHalfLife", "time", 0, 365 * 86_400, 7 * 86_400, False, "accounting"),
    Key("PriorityCalcPeriod", "time", 60, 3600, 300, False),
    Key("PriorityFavorSmall", "switch", 0, 1, 0, False),
    Key("PriorityWeightTRES", "gpus", 0, _WEIGHT_MAX, 0, False, "accounting", applies="never"),
    Key("PreemptExemptTime", "time", 0, 86_400, 0, False),
    Key("PreemptType", "word", 0, 0, None, False, applies="restart"),
    Key("SchedulerType", "word", 0, 0, None, False, applies="restart"),
    Key("bf_interval", "number", 1, 10_800, 30),
    Key("bf_window", "number", 1, 43_200, 1440),
    Key("bf_resolution", "number", 1, 3600, 60),
    Key("bf_max_job_test", "number", 1, 1_000_000, 500),
    Key("bf_max_job_user", "number", 0, 1_000_000, 0),
    Key("bf_max_job_part", "number", 0, 1_000_000, 0),
    Key("bf_max_job_start", "number", 0, 10_000, 0),
    Key("bf_min_age_reserve", "number", 0, 2_592_000, 0),
    Key("bf_continue", "flag", 0, 1, 0),
    Key("default_queue_depth", "number", 1, 1_000_000, 100),
    Key("partition_job_depth", "number", 0, 1_000_000, 0),
    Key("sched_interval", "number", 1, 86_400, 60),
    Key("sched_min_interval", "number", 0, 60_000_000, 2),
    Key("batch_sched_delay", "number", 0, 3600, 3),
    Key("sched_max_job_start", "number", 0, 1_000_000, 0),
    Key("max_rpc_cnt", "number", 0, 1000, 0),
    Key("defer", "flag", 0, 1, 0),
)
_PLAIN = Key("", "number", 0, _WEIGHT_MAX, None)
KEYS: Mapping[str, Key] = {key.name.lower(): key for key in _ALL}


def is_accounted(config: Mapping[str, str]) -> bool:
    """Whether a cluster has slurmdbd: without it ages, fair shares and QOS count for nothing.

    Args:
        config: Of `scontrol show config`, by key in lower case.
    """
    return config.get("accountingstoragetype") == "accounting_storage/slurmdbd"


def find_key(name: str) -> Key:
    """Return the key that a knob of this name stands for.

    Raises:
        ConfigError: If there is none.
    """
    if name.lower() not in KEYS:
        raise ConfigError(f"knob {name}: is no setting of Slurm's that may be changed while it runs.")
    return KEYS[name.lower()]


def release(text: str) -> tuple[int, int]:
    """Return year and month of a version such as `22.05.8`.

    Raises:
        ConfigError: If it is none.
    """
    found = re.match(r"(\d{2})\.(\d{2})(?:\D|$)", text)
    if found is None:
        raise ConfigError(f"Slurm says that its version is {text!r:.60}: that is none.")
    return int(found[1]), int(found[2])


def written(key: Key, knob: Knob, value: Value) -> str:
    """Return a knob's value as the file has it; nothing for a flag that is off.

    Raises:
        ConfigError: If Slurm would not do what it says.
    """
    number = _counted(key, knob, value)
    if key.kind == "flag":
        return key.name if number else ""
    if key.kind == "switch":
        return f"{key.name}={'YES' if number else 'NO'}"
    return f"{key.name}={_clock(number) if key.kind == 'time' else number}"


def _counted(key: Key, knob: Knob, value: Value) -> int:
    number = math.nan if isinstance(value, (str, tuple)) else float(value)
    scaled = number * _UNIT_S.get(knob.unit, 1) if key.kind == "time" else number
    if not key.low <= scaled <= key.high or scaled != math.floor(scaled):
        raise ConfigError(
            f"{key.name} = {value!r:.60}: it must be a whole number, {key.low:,} .. {key.high:,}"
            f"{' s' if key.kind == 'time' else ''}."
        )
    return int(scaled)


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def value_of(key: Key, knob: Knob, text: str | None) -> Value:
    """Return what a knob is, from what Slurm shows; None where it shows nothing.

    Raises:
        ConfigError: If it is nothing that the knob can be.
    """
    if key.kind == "word" and text in knob.choices:
        return str(text)
    number = key.default if text is None else number_of(key, text)
    if number is None:
        raise ConfigError(f"{key.name} = {text!r:.60} is in force: that cannot be read.")
    scale = _UNIT_S.get(knob.unit, 1) if key.kind == "time" else 1
    whole, rest = divmod(number, scale)
    value: Value = number / scale if rest else whole
    if knob.kind == "bool":
        value = bool(number)
    elif knob.kind == "fraction":
        value = number / scale
    if type(knob.project(value)) is not type(value) or knob.project(value) != value:
        raise ConfigError(f"{key.name} = {text or number} is in force: the policy knows only {knob.rule()}.")
    return value


def number_of(key: Key, text: str) -> int | None:
    """Return what a key is, in the unit that Slurm counts in; None if the text is none of its values."""
    if key.kind == "flag":
        return 1 if text.lower() == key.name else None
    if key.kind == "switch":
        return {"yes": 1, "no": 0}.get(text.lower())
    if key.kind == "time":
        return _seconds(text)
    if key.kind == "gpus":
        return number_of(_PLAIN, parameters(text).get("gres/gpu", "0"))
    return int(text) if re.fullmatch(r"\d{1,15}", text) else None


def _seconds(text: str) -> int | None:
    """Read a length of time as slurm.conf may have it: `7-0`, `1-12:30`, `00:05:00`, `5:30`, or minutes."""
    found = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?", text)
    if found is None:
        return None
    numbers = [int(part) for part in found.groups()[1:] if part is not None]
    units = (3600, 60, 1) if found[1] is not None or len(numbers) == 3 else (60, 1)
    return int(found[1] or 0) * 86_400 + sum(n * unit for n, unit in zip(numbers, units, strict=False))


def shown(key: Key, config: Mapping[str, str]) -> str | None:
    """Return what Slurm shows of a key, None where it says nothing of it.

    Args:
        config: Of `scontrol show config`, by key in lower case.
    """
    if not key.parameter:
        return config.get(key.name.lower())
    return parameters(config.get(PARAMETERS.lower(), "")).get(key.name.lower())


def parameters(text: str) -> dict[str, str]:
    """Return the parts of SchedulerParameters by name in lower case; of two with a name the later one."""
    if text.strip().lower() in ("", "(null)"):
        return {}
    parts = (part.strip() for part in text.split(",") if part.strip())
    return {part.partition("=")[0].lower(): part.partition("=")[2] or part for part in parts}


def merged(text: str, ours: Mapping[str, str]) -> str:
    """Return SchedulerParameters with our parts as they are to be, and all others as they were.

    Args:
        ours: By name, as `written` has them; nothing for a part that goes.
    """
    own = {name.lower() for name in ours}
    kept = [part.strip() for part in text.split(",") if part.strip()] if text.lower() != "(null)" else []
    others = [part for part in kept if part.partition("=")[0].strip().lower() not in own]
    return ",".join([*(part for part in ours.values() if part), *others])
