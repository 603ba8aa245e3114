"""Speed by CPU and memory: the built-in table, files of one's own, and what may be the truth behind them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.cluster import VirtualCluster
from trimtab.curve import Curve, Share
from trimtab.errors import InputError, UnknownName
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.curves import BUILTIN_CURVES, CurveTable
from trimtab.world import Seeds

# Synergy's table: speeds on 1, 2, 3, 4, 5, 6, 9, 12, 24 cores with 62.5 GiB, and the best there is.
SYNERGY = {
    "alexnet": ([0.30, 0.66, 1, 1.25, 1.53, 1.75, 2.0, 2.0, 2.0], 2.94),
    "shufflenet": ([0.30, 0.66, 1, 1.25, 1.53, 1.75, 2.0, 2.0, 2.0], 2.89),
    "resnet18": ([0.37, 0.72, 1, 1.30, 1.53, 1.75, 2.4, 2.4, 2.4], 2.4),
    "mobilenet": ([0.37, 0.72, 1, 1.30, 1.49, 1.55, 1.55, 1.55, 1.55], 1.55),
    "resnet50": ([0.40, 0.74, 1, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15], 1.15),
    "m5": ([0.30, 0.66, 1, 1.20, 1.40, 1.5, 1.5, 1.5, 1.5], 2.5),
    "deepspeech": ([0.30, 0.66, 1, 1, 1, 1, 1, 1, 1], 1),
    **dict.fromkeys(["gnmt", "transformer", "lstm", "bert", "vae"], ([1.0] * 9, 1.0)),
}
CORES = (1, 2, 3, 4, 5, 6, 9, 12, 24)
NODE = VirtualCluster("all", 1, 8)


def _speed(model: str, gpus: int, cores: int, memory_mib: int, table: CurveTable = BUILTIN_CURVES) -> float:
    curve = table.curve(model, gpus)
    assert curve is not None
    return NODE.speed_ppm(curve, gpus, Share(cores, memory_mib)) / 1e6


@pytest.mark.parametrize("model", SYNERGY)
def test_the_built_in_speeds(model: str) -> None:
    along, best = SYNERGY[model]
    assert [_speed(model, 1, cores, 64_000) for cores in CORES] == along
    assert _speed(model, 1, 24, 256_000) == best
    stalled = 1.0 if set(along) == {1.0} else 0.1
    assert {_speed(model, 1, cores, 21_333) for cores in CORES} == {stalled}


def test_memory_counts_in_steps() -> None:
    sizes = (63_999, 64_000, 127_999, 128_000, 191_999, 192_000, 256_000)
    assert [_speed("m5", 1, 6, size) for size in sizes] == [0.1, 1.5, 1.5, 2, 2, 2.5, 2.5]
    assert [_speed("alexnet", 1, 12, size) for size in sizes] == [0.1, 2, 2, 2.94, 2.94, 2.94, 2.94]


def test_cores_between_two_numbers() -> None:
    """Straight between 6 and 9 cores, from 0 at none, and for two GPUs half a core each counts."""
    assert _speed("resnet18", 1, 7, 64_000) == pytest.approx(1.75 + 0.65 / 3, abs=1e-6)
    assert _speed("resnet18", 2, 7, 128_000) == pytest.approx(1.15, abs=1e-6)
    assert _speed("resnet18", 2, 1, 128_000) == pytest.approx(0.185, abs=1e-6)


def test_wider_gangs_reach_less() -> None:
    """Best speeds on 1, 2, 3, 4 and 8 GPUs; of widths between, the narrower one counts."""
    best = {
        "alexnet": [2.94, 2.33, 2.33, 1.75, 1.75],
        "shufflenet": [2.89, 2.33, 2.33, 1.75, 1.75],
        "resnet18": [2.4, 2.4, 2.4, 1.75, 1.75],
        "mobilenet": [1.55] * 5,
        "resnet50": [1.15, 1, 1, 1, 1],
        "m5": [2.5] * 5,
        "gnmt": [1] * 5,
    }
    for model, speeds in best.items():
        assert [_speed(model, gpus, 24 * gpus, 256_000 * gpus) for gpus in (1, 2, 3, 4, 8)] == speeds


def test_what_counts_as_sensitive() -> None:
    expected = {"alexnet", "shufflenet", "resnet18", "mobilenet", "resnet50", "m5"}
    assert BUILTIN_CURVES.sensitive == expected
    assert BUILTIN_CURVES.of_class("speech") == ["deepspeech", "m5"]
    assert BUILTIN_CURVES.curve("vgg16", 1) is BUILTIN_CURVES.curve(None, 1) is None


def test_a_node_of_another_kind_has_its_own_full_speed() -> None:
    """With 6 cores a GPU, alexnet's 1.75 is full speed, and 12 cores are 2.94 / 1.75."""
    rich = VirtualCluster("rich", 1, 4, 0, 24, 512_000)
    curve = BUILTIN_CURVES.curve("alexnet", 1)
    assert curve is not None
    assert rich.speed_ppm(curve, 1, rich.proportional(1)) == 1_000_000
    assert rich.speed_ppm(curve, 1, Share(12, 128_000)) == 1_680_000


def test_synergys_own_file(shared: Path) -> None:
    """Its numbers on one GPU are the built-in ones."""
    path = shared / "data" / "synergy" / "cpu_mem_sensitivity.json"
    found = open_curves(f"{path}@4")
    assert found.classes == BUILTIN_CURVES.classes
    assert {model: widths[:1] for model, widths in BUILTIN_CURVES.curves.items()} == found.curves
    with pytest.raises(InputError, match="has 3 kinds of servers, name one of 4, 5, 6"):
        open_curves(str(path))
    with pytest.raises(UnknownName, match="kind of server"):
        open_curves(f"{path}@7")


# ---- what may be the truth -----------------------------------------------------------------------


@given(st.integers(0, 200), st.sampled_from((0.0, 0.05, 0.2, 0.5)), st.sampled_from(sorted(SYNERGY)))
def test_perturbed_curves(seed: int, noise: float, model: str) -> None:
    """Within the noise, never falling, the usual share as it was; the same for the same seed."""
    found = BUILTIN_CURVES.perturbed(noise, Seeds(seed))
    for (gpus, curve), (_, known) in zip(found.curves[model], BUILTIN_CURVES.curves[model], strict=True):
        assert _rises(curve)
        assert curve.at(gpus, NODE.proportional(gpus)) == known.at(gpus, NODE.proportional(gpus))
        for row, believed in zip(curve.speeds_ppm, known.speeds_ppm, strict=True):
            for one, other in zip(row, believed, strict=True):
                assert abs(one - other) <= noise * other + 1
        assert noise > 0 or curve == known
    assert found == BUILTIN_CURVES.perturbed(noise, Seeds(seed))


def test_perturbing_moves_speeds_both_ways() -> None:
    """Over many draws a speed is off by 20 % / sqrt(3) = 11.5 % in the mean square, and on average right."""
    off = []
    for seed in range(200):
        curve = BUILTIN_CURVES.perturbed(0.2, Seeds(seed)).curve("resnet18", 1)
        assert curve is not None
        off.append(curve.at(1, Share(9, 64_000)) / 2_400_000 - 1)
    assert abs(sum(off) / len(off)) < 0.02
    assert (sum(one * one for one in off) / len(off)) ** 0.5 == pytest.approx(0.115, abs=0.015)


def _rises(curve: Curve) -> bool:
    rows = curve.speeds_ppm
    along = all(a <= b for row in rows for a, b in pairwise(row))
    return along and all(a <= b for low, high in pairwise(rows) for a, b in zip(low, high, strict=True))


# ---- a curve over its grid -----------------------------------------------------------------------


@st.composite
def rising(draw: st.DrawFn) -> Curve:
    """Draw a curve that never falls."""
    cores = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=5)))
    memory = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=4)))
    rows: list[tuple[int, ...]] = []
    for _ in memory:
        row, least = [], 10_000
        for place in range(len(cores)):
            least = max(least, rows[-1][place] if rows else 1) + draw(st.integers(0, 400_000))
            row.append(least)
        rows.append(tuple(row))
    return Curve(tuple(cores), tuple(1000 * size for size in memory), tuple(rows))


@given(rising(), st.integers(1, 8), st.integers(0, 260), st.integers(0, 90_000))
def test_more_is_never_slower(curve: Curve, gpus: int, cores: int, memory_mib: int) -> None:
    here = curve.at(gpus, Share(cores, memory_mib))
    assert here <= curve.at(gpus, Share(cores + 1, memory_mib))
    assert here <= curve.at(gpus, Share(cores, memory_mib + 700))
    assert 0 <= here <= curve.speeds_ppm[-1][-1]


@given(rising(), st.integers(1, 8))
def test_exact_where_it_was_measured(curve: Curve, gpus: int) -> None:
    for memory_mib, row in zip(curve.memory_mib, curve.speeds_ppm, strict=True):
        found = [curve.at(gpus, Share(cores * gpus, memory_mib * gpus)) for cores in curve.cores]
        assert found == list(row)


@given(rising(), st.integers(1, 8), st.integers(8, 64), st.integers(8_000, 90_000))
def test_the_proportional_share_is_full_speed(curve: Curve, gpus: int, cores: int, memory_mib: int) -> None:
    vc = VirtualCluster("vc", 1, 8, 0, cores, memory_mib)
    assert vc.speed_ppm(curve, gpus, vc.proportional(gpus)) == 1_000_000


# ---- files ---------------------------------------------------------------------------------------

HEADER = "model,cpus_per_gpu,memory_gib_per_gpu,speed"
NETS = f"""{HEADER},gpus,footprint_gib_per_gpu,class
net,2,50,300,,20,image
net,4,50,600,,20,image
net,2,100,310,,20,image
net,4,100,900,,20,image
net,4,50,500,4,30,image
"""


def _load(folder: Path, text: str) -> CurveTable:
    path = folder / "curves.csv"
    path.write_text(text)
    open_curves.cache_clear()
    return open_curves(str(path))


def test_a_csv(tmp_path: Path) -> None:
    """In units of the speed next to 3 cores and 62.5 GiB, here 300 on 2 cores and 50 GiB."""
    found = _load(tmp_path, NETS)
    one, four = found.curve("net", 1), found.curve("net", 8)
    rows = ((1_000_000, 2_000_000), (1_033_333, 3_000_000))
    assert one == Curve((2, 4), (51_200, 102_400), rows, 20_480)
    assert four == Curve((4,), (51_200,), ((1_000_000,),), 30_720)
    assert found.curve("net", 3) is one
    assert found.classes == {"net": "image"}
    assert found.sha256


def test_the_order_of_rows_is_nothing(tmp_path: Path) -> None:
    head, *rows = NETS.splitlines()
    turned = _load(tmp_path, "\n".join([head, *reversed(rows)]) + "\n")
    assert turned.curves == _load(tmp_path, NETS).curves


REFUSALS = {
    "column": (f"{HEADER[:-6]}\na,1,1\n", "column 'speed' is missing"),
    "no model": (f"{HEADER}\n,1,1,1\n", "line 2: model is empty"),
    "cores": (f"{HEADER}\na,1.5,1,1\n", "line 2: cpus_per_gpu must be a whole number"),
    "no cores": (f"{HEADER}\na,0,1,1\n", "line 2: cpus_per_gpu must be a whole number"),
    "memory": (f"{HEADER}\na,1,-1,1\n", "line 2: memory_gib_per_gpu must be above 0"),
    "word": (f"{HEADER}\na,1,much,1\n", "line 2: memory_gib_per_gpu must be above 0"),
    "stalled": (f"{HEADER}\na,1,1,1\na,2,1,0\n", "line 3: speed must be a number above 0"),
    "two": (f"{HEADER}\na,1,1,\na,2,1,nan\n", r"line 2 \(and 1 more\): speed must be a number above 0"),
    "again": (f"{HEADER}\na,1,1,1\na,1,1.0,2\n", "line 3: this point stands in line 2 already"),
    "hole": (f"{HEADER}\na,1,1,1\na,2,2,2\n", "model 'a': 2 cores with 1 GiB is missing"),
    "ratio": (f"{HEADER}\na,1,1,1\na,2,1,2000\n", "speeds from 1 to 2000: at most 1,000 to 1"),
    "gpus": (f"{HEADER},gpus\na,1,1,1,0\n", "line 2: gpus must be a whole number"),
    "wide": (f"{HEADER},gpus\na,1,1,1,2\na,2,2,1,2\n", "model 'a' on 2 GPUs: 2 cores with 1 GiB is missing"),
    "foot": (
        f"{HEADER},footprint_gib_per_gpu\na,1,1,1,5\na,2,1,1,6\n",
        "line 3: footprint_gib_per_gpu is 5 in line 2",
    ),
    "negative": (f"{HEADER},footprint_gib_per_gpu\na,1,1,1,-5\n", "footprint_gib_per_gpu must be 0 .."),
    "class": (f"{HEADER},class\na,1,1,1,sound\n", "class must be one of image, language, speech"),
    "classes": (
        f"{HEADER},class\na,1,1,1,image\na,2,1,1,speech\n",
        "line 3: 'a' is of class image in an earlier line",
    ),
    "json": ("{", "is no JSON"),
    "empty": ("{}", "has 0 kinds of servers"),
    "none": ('{"3": {}}', "'3' holds no models"),
    "name": ('{"3": {"alexnet": {}}}', "'alexnet' is not MODEL_GPUS"),
    "shape": ('{"3": {"alexnet_1": {"tput": [[1]]}}}', "`tput` must be 9 rows"),
    "speed": (json.dumps({"3": {"a_1": {"tput": [[-1] * 5] * 9}}}), "-1 is no speed"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_clear_line(tmp_path: Path, case: str) -> None:
    text, said = REFUSALS[case]
    with pytest.raises(InputError, match=said) as refused:
        _load(tmp_path, text)
    assert "\n" not in str(refused.value)
    assert "nothing was loaded" in str(refused.value)


def test_a_kind_of_server_of_a_csv(tmp_path: Path) -> None:
    _load(tmp_path, NETS)
    with pytest.raises(InputError, match="only JSON has kinds of servers"):
        open_curves(f"{tmp_path / 'curves.csv'}@4")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_are_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    """Some characters of a good file are others: it is refused in one line, or all its curves can be used."""
    json_text = json.dumps({"3": {"a_1": {"tput": [[1, 0.5, 0.25, 2, 1]] * 9}}})
    text = list(data.draw(st.sampled_from((NETS, json_text))))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from('0129.-,"{}[]\nabe') | st.characters(codec="utf-8"))
    try:
        found = _load(tmp_path, "".join(text))
    except (InputError, UnknownName) as refused:
        said = str(refused)
    else:
        said = ""
        for model in found.curves:
            assert _speed(model, 2, 5, 100_000, found) > 0
    assert "\n" not in said
