"""Columns of text to columns of numbers, with an account of every row that does not make it.

Every loader of rows goes the same way: `read_table` (text as written), expressions from `number_ms`,
`instants_ms` and friends (null where unreadable), a `Sift` that leaves rows out by reason, and `finish`.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cache
from typing import Literal, NoReturn
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import polars as pl

from trimtab.errors import InputError, InvariantError, UnknownName
from trimtab.traces.files import Stored
from trimtab.traces.trace import LeftOut, Provenance, Trace

# Beyond these a value is a mistake, and GPUs x run time would no longer fit into 64 bits.
GPUS_MAX = 1_000_000
DURATION_MS_MAX = 100 * 366 * 86_400_000  # a century
_TIME_MS_MAX = 9 * 10**15  # whole milliseconds stay exact in a double below 2^53
_DATE_MS_MAX = 7_258_118_400_000  # the year 2200

Fold = Literal["earliest", "latest"]

_EXAMPLE_CHARS = 200
_EMPTY_WORDS = ("", "None", "none", "NONE", "Unknown", "NULL", "null", "NaN", "nan", "NA", "N/A", "(null)")
_DATE = r"^(\d{4}-\d{2}-\d{2})"
_CLOCK = r"^\d{4}-\d{2}-\d{2}[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)"
_LABEL = r"(?:\d{2}:\d{2}|:\d{2}\.\d{1,9}) ?(Z|[A-Z]{3}|[+-]\d{2}:?\d{2})$"
_INSTANT = (
    r"^\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?: ?(?:Z|[A-Z]{3}|[+-]\d{2}:?\d{2}))?)?$"
)
_LABEL_MINUTES = {
    "Z": 0,
    "UTC": 0,
    "GMT": 0,
    "PST": -480,
    "PDT": -420,
    "EST": -300,
    "EDT": -240,
    "CST": -360,
    "CDT": -300,
}


@dataclass(frozen=True, slots=True)
class Table:
    """A file of rows as text, exactly as written; `text` has a column a field."""

    source: str
    sha256: str
    text: pl.DataFrame

    def has(self, name: str) -> bool:
        """Whether there is such a column, in any case."""
        return self._found(name) is not None

    def name(self, *names: str) -> str:
        """Return the first of the names that is a column, as the file spells it.

        Raises:
            InputError: If there is none; the message names the nearest column there is.
        """
        for name in names:
            if (found := self._found(name)) is not None:
                return found
        columns = [column for column in self.text.columns if column]
        near = difflib.get_close_matches(names[0], columns, n=1, cutoff=0.0)
        hint = f"the nearest is {near[0]!r}" if near else f"it has {_shortened(', '.join(columns))}"
        raise InputError(f"{self.source}: column {names[0]!r} is missing, {hint}; nothing was loaded.")

    def get(self, name: str) -> pl.Expr:
        """Return a column's text without surrounding blanks, null where it says nothing (empty, None, ...).

        A column that the file does not have is null throughout.
        """
        found = self._found(name)
        if found is None:
            return pl.lit(None, dtype=pl.String)
        return cleaned(pl.col(found))

    def _found(self, name: str) -> str | None:
        """Return the column of a name.

        Raises:
            InputError: If the file has it twice, and the two say different things.
        """
        columns = self.text.columns
        like = [column for column in columns if column.lower() == name.lower()]
        found = name if name in columns else next(iter(like), None)
        if found is None:
            return None
        twins = [column for column in columns if re.fullmatch(rf"{re.escape(found)}#\d+", column)]
        if any(not self.text[twin].equals(self.text[found], null_equal=True) for twin in twins):
            raise InputError(f"{self.source}: column {found!r} stands there twice; nothing was loaded.")
        return found


def cleaned(text: pl.Expr) -> pl.Expr:
    """Return text without surrounding blanks, null where it says nothing."""
    bare = text.str.strip_chars()
    return pl.when(bare.is_in(_EMPTY_WORDS)).then(None).otherwise(bare)


def read_table(
    stored: Stored, source: str, *, header: Sequence[str] | None = None, separator: str = ","
) -> Table:
    """Parse a csv; `header` names the columns of a file that has no header line.

    Raises:
        InputError: If it is no text, a row has another number of fields than the header, or there is no row.
    """
    data = _lines(stored)
    first, _, rest = data.partition("\n")
    names = list(header) if header is not None else _fields(first, separator)
    quoted = '"' in data
    body = data if header is not None else rest
    if not body.strip():
        raise InputError(f"{source}: has a header and no row; nothing was loaded.")
    if header is None and first.count('"') % 2:
        raise InputError(f"{source}: the header line has an odd number of quotes; nothing was loaded.")
    bad = _ragged(body, separator, len(names), quoted)
    if bad is not None:
        line, fields = bad[0] + (header is None), bad[1]
        raise InputError(
            f"{source}: line {line} has {fields} fields where {len(names)} are named"
            " (a damaged or cut file?); nothing was loaded."
        )
    unique = _unique(names)
    try:
        text = pl.read_csv(
            io.BytesIO(body.encode()),
            has_header=False,
            schema=dict.fromkeys(unique, pl.String()),
            separator=separator,
            quote_char='"' if quoted else None,
        )
    except pl.exceptions.PolarsError:
        text = _slow_table(body, separator, unique, source)
    return Table(source, stored.sha256, text)


def refuse_rows(what: str, table: Table, rows: pl.DataFrame, rules: Mapping[str, pl.Expr]) -> None:
    """Refuse a table whose rows must all be right, at the first rule that one breaks.

    Args:
        what: Whose table it is, as the message begins.
        rows: Its rows as they were read. rules: what a row breaks, and when; null is no breach.

    Raises:
        InputError: It shows the first row that breaks the rule, and counts the others.
    """
    for rule, broken in rules.items():
        places = rows.select(broken.fill_null(False).arg_true()).to_series().to_list()
        if places:
            refuse_row(what, table, places[0], rule, len(places) - 1)


def refuse_row(what: str, table: Table, row: int, rule: str, more: int = 0) -> NoReturn:
    """Refuse a table for one of its rows, and say how many more break the rule.

    Raises:
        InputError: Always.
    """
    others = f" (and {more:,} more)" if more else ""
    written = " ".join(",".join("" if value is None else value for value in table.text.row(row)).split())
    raise InputError(f"{what}: line {row + 2}{others}: {rule}; nothing was loaded. It says: {written[:200]}")


def zone_of(name: str | None, default: str = "UTC") -> tzinfo:
    """Return a time zone by its IANA name, `default` where none is asked for.

    Raises:
        UnknownName: If there is no such zone; carries the nearest.
    """
    wanted = name or default
    if wanted.upper() == "UTC":
        return UTC
    zones = _zones()
    if wanted not in zones:
        by_case = {zone.lower(): zone for zone in zones}
        if wanted.lower() not in by_case:
            raise UnknownName("time zone", wanted, zones)
        wanted = by_case[wanted.lower()]
    return ZoneInfo(wanted)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def number(text: pl.Expr) -> pl.Expr:
    """Parse text as a finite number, null where it is none."""
    value = text.cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)


def number_ms(text: pl.Expr, unit_ms: float = 1000.0) -> pl.Expr:
    """Parse text as a number of units and return whole milliseconds, null where it is none or too large."""
    value = number(text) * unit_ms
    return pl.when(value.abs() < _TIME_MS_MAX).then(value).round().cast(pl.Int64)


def whole(text: pl.Expr) -> pl.Expr:
    """Parse text as a count, fractions rounded up; null where it is none."""
    value = number(text)
    return pl.when(value.abs() < _TIME_MS_MAX).then((value - 1e-9).ceil()).cast(pl.Int64)


def instants_ms(text: pl.Expr, zone: tzinfo, *, fold: Fold = "earliest") -> pl.Expr:
    """Parse dates (`2017-10-09 07:01:55`, `T` allowed, fractions allowed) to Unix milliseconds.

    A zone in the text (`Z`, `+08:00`, `PST`) wins; otherwise the date is read in `zone`. An hour that
    the autumn clock change repeats is the `fold` one, an hour that spring skips counts on from the old
    offset. Null where the text is no date between 1970 and 2200.
    """
    whole_text = pl.when(text.str.contains(_INSTANT)).then(text)
    clock = whole_text.str.extract(_CLOCK).fill_null("00:00:00")
    clock = pl.when(clock.str.len_bytes() == 5).then(clock + ":00").otherwise(clock)
    local = (whole_text.str.extract(_DATE) + " " + clock).str.to_datetime(
        "%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="ms"
    )
    label = whole_text.str.extract(_LABEL)
    named = label.replace_strict(_LABEL_MINUTES, default=None, return_dtype=pl.Int64)
    digits = label.str.replace(":", "", literal=True)
    sign = pl.when(digits.str.starts_with("-")).then(-1).otherwise(1)
    written = sign * (
        digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60
        + digits.str.slice(3, 2).cast(pl.Int64, strict=False)
    )
    minutes = named.fill_null(written)
    in_zone = _in_zone_ms(local, zone, fold)
    instant = pl.when(label.is_null()).then(in_zone).otherwise(local.dt.epoch("ms") - minutes * 60_000)
    return pl.when(instant.is_between(0, _DATE_MS_MAX)).then(instant)


def ends_ms(text: pl.Expr, zone: tzinfo, start_ms: pl.Expr) -> pl.Expr:
    """Parse dates of ends; of a repeated autumn hour the later where only that follows the start."""
    early, late = instants_ms(text, zone), instants_ms(text, zone, fold="latest")
    return pl.when((early < start_ms) & (late >= start_ms)).then(late).otherwise(early)


def _in_zone_ms(local: pl.Expr, zone: tzinfo, fold: Fold) -> pl.Expr:
    if not isinstance(zone, ZoneInfo):
        offset = zone.utcoffset(None)
        return local.dt.epoch("ms") - (round(offset.total_seconds() * 1000) if offset else 0)

    def placed(moment: pl.Expr) -> pl.Expr:
        at = moment.dt.replace_time_zone(zone.key, ambiguous=fold, non_existent="null")
        return at.dt.epoch("ms")

    return placed(local).fill_null(placed(local - pl.duration(hours=1)) + 3_600_000)


@dataclass
class Sift:
    """Rows on their way into a trace: each is kept, found unrun, or left out for the first reason that holds.

    `rows` has a column `row`, the row's place in `text`, from which examples are taken.
    """

    text: pl.DataFrame
    rows: pl.DataFrame
    separator: str = ","
    _left_out: dict[str, LeftOut] = field(default_factory=dict)

    def leave_out(self, reason: str, condition: pl.Expr) -> int:
        """Leave out the rows where the condition is true, count them, and return how many there were."""
        mask = self.rows.select(condition.fill_null(False).alias("mask"))["mask"]
        gone = self.rows.filter(mask)
        if gone.height:
            self.rows = self.rows.filter(~mask)
            self.count(reason, gone["row"].to_list()[0], gone.height)
        return gone.height

    def count(self, reason: str, row: int, rows: int = 1) -> None:
        """Count rows that are already gone; `row` is the one to show."""
        known = self._left_out.get(reason)
        example = known.example if known else self.example(row)
        self._left_out[reason] = LeftOut(reason, rows + (known.count if known else 0), example)

    def example(self, row: int) -> str:
        """Return a row as the source wrote it, shortened."""
        return _shortened(
            self.separator.join("" if value is None else str(value) for value in self.text.row(row))
        )

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what was left out, most frequent reason first."""
        return tuple(sorted(self._left_out.values(), key=lambda item: (-item.count, item.reason)))


def start_sift(table: Table, columns: Mapping[str, pl.Expr], *, separator: str = ",") -> Sift:
    """Compute our columns from a table's text, all at once, and number the rows."""
    rows = table.text.select(**columns).with_row_index("row")
    return Sift(table.text, rows, separator)


def finish(
    sift: Sift,
    source: str,
    sha256: str,
    *,
    mapping: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    dated: bool = False,
    zone: tzinfo = UTC,
    joined: int = 0,
    expanded: int = 0,
) -> Trace:
    """Apply the rules every trace keeps, part run from unrun rows (null `duration_ms`), and account for all.

    Raises:
        InputError: If no job is left.
    """
    sift.leave_out("no job id", pl.col("job_id").is_null())
    sift.leave_out("no submit time, or not readable", pl.col("submit_ms").is_null())
    sift.leave_out("GPU count missing or not a number", pl.col("gpus").is_null())
    sift.leave_out("asks for no GPU", pl.col("gpus") == 0)
    sift.leave_out("GPU count is negative", pl.col("gpus") < 0)
    sift.leave_out(f"asks for over {GPUS_MAX:,} GPUs", pl.col("gpus") > GPUS_MAX)
    sift.leave_out("run time is negative", pl.col("duration_ms") < 0)
    sift.leave_out("run time is over a century", pl.col("duration_ms") > DURATION_MS_MAX)
    ran = pl.col("duration_ms").is_not_null()
    jobs, unrun = sift.rows.filter(ran), sift.rows.filter(~ran)
    jobs = jobs.drop(
        [name for name in jobs.columns if name not in _KEEP and jobs[name].null_count() == jobs.height]
    )
    rows = sift.text.height
    left_out = sift.left_out()
    provenance = Provenance(
        source, sha256, rows, left_out, dict(mapping or {}), tuple(notes), joined=joined, expanded=expanded
    )
    accounted = jobs.height + unrun.height + sum(item.count for item in left_out) + joined
    if rows + expanded != accounted:
        raise InvariantError(f"{source}: {rows} rows + {expanded} expanded, but {accounted} accounted for.")
    return Trace.build(jobs, provenance, dated=dated, zone=zone, unrun=unrun)


_KEEP = ("row", "job_id", "submit_ms", "duration_ms", "gpus")


def mapping_of(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns whose names differ from the source's, for the provenance."""
    return {ours: theirs for ours, theirs in columns.items() if ours != theirs}


def fraction_note(sift: Sift, column: str) -> list[str]:
    """Say how many rows asked for a part of a GPU and were rounded up; `column` holds the exact number."""
    parts = sift.rows.filter((pl.col(column) - pl.col(column).round()).abs() > 1e-9).height
    return [f"{parts} rows ask for a part of a GPU: rounded up to whole GPUs."] if parts else []


def _shortened(text: str) -> str:
    line = re.sub(r"\s+", " ", text)
    return line if len(line) <= _EXAMPLE_CHARS else line[: _EXAMPLE_CHARS - 1] + "…"


def _lines(stored: Stored) -> str:
    text = stored.text()
    if text.startswith("\n") or "\n\n" in text or text.endswith("\n "):
        text = "\n".join(line for line in text.split("\n") if line.strip()) + "\n"
    return text


def _fields(line: str, separator: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=separator), [""])]
    except csv.Error:
        return [name.strip() for name in line.split(separator)]


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(name if count == 0 else f"{name}#{count + 1}")
    return result if len(set(result)) == len(result) else [f"{name}#{at}" for at, name in enumerate(names)]


def _ragged(data: str, separator: str, width: int, quoted: bool) -> tuple[int, int] | None:
    """Return (line, fields) of the first row whose number of fields is not `width`."""
    if quoted:
        csv.field_size_limit(2**31 - 1)
        reader = csv.reader(io.StringIO(data), delimiter=separator)
        try:
            for row in reader:
                if row and len(row) != width:
                    return reader.line_num, len(row)
        except csv.Error:
            return reader.line_num, 0
        return None
    raw = np.frombuffer(data.encode() if data.endswith("\n") else data.encode() + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    before = np.searchsorted(np.flatnonzero(raw == ord(separator)), ends)  # separators up to each line's end
    fields = np.diff(before, prepend=0) + 1
    wrong = np.flatnonzero(fields != width)
    return (int(wrong[0]) + 1, int(fields[wrong[0]])) if len(wrong) else None


def _slow_table(body: str, separator: str, names: Sequence[str], source: str) -> pl.DataFrame:
    """Parse what polars refuses (odd quoting) with the standard library, whose field counts are checked."""
    try:
        rows = [row for row in csv.reader(io.StringIO(body), delimiter=separator) if row]
    except csv.Error as problem:
        raise InputError(f"{source}: is not a csv ({problem}); nothing was loaded.") from None
    if any(len(row) != len(names) for row in rows):
        raise InputError(f"{source}: quotes do not match up; nothing was loaded.")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")
