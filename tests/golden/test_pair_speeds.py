"""Speeds of two jobs on one GPU: where they come from, in which order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.errors import InputError, UnknownName
from trimtab.profile import Profile
from trimtab.simulate.speed import BUILTIN, Config, SpeedTable
from trimtab.simulate.speed_files import open_speeds
from trimtab.traces.files import read

TINY = Profile(gpu_util=20, gmem_util=5)
MEDIUM = Profile(gpu_util=60, gmem_util=20)
JUMBO = Profile(gpu_util=60, gmem_util=40)
UNKNOWN = Profile(model="nobody measured this")

HEADER = "model1,speed1,model2,speed2"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text(f"{HEADER}\na,0.9,b,0.7\nb,0.6,c,1.1\na,0.8,a,1.0\n")
    return path


def test_classes_of_the_built_in_table() -> None:
    """Thresholds on what a job uses alone, and the means of each pair of classes, at most full speed."""
    assert [BUILTIN.score(one) for one in (TINY, MEDIUM, JUMBO)] == [0, 1, 2]
    edges = [(25, 30.5), (25.1, 30.5), (0, 30.6)]
    assert [BUILTIN.score(Profile(gpu_util=gpu, gmem_util=memory)) for gpu, memory in edges] == [0, 1, 2]
    assert BUILTIN.speeds_ppm(TINY, TINY) == (1_000_000, 1_000_000)
    assert BUILTIN.speeds_ppm(TINY, MEDIUM) == (986_000, 993_000)
    assert BUILTIN.speeds_ppm(JUMBO, TINY) == (956_000, 959_000)
    assert BUILTIN.speeds_ppm(MEDIUM, JUMBO) == (834_000, 886_000)
    assert BUILTIN.speeds_ppm(JUMBO, JUMBO) == (757_000, 757_000)


def test_of_an_unknown_job_nothing_is_assumed_but_that_it_does_not_share() -> None:
    for one in (Profile(), UNKNOWN, Profile(gpu_util=3)):
        assert not any(BUILTIN.fits(*pair) for pair in ((one, TINY), (TINY, one), (one, one)))
        assert BUILTIN.score(one) == 2
        assert BUILTIN.speeds_ppm(one, JUMBO) == BUILTIN.speeds_ppm(JUMBO, one) == (1_000_000, 1_000_000)


def test_typical_jobs_are_of_their_class() -> None:
    assert [BUILTIN.score(one) for _, one in BUILTIN.profiles] == [0, 1, 2]


def test_measured_pairs_come_first(csv: Path) -> None:
    table = open_speeds(str(csv))
    a, b, c = (Profile(model, gpu_util=10, gmem_util=1) for model in "abc")
    assert (len(table.pairs), table.configs) == (3, {("a", False), ("b", False), ("c", False)})
    assert table.speeds_ppm(a, b) == (900_000, 700_000)
    assert table.speeds_ppm(b, a) == (700_000, 900_000)
    assert table.speeds_ppm(c, b) == (1_000_000, 600_000)  # 1.1 is noise: sharing speeds nobody up
    assert table.speeds_ppm(a, a) == (900_000, 900_000)  # the mean of .8 and 1.0


def test_scores_are_of_mean_speeds_and_follow_the_cuts(csv: Path) -> None:
    """a: .9, .8, 1.0; b: .7, .6; c: 1.1, whatever they use alone."""
    table = open_speeds(str(csv))
    profiles = [Profile(model, gpu_util=99, gmem_util=99) for model in "abc"]
    assert [table.score(one) for one in profiles] == [1, 2, 0]
    assert [table.score(one, (0.5, 0.9)) for one in profiles] == [0, 1, 0]
    assert [table.score(one, (0.95, 1.2)) for one in profiles] == [2, 2, 1]


def test_pairs_that_were_not_measured_have_the_mean_of_their_classes(csv: Path) -> None:
    """a medium, b jumbo, c tiny. Measured: a/b .9, .7; b/c .6, 1.1; a/a .8, 1.0. Nothing of c beside a."""
    table = open_speeds(str(csv))
    a, b, c = (Profile(model) for model in "abc")
    assert table.speeds_ppm(a, JUMBO) == (900_000, 700_000)
    assert table.speeds_ppm(MEDIUM, MEDIUM) == (900_000, 900_000)
    assert table.speeds_ppm(a, c) == (993_000, 986_000)
    assert table.speeds_ppm(b, b) == (757_000, 757_000)
    assert table.speeds_ppm(b, TINY) == (600_000, 1_000_000)
    assert table.speeds_ppm(a, UNKNOWN) == (1_000_000, 1_000_000)


def test_configurations_of_a_model_are_different_jobs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2,gmem\n"
        "0,R,I,1,32,0,0.9,R,I,1,32,1,0.8,5000\n"
        "1,R,I,1,32,1,0.7,R,I,1,32,1,0.7,4001\n"
    )
    table = open_speeds(str(path))
    plain, mixed = Profile("R/I/32"), Profile("R/I/32", amp=True)
    assert table.speeds_ppm(mixed, plain) == (800_000, 900_000)
    assert table.speeds_ppm(mixed, mixed) == (700_000, 700_000)
    assert [profile for _, profile in table.profiles] == [
        Profile("R/I/32"),
        Profile("R/I/32", gmem_mib=2000, amp=True),
    ]


@pytest.mark.parametrize(
    ("batch", "name"), [("64", "R/64"), ("64.0", "R/64"), ("", "R"), ("6.5", "R/6.5"), ("1e300", "R/1e300")]
)
def test_numbers_may_be_written_as_fractions(tmp_path: Path, batch: str, name: str) -> None:
    """As tables write a column of whole numbers with a gap; a trace's 64.0 is 64 as well."""
    path = tmp_path / "pairs.csv"
    path.write_text(f"{HEADER},batchsize1,amp1,amp2\nR,.9,S,.8,{batch},1.0,0.0\n")
    assert open_speeds(str(path)).pairs == {((name, True), ("S", False)): (900_000, 800_000)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model1,speed1,model2\na,1,b\n", "column 'speed2' is missing, the nearest is 'speed1'"),
        ("modelone,speed1,model2,speed2\na,1,b,1\n", "column 'model1' is missing, the nearest is 'model"),
        (f"{HEADER}\na,1,b,1\na,1,c,0\n", "line 3: speed2 must be above 0"),
        (f"{HEADER}\na,-1,b,1\na,-1,c,0\n", "line 2 (and 1 more): speed1 must be above 0"),
        (f"{HEADER}\na,nan,b,1\n", "line 2: speed1 must be a number"),
        (f"{HEADER}\na,1,b,inf\n", "line 2: speed2 must be a number"),
        (f"{HEADER}\na,1,b,fast\n", "line 2: speed2 must be a number: 1 is the speed alone"),
        (f"{HEADER}\na,1,b,87.3\n", "line 2: speed2 must be at most 2: 1 is the speed alone"),
        (f"{HEADER}\na,1,,1\n", "line 2: model2 is empty"),
        (f"{HEADER}\na,1,b,.9\nc,1,d,1\nb,1,a,1\n", "line 4: b beside a stands in line 2 already"),
        (f"{HEADER}\na,1,a,.9\na,1,a,.9\n", "line 3: a beside a stands in line 2 already"),
        *((f"{HEADER},amp1\na,1,b,1,{amp}\n", "line 2: amp1 must be 0 or 1") for amp in ("half", ".5", "2")),
        (
            f"{HEADER},batchsize1\na,1,b,1,64\na,1,b,1,64.0\n",
            "line 3: a/64 beside b stands in line 2 already",
        ),
        (f"{HEADER},gpu_num2\na,1,b,1,2\n", "line 2: gpu_num2 must be 1"),
        (f"{HEADER},gpu_num2\na,1,b,1,many\n", "line 2: gpu_num2 must be 1: only pairs on one GPU are used"),
        *(
            (
                f"{HEADER},gmem\na,1,b,1,\na,1,a,1,{gmem}\n",
                "line 3: gmem must be MiB above 0, at most 1,000,000,000, or empty",
            )
            for gmem in ("0", "-1", "much", "inf", "1000000001", "1e300")
        ),
        (f"{HEADER}\n", "has a header and no row"),
        ("{}", "has no type of GPU; nothing was loaded"),
        ('{"a_unconsolidated": {}}', "has no type of GPU; nothing was loaded"),
        ('{"a": 3, "b": 4}', "has 2 types of GPU, name one of a, b as "),
        ('{"a": 3}', "a is no table of jobs"),
        ('{"a": {"ResNet": {"null": 3}}}', "job 'ResNet' is no ('model', GPUs)"),
        *(
            (f'{{"a": {{"(\'R\', {gpus})": {{"null": 3}}}}}}', f"job \"('R', {gpus})\" is no ('model', GPUs)")
            for gpus in ("0", "-1", "True", "1.0", "None")
        ),
        ('{"a": {"(\'\', 1)": {"null": 3}}}', "job \"('', 1)\" is no ('model', GPUs)"),
        ('{"a": {"(\'R\', 1)": {"null": "many"}}}', "'many' is no number of steps a second"),
        ('{"a": {"(\'R\', 1)": {"null": NaN}}}', "nan is no number of steps a second"),
        ('{"a": {"(\'R\', 1)": {"null": 1, "(\'R\', 1)": 2}}}', "is no pair of numbers"),
        ('{"a": {"(\'R\', 1)": {"null": 0}}}', "no job of a ran alone"),
        ('{"a": {"(\'R\', 1)": {"null": 1, "(\'R\', 1)": [3, 1]}}}', "3 steps a second where 1 are usual"),
        (
            '{"a": {"(\'R\', 1)": {"null": 1, "(\'S\', 1)": [0.5, 0.4]}, '
            '"(\'S\', 1)": {"null": 1, "(\'R\', 1)": [0.5, 0.4]}}}',
            "('S', 1) beside ('R', 1) is not what ('R', 1) beside ('S', 1) is",
        ),
        ('{"a": {"(\'R\', 1)": {"null": 1%s}}}' % ("0" * 400), "is no number of steps a second"),
        ('{"a": ', "is no JSON"),
    ],
)
def test_odd_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "speeds"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        open_speeds(str(path))
    assert message in str(refused.value)
    assert "nothing was loaded" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_gpu_types_are_of_throughputs_only(csv: Path) -> None:
    with pytest.raises(InputError, match="only JSON of throughputs has types of GPU"):
        open_speeds(f"{csv}@v100")
    moved = csv.rename(csv.with_name("at@home.csv"))
    assert len(open_speeds(str(moved)).pairs) == 3


def throughputs(folder: Path) -> Path:
    """Two models on one type of GPU; B does not fit beside itself, and A was not run on 4 GPUs."""
    alone, beside = "null", {"A": "('A', 1)", "B": "('B', 1)"}
    together = {
        "('A', 1)": {alone: 10.0, beside["A"]: [4.0, 4.0], beside["B"]: [9.0, 1.0]},
        "('B', 1)": {alone: 2.0, beside["A"]: [1.0, 9.0], beside["B"]: [0.0, 0.0]},
        "('A', 2)": {alone: 16.0},
        "('A', 8)": {alone: 40.0},
        "('B', 2)": {alone: 3.0},
        "('B', 4)": {alone: 0.0},
    }
    apart = {
        "('A', 1)": {alone: 9.0},
        "('A', 2)": {alone: 12.0},
        "('A', 8)": {alone: 5.0},
        "('B', 2)": {alone: 4.0},
        "('B', 4)": {alone: 4.0},
    }
    path = folder / "throughputs.json"
    path.write_text(json.dumps({"v100": together, "v100_unconsolidated": apart, "k80": {}}))
    return path


def test_throughputs_become_speeds(tmp_path: Path) -> None:
    table = open_speeds(f"{throughputs(tmp_path)}@v100")
    a, b = Profile("A"), Profile("B")
    assert table.speeds_ppm(a, b) == (900_000, 500_000)
    assert table.speeds_ppm(b, a) == (500_000, 900_000)
    assert table.speeds_ppm(a, a) == (400_000, 400_000)
    assert [table.fits(a, a), table.fits(a, b), table.fits(b, b)] == [True, True, False]
    assert not table.fits(a, UNKNOWN)
    assert table.profiles == ((1, a), (1, b))


def test_spread_gangs_have_the_speed_of_their_model_and_width(tmp_path: Path) -> None:
    """A: 12/16 on 2 GPUs, 5/40 on 8; B: 4/3 on 2, which is noise. One GPU is never spread."""
    table = open_speeds(f"{throughputs(tmp_path)}@v100")
    a, b = Profile("A"), Profile("B")
    assert [table.spread_ppm(a, gpus) for gpus in (1, 2, 4, 7, 8, 64)] == [None] + [750_000] * 3 + [
        125_000
    ] * 2
    assert [table.spread_ppm(b, gpus) for gpus in (1, 2, 8)] == [None, 1_000_000, 1_000_000]
    assert table.spread_ppm(UNKNOWN, 8) is None
    assert BUILTIN.spread_ppm(a, 8) is None


def test_a_wrong_type_of_gpu_gets_the_nearest(tmp_path: Path) -> None:
    path = throughputs(tmp_path)
    with pytest.raises(UnknownName, match=r"'V10'; did you mean 'v100'"):
        open_speeds(f"{path}@V10")
    with pytest.raises(InputError, match="name one of v100, k80 as"):
        open_speeds(str(path))


CONFIGS = st.tuples(st.sampled_from("abcd"), st.booleans())
PROFILES = st.builds(
    Profile,
    st.none() | st.sampled_from("abcde"),
    st.none() | st.floats(0, 100),
    st.none() | st.floats(0, 100),
    st.none() | st.integers(0, 80_000),
    st.booleans(),
)
SPEEDS = st.integers(1, 2_000_000)


@st.composite
def tables(draw: st.DrawFn) -> SpeedTable:
    pairs: dict[tuple[Config, Config], tuple[int, int]] = {}
    for pair in draw(st.lists(st.tuples(CONFIGS, CONFIGS), max_size=12)):
        if pair[::-1] not in pairs:
            pairs[pair] = draw(st.tuples(SPEEDS, SPEEDS))
    return SpeedTable("drawn", pairs=pairs)


@given(tables(), PROFILES, PROFILES)
def test_speeds_are_between_0_and_full_and_change_places_with_the_jobs(
    table: SpeedTable, one: Profile, other: Profile
) -> None:
    first, second = table.speeds_ppm(one, other)
    assert table.speeds_ppm(other, one) == (second, first)
    assert all(1 <= speed_ppm <= 1_000_000 for speed_ppm in (first, second))
    assert table.fits(one, other) == table.fits(other, one)
    unknown = None in (table.class_of(one), table.class_of(other))
    assert not (unknown and table.fits(one, other))


@given(tables(), PROFILES, st.tuples(st.floats(0.5, 1), st.floats(0.5, 1)), st.floats(0, 0.4))
def test_higher_cuts_never_lower_a_score(
    table: SpeedTable, one: Profile, cuts: tuple[float, float], more: float
) -> None:
    low, high = sorted(cuts)
    assert table.score(one, (low, high)) <= table.score(one, (low + more, high + more))


CELLS = st.sampled_from(["", "a", "b", "0", "1", "0.5", "-1", "nan", "1e400", '"', "a,b", "\x00", "é", "\n"])
ROWS = st.lists(st.lists(CELLS, min_size=3, max_size=6).map(",".join), max_size=5).map("\n".join)
AB = st.sampled_from(["a", "b"])
RATES = st.sampled_from(["1", "0.5", "1e-300", "2", "2.1"])
SIZES = st.sampled_from(["", "1", "64.0", "1e-300", "1e9", "1e300", "x"])
FULL_ROWS = st.lists(st.tuples(AB, RATES, AB, RATES, SIZES, SIZES).map(",".join), min_size=1, max_size=2).map(
    "\n".join
)
JSON_KEYS = st.sampled_from(
    ["null", "('R', 1)", "('S', 1)", "('R', 2)", "('R',)", "R", "v100", "v100_unconsolidated"]
)
LEAVES = st.none() | st.booleans() | st.floats() | st.integers(-1, 3) | st.just("x")
VALUES = st.recursive(
    LEAVES | st.lists(st.floats(0, 2), min_size=2, max_size=2),
    lambda inner: st.dictionaries(JSON_KEYS, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)
TEXTS = st.one_of(
    ROWS.map(lambda rows: f"{HEADER}\n{rows}"),
    FULL_ROWS.map(lambda rows: f"{HEADER},gmem,batchsize1\n{rows}"),
    st.dictionaries(JSON_KEYS, VALUES).map(json.dumps),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, gpu=st.sampled_from(["", "@v100"]))
def test_any_file_is_a_table_or_refused_in_one_line(tmp_path: Path, text: str, gpu: str) -> None:
    (tmp_path / "speeds").write_text(text)
    open_speeds.cache_clear()
    refusal, table = "", BUILTIN
    try:
        table = open_speeds(f"{tmp_path / 'speeds'}{gpu}")
    except (InputError, UnknownName) as problem:
        refusal = str(problem)
    assert "\n" not in refusal
    assert len(refusal) < 1000
    assert all(1 <= speed_ppm <= 2_000_000 for both in table.pairs.values() for speed_ppm in both)
    assert all(weight > 0 and (one.gmem_mib or 0) <= 10**9 for weight, one in table.profiles)


# ---- the real tables -----------------------------------------------------------------------------


def test_the_built_in_means_are_those_of_the_measured_pairs(shared: Path) -> None:
    """In the labels that are published beside the pairs; and thresholds give most of these labels."""
    table = open_speeds(str(shared / "data/lucid/colocate_info.csv.gz"))
    singles = pl.read_csv(read(shared / "data/lucid/single_data.csv").data)
    labels: dict[Config, int] = {}
    hits = []
    for row in singles.iter_rows(named=True):
        labels[f"{row['model']}/{row['dataset']}/{row['batchsize']}", bool(row["amp"])] = row["label"]
        hits.append(BUILTIN.score(Profile(None, row["gpu_util"], row["gmem_util"])) - row["label"])
    assert len(table.pairs) == 1388
    assert sum(one == other for one, other in table.pairs) == 56
    assert (hits.count(0), {abs(miss) for miss in hits}) == (54, {0, 1})
    relabelled: dict[tuple[int, int], list[int]] = {}
    for (one, other), (first, second) in table.pairs.items():
        relabelled.setdefault((labels[one], labels[other]), []).append(first)
        relabelled.setdefault((labels[other], labels[one]), []).append(second)
    means = [
        [round(sum(relabelled[own, other]) / len(relabelled[own, other]), -3) for other in range(3)]
        for own in range(3)
    ]
    assert means == [list(row) for row in BUILTIN.class_means_ppm]
    for label, (count, typical) in enumerate(BUILTIN.profiles):
        mine = singles.filter(pl.col("label") == label)
        found = mine.select("gpu_util", "gmem_util", "gmem").mean().row(0)
        assert mine.height == count
        assert (typical.gpu_util, typical.gmem_util) == tuple(round(mean, 1) for mean in found[:2])
        assert typical.gmem_mib == round(found[2])


def test_memory_of_a_pair_of_a_kind_is_twice_that_of_one(shared: Path) -> None:
    """Half of it is the memory alone, within 1 % for half of the configurations."""
    table = open_speeds(str(shared / "data/lucid/colocate_info.csv.gz"))
    singles = pl.read_csv(read(shared / "data/lucid/single_data.csv").data)
    alone = {
        (f"{row['model']}/{row['dataset']}/{row['batchsize']}", bool(row["amp"])): row["gmem"]
        for row in singles.iter_rows(named=True)
    }
    known = [one for _, one in table.profiles if one.gmem_mib is not None]
    errors = sorted(abs(one.gmem_mib / alone[str(one.model), one.amp] - 1) for one in known if one.gmem_mib)
    assert len(known) == len(table.profiles) == 56
    assert errors[len(errors) // 2] < 0.01


@pytest.mark.parametrize(
    ("gpu", "pairs", "apart", "slowest"),
    [("k80", 306, 45, 0.68), ("p100", 340, 11, 0.42), ("v100", 330, 21, 0.10)],
)
def test_gavels_throughputs(shared: Path, gpu: str, pairs: int, apart: int, slowest: float) -> None:
    """26 jobs on one GPU, so 351 pairs; and language models that hardly move when they are spread."""
    table = open_speeds(f"{shared / 'data/gavel/simulation_throughputs.json.gz'}@{gpu}")
    assert (len(table.pairs), len(table.apart)) == (pairs, apart)
    spread = [speed_ppm for widths in table.spread.values() for _, speed_ppm in widths]
    assert round(min(spread) / 1_000_000, 2) == slowest
    assert all(width > 1 for widths in table.spread.values() for width, _ in widths)
