"""Damaged, odd and hostile input: one clear line or an account of the rows, never another exception."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import ConfigError, InputError, OutputError
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.speed_files import open_speeds
from trimtab.traces import files, table
from trimtab.traces.loader import FORMATS, load

GOOD = "job_id,submit_s,duration_s,gpus\n1,0,10,1\n2,5,20,2\n"


def put(folder: Path, data: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def refusal(source: str) -> str:
    with pytest.raises(InputError) as caught:
        load(source)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_folder_and_empty(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(f"philly:{tmp_path / 'none.csv'}")
    assert "there is no such file" in refusal(str(tmp_path / "none.csv"))
    assert "is a folder" in refusal(f"philly:{tmp_path}")
    assert "is empty" in refusal(f"philly:{put(tmp_path, b'')}")
    assert "is empty" in refusal(f"philly:{put(tmp_path, b' ' * 9)}")
    assert "has a header and no row" in refusal(f"table:{put(tmp_path, GOOD.split(chr(10))[0])}")


@pytest.mark.parametrize("name", FORMATS)
def test_binary_is_refused_by_every_format(tmp_path: Path, name: str) -> None:
    assert "binary, not text" in refusal(f"{name}:{put(tmp_path, b'a,b' + bytes(9))}")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])
def test_gzip_is_recognised_by_content(tmp_path: Path, name: str) -> None:
    assert len(load(str(put(tmp_path, gzip.compress(GOOD.encode()), name)))) == 2
    assert len(load(str(put(tmp_path, GOOD, "plain.csv.gz")))) == 2


def test_gzip_cut_short_or_damaged(tmp_path: Path) -> None:
    packed = gzip.compress(os.urandom(3000).hex().encode())
    assert "cut short" in refusal(f"table:{put(tmp_path, packed[:-900])}")
    assert "cut short" in refusal(f"table:{put(tmp_path, packed[:6])}")
    assert "damaged" in refusal(f"table:{put(tmp_path, packed[:200] + b'x' * 50 + packed[250:])}")


def archive(**members: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def test_tar_archives(tmp_path: Path) -> None:
    assert len(load(f"table:{put(tmp_path, archive(a=GOOD))}")) == 2
    assert "holds 2 files" in refusal(f"table:{put(tmp_path, archive(a=GOOD, b=GOOD))}")
    assert len(load(f"table:{put(tmp_path, archive(a='x', cluster_job_log=GOOD))}")) == 2


def test_missing_column_names_the_nearest(tmp_path: Path) -> None:
    text = refusal(f"table:{put(tmp_path, GOOD.replace('duration_s', 'durations'))}")
    assert "column 'duration_s' is missing, the nearest is 'durations'" in text
    assert "column 'timestamp' is missing" in refusal(f"philly:{put(tmp_path, GOOD)}")


@pytest.mark.parametrize("row", ["1,2,3\n", "1,2,3,4,5\n", "1\n", '"1,2,3,4\n'])
def test_wrong_number_of_fields(tmp_path: Path, row: str) -> None:
    assert "fields where 4 are named" in refusal(f"table:{put(tmp_path, GOOD + row)}")


def test_unknown_by_its_first_line(tmp_path: Path) -> None:
    assert "none of the known formats" in refusal(str(put(tmp_path, "a,b,c\n1,2,3\n")))


def test_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table.save(load(str(put(tmp_path, GOOD))), path)
    whole = path.read_bytes()
    for cut in (4, 8, 40, len(whole) // 2, len(whole) - 4):
        assert "Parquet" in refusal(str(put(tmp_path, whole[:cut], "cut.parquet")))


def test_rows_are_left_out_by_reason_with_an_example(tmp_path: Path) -> None:
    rows = {
        "a,0,-5,1": "run time is negative",
        "b,0,0,1": "",  # a run of no length is kept
        "c,0,5,0": "asks for no GPU",
        "d,,5,1": "no submit time, or not readable",
        "e,soon,5,1": "no submit time, or not readable",
        "f,0,5,many": "GPU count missing or not a number",
        "g,0,5,-2": "GPU count is negative",
        "h,0,long,1": "run time is not a number",
        "i,0,inf,1": "run time is not a number",
        "j,0,1e12,1": "run time is over a century",
        "k,0,5,9999999": "asks for over 1,000,000 GPUs",
        ",0,5,1": "no job id",
        "l,1,,1": "",  # no run time: an arrival
    }
    trace = load(str(put(tmp_path, "job_id,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")))
    counts: dict[str, int] = {}
    for reason in filter(None, rows.values()):
        counts[reason] = counts.get(reason, 0) + 1
    assert trace.provenance.left_out_counts() == counts
    assert trace.labels("job_id") == ["b"]
    assert trace.unrun["job_id"].to_list() == ["l"]
    examples = {item.reason: item.example for item in trace.provenance.left_out}
    assert examples["asks for no GPU"] == "c,0,5,0"


def test_deadlines_that_are_none_are_left_out_or_told(tmp_path: Path) -> None:
    rows = {
        "a,0,5,1,20,strict": "",
        "b,0,5,1,0,strict": "",
        "c,0,5,1,20/20,soft": "",
        "d,0,5,1,,best": "",
        "e,0,5,1,-1,strict": "deadline is before submission",
        "f,0,5,1,10/-20,soft": "deadline is before submission",
        "g,0,5,1,30/20,soft": "1 rows have deadlines out of order: put in order, each with its value.",
        "h,0,5,1,20/nan,soft": "deadline is not a number",
        "i,0,5,1,inf,strict": "deadline is not a number",
        "j,0,5,1,1e300,strict": "deadline is not a number",
        "k,0,5,1,,strict": "1 rows say strict or soft and have no deadline: taken as best effort.",
        "l,0,5,1,20,best": "1 rows say best and have a deadline: taken as best effort.",
        "m,0,5,1,20/30,strict": "1 rows say strict and have several deadlines: taken as soft.",
        "n,0,5,1,NaN,best": "deadline_s is NaN or another word for nothing in 1 rows: taken as none.",
        "o,0,5,1,20,hard": "service_class is none of strict, soft, best in 1 rows: taken as not told.",
    }
    header = "job_id,submit_s,duration_s,gpus,deadline_s,service_class"
    for row, said in rows.items():
        trace = load(str(put(tmp_path, "\n".join([header, "0,0,5,1,20,strict", row]))))
        told = [*trace.provenance.left_out_counts(), *trace.provenance.notes]
        assert told == ([said] if said else []), row
        assert len(trace) == 1 + (said not in trace.provenance.left_out_counts())


def test_chronus_deadlines_are_held_to_the_same_rules(tmp_path: Path) -> None:
    header = "job_id,num_gpu,submit_time,duration,expect_time_list,expect_value_list,best_effort,job_type"
    rows = ["0,1,10,5,20,10,0,strict", "1,1,10,5,30-20,10-5,0,soft", "2,1,10,5,None,10,0,strict"]
    trace = load(f"chronus:{put(tmp_path, chr(10).join([header, *rows]))}")
    assert trace.provenance.notes[-2:] == (
        "1 rows say strict or soft and have no deadline: taken as best effort.",
        "1 rows have deadlines out of order: put in order, each with its value.",
    )


CURVES = "model,cpus_per_gpu,memory_gib_per_gpu,speed,gpus,footprint_gib_per_gpu,class\nm,1,1,1,1,0,image\n"
PAIRS = "model1,speed1,model2,speed2,gmem\na,0.9,b,0.8,1000\n"


@pytest.mark.parametrize(("text", "read"), [(GOOD, load), (CURVES, open_curves), (PAIRS, open_speeds)])
def test_a_column_that_is_there_twice_is_refused_where_the_two_differ(
    tmp_path: Path, text: str, read: Callable[[str], object]
) -> None:
    header, *rows = text.splitlines()
    names = header.split(",")
    for place, name in enumerate(names):
        for again, said in (("7", True), (None, False)):
            more = [f"{row},{again or row.split(',')[place]}" for row in rows]
            path = put(tmp_path, "\n".join([f"{header},{name}", *more]), f"{name}{said}.csv")
            if said:
                with pytest.raises(InputError, match=f"column '{name}' stands there twice; nothing was"):
                    read(str(path))
            else:
                read(str(path))


def test_nothing_left_says_why(tmp_path: Path) -> None:
    path = put(tmp_path, "job_id,submit_s,duration_s,gpus\n1,0,1,0\n")
    text = refusal(f"table:{path}")
    assert "no job left of 1 rows (1 x asks for no GPU)" in text


def test_unsorted_rows_and_ties_keep_the_source_order(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus\na,5,1,1\nb,0,1,1\nc,5,1,1\nd,0,1,1\n"
    assert load(str(put(tmp_path, text))).labels("job_id") == ["b", "d", "a", "c"]


def test_everything_at_once_and_nothing_for_long(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus\na,0,1,1\nb,0,0,1\nc,-5,1,1\nd,9e9,1,1\n"
    trace = load(str(put(tmp_path, text)))
    assert trace.labels("job_id") == ["c", "a", "b", "d"]
    assert trace.column("submit_ms").tolist() == [-5000, 0, 0, 9 * 10**12]


def test_home_is_understood_after_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, GOOD)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("table:~/t.csv")) == 2


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", "\n\n"])
def test_line_endings_and_byte_order_marks(tmp_path: Path, mark: bytes, ending: str) -> None:
    assert len(load(str(put(tmp_path, mark + GOOD.replace("\n", ending).encode())))) == 2


def test_names_that_are_not_utf8_are_no_reason_to_refuse(tmp_path: Path) -> None:
    trace = load(str(put(tmp_path, b"job_id,submit_s,duration_s,gpus,user\n1,0,1,1,J\xfcrgen\n")))
    assert trace.labels("user") == ["J�rgen"]


def test_quoted_fields(tmp_path: Path) -> None:
    text = 'job_id,submit_s,duration_s,gpus,name\n1,0,1,1,"a, ""b""\nc"\n'
    assert load(str(put(tmp_path, text))).labels("name") == ['a, "b"\nc']


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load(str(put(tmp_path, GOOD)))
    with pytest.raises(ConfigError, match=r"ends in one of \.csv"):
        table.save(trace, tmp_path / "out.txt")
    with pytest.raises(OutputError, match="cannot be written"):
        table.save(trace, tmp_path / "none" / "out.csv")
    with pytest.raises(OutputError, match="cannot be written"):
        table.save(trace, put(tmp_path, "x", "file") / "out.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        table.save(trace, tmp_path / "folder.csv")
    before = sorted(tmp_path.iterdir())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    old = put(tmp_path, "as it was", "old.csv")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        table.save(trace, old)
    assert old.read_text() == "as it was"
    assert sorted(tmp_path.iterdir()) == sorted([*before, old])


def test_a_full_device_is_refused_and_stays_a_device() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(OutputError, match="No space left"):
        files.write(full, b"x")
    assert full.is_char_device()


SEEDS = [
    GOOD,
    "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
    "job_id,arrival_s,service_sec,gpu_count\n363167#0,0.0,172800.0,32\n",
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n",
    "4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.29,50.0,MISC\n",
    "job_id,user,num_gpu,submit_time,duration,expect_time_list,expect_value_list,best_effort,job_type\n"
    "0,vc_a,1,10,747,1105-3,10-1,0,strict\n",
    "; UnixStartTime: 1000000000\n1 0 5 100 8 -1 -1 8 90 -1 1 3 1 4 2 -1 -1 -1\n",
    "JobID|JobIDRaw|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|ReqMem|NNodes\n"
    "10|10|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|00:01:00|30|gres/gpu=2|4Gn|1\n"
    "11_[1-9]|11|PENDING|2024-01-01T00:00:00|Unknown|Unknown|00:00:00|30|gres/gpu=2|4Gn|1\n",
    '[{"status":"Pass","vc":"e","jobid":"a","submitted_time":"2017-10-07 01:00:00","user":"c","attempts":'
    '[{"start_time":"2017-10-07 01:12:09","end_time":"2017-10-07 01:13:23",'
    '"detail":[{"ip":"m","gpus":["g"]}]}]}]',
]
PIECES = [
    "", ",", "\n", '"', "|", "-1", "0", "None", "nan", "1e308", "-inf", "9" * 30, "2017-13-45 99:00:00",
    "[", "]", "{}", "null", ";", ".", ":", "_[1-5]", "+1", " ", "\t", "\r", "é", "0001-01-01 00:00:00",
    "9999-12-31 23:59:59",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A small file of some format with a few places overwritten, cut or repeated."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(PIECES)) * draw(st.integers(1, 2)) + text[end:]
    return text.encode()


def loads_or_refuses(path: Path, source: str) -> None:
    with contextlib.suppress(InputError):
        trace = load(source)
        made = trace.provenance
        left_out = sum(item.count for item in made.left_out)
        assert made.rows + made.expanded == len(trace) + trace.unrun.height + left_out + made.joined
        assert trace.column("gpus").min() >= 1
        assert trace.column("duration_ms").min() >= 0


@settings(max_examples=250, deadline=None)
@given(data=mutated(), name=st.sampled_from(["", *(f"{name}:" for name in FORMATS)]))
def test_mutated_files_load_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    path = put(tmp_path_factory.getbasetemp(), data, "mutated")
    loads_or_refuses(path, f"{name}{path}")


@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(min_size=1, max_size=300) | st.text(max_size=200).map(str.encode),
    front=st.sampled_from([b"", b"\x1f\x8b", b"PAR1", b"[", b";", b"JobID|", b"a,b\n"]),
    name=st.sampled_from(["", *(f"{name}:" for name in FORMATS)]),
)
def test_random_bytes_load_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, front: bytes, name: str
) -> None:
    path = put(tmp_path_factory.getbasetemp(), front + data, "random")
    loads_or_refuses(path, f"{name}{path}")
