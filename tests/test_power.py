"""`kernel-parity power`: the replay, the rules of others as described, and archives that are none."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import traced
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, mannwhitneyu

from harness.speed import replay, rivals

FIFTY = ("--draws", "50")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return traced.write(tmp_path_factory.mktemp("traces") / "other.npz", seed=3, cells=16)


def test_the_rates_of_a_file_it_was_not_made_for(typed, archive):
    code, out, _ = typed("power", str(archive), "--draws", "200", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["groups"]["host-bound eager"]["cells"] == ["op-library-small|eager"]
    graph, eager = (record["groups"][name]["rules"][replay.OURS] for name in ("graph", "eager"))
    assert graph["rates"]["0"]["rate"] <= 2e-4
    assert graph["rates"]["0.02"]["rate"] >= 0.99
    assert eager["rates"]["0.05"]["rate"] >= 0.99
    assert (graph["cells"], graph["independent_runs"], graph["replays"]) == (16, 16 * 17, 16 * 200)
    assert graph["rates"]["0"]["bound"] == pytest.approx(binomtest(0, 272).proportion_ci(0.9, "exact").high, rel=1e-6)
    starts = record["groups"]["graph"]["starts"]["each"]["rates"]
    assert starts["0"]["rate"] <= 1e-3
    assert starts["0.03"]["rate"] >= 0.95


def test_the_table_has_every_rule_and_says_what_stands_behind_it(typed, archive):
    code, out, _ = typed("power", str(archive), *FIFTY)
    assert code == 0
    assert all(out.count(f"\n{rule}") >= 3 for rule in rivals.RULES)
    assert "from 272 independent runs, not from 800 replays" in out
    assert "with any one cell left out" in out


def test_what_is_found_grows_with_the_slow_down(archive):
    with np.load(archive) as arrays:
        cells = [arrays[key].astype(float) for key in arrays.files if key.startswith("op-") and key.endswith("|graph")]
    for rates in replay.replay(cells, "graph", draws=100, seed=1).values():
        values = list(rates.rate.values())
        assert values == sorted(values)
        assert all(rates.bound(slowed) <= rate for slowed, rate in rates.rate.items() if slowed)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 40), st.booleans())
def test_mann_whitney_is_that_of_scipy(seed, n, m, tied):
    random = np.random.default_rng(seed)
    first, second = (random.integers(0, 9, (2, size)) if tied else random.normal(size=(2, size)) for size in (n, m))
    chances = rivals.mann_whitney(first.astype(float), second.astype(float))
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            wanted = mannwhitneyu(one, other, method="asymptotic").pvalue
            assert np.isnan(wanted) or chances[i, j] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("rule", "least", "below"),
    [(0, 1.0501, 1.0499), (1, 1.1001, 1.0999), (2, 1.1501, 1.1499), (3, 1.0001, 0.9999), (4, 1.1001, 1.0999), (5, 1.0051, 1.0049), (6, 1.0201, 1.0199)],
)
def test_a_rule_of_others_turns_where_it_is_said_to(rule, least, below):
    still = [np.full((13, 60), 50.0)]
    base, new = np.arange(10).reshape(1, 1, 10), np.arange(10, 13).reshape(1, 1, 3)
    name = list(rivals.RULES)[rule]
    said = [bool(rivals.RULES[name](rivals.figures(still, slowed), rivals.Drawn(base, new, slowed))[0, 0]) for slowed in (least, below)]
    assert said == [True, False]


@pytest.mark.parametrize(
    ("key", "us", "within", "host"),
    [("a|eager", 90, 0.1, True), ("a|eager", 90, 0.03, False), ("a|eager", 900, 0.1, False), ("a|graph", 90, 0.1, False), ("a|eager", 400, 0.09, True)],
)
def test_host_bound_is_told_from_spread_size_and_mode(key, us, within, host):
    samples = us / 1000 * np.exp(within * np.random.default_rng(1).standard_normal((17, 400)))
    assert replay.host_bound(key, samples) is host


def _good() -> np.ndarray:
    return 0.05 * np.exp(0.01 * np.random.default_rng(0).standard_normal((17, 60)))


def _holed(value: float) -> np.ndarray:
    samples = _good()
    samples[3, 5] = value
    return samples


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "has no traces"),
        ({"control-copy|graph": _good()}, "has no traces"),
        ({"a": _good()}, "does not end with |graph or |eager"),
        ({"a|graph": _good()[:4]}, "a|graph has 4 runs, and the replay needs 5"),
        ({"a|graph": _good()[:, :1]}, "a|graph has 1 samples a run"),
        ({"a|graph": _good()[:, :0]}, "a|graph has 0 samples a run"),
        ({"a|graph": _good()[0]}, "not numbers [runs, samples]"),
        ({"a|graph": np.array([["x"] * 5] * 5)}, "not numbers [runs, samples]"),
        ({"a|graph": _good() + 1j}, "not numbers [runs, samples]"),
        ({"a|graph": _holed(np.nan)}, "a|graph has 1 samples that are no times, first nan in run 3"),
        ({"a|graph": _holed(np.inf)}, "no times, first inf in run 3"),
        ({"a|graph": _holed(0.0)}, "no times, first 0.0 in run 3"),
        ({"a|graph": np.array([{"a": 1}], dtype=object)}, "holds no traces"),
    ],
)
def test_an_archive_that_cannot_be_replayed_is_one_line(typed, tmp_path, arrays, says):
    np.savez(tmp_path / "bad.npz", **arrays)
    code, out, err = typed("power", "bad.npz")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("kernel-parity: bad.npz")
    assert says in err


@pytest.mark.parametrize("data", [b"", b"\x00", b"hello", b"PK\x03\x04", b"PK\x05\x06" + 18 * b"\x00", b"\x93NUMPY\x01\x00", 500 * b"{}"])
def test_a_file_that_is_no_archive_is_one_line(typed, tmp_path, data):
    (tmp_path / "bad.npz").write_bytes(data)
    code, out, err = typed("power", "bad.npz")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "bad.npz" in err


def test_a_member_that_is_no_array_is_one_line(typed, tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("a|graph", "text")
    code, out, err = typed("power", "bad.npz")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "bad.npz: a|graph is no array" in err


def test_samples_that_never_vary_are_replayed(typed, tmp_path):
    np.savez(tmp_path / "still.npz", **{f"{name}|graph": np.full((17, 20), 0.05) for name in "abcd"})
    code, out, err = typed("power", "still.npz", *FIFTY, "--json")
    rates = json.loads(out)["groups"]["graph"]["rules"][replay.OURS]["rates"]
    assert (code, err, rates["0"]["rate"], rates["0.01"]["rate"]) == (0, "", 0.0, 1.0)


def test_a_single_array_and_a_missing_file_are_one_line(typed, tmp_path):
    np.save(tmp_path / "one.npy", _good())
    assert typed("power", "one.npy")[0] == 2
    code, _, err = typed("power", "nowhere.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot read nowhere.npz: No such file" in err
    assert typed("power", ".")[0] == 2


@settings(max_examples=25, deadline=None)
@given(place=st.floats(0, 1), flip=st.integers(0, 255))
def test_any_cut_or_flipped_byte_is_told_or_harmless(archive, tmp_path_factory, place, flip):
    from harness.errors import UsageError
    from harness.store import traces

    data = archive.read_bytes()
    spot = int(place * (len(data) - 1))
    bad = tmp_path_factory.mktemp("cut") / "bad.npz"
    for broken in (data[:spot], data[:spot] + bytes([data[spot] ^ flip]) + data[spot + 1 :]):
        bad.write_bytes(broken)
        said = str(bad)
        try:
            traces.read(bad, runs=replay.LEAST)
        except UsageError as error:
            said = str(error)
        assert str(bad) in said
        assert "\n" not in said


def test_cells_with_fewer_runs_set_how_many_are_used(typed, tmp_path):
    path = traced.write(tmp_path / "mixed.npz", cells=3, **{"op-short|graph": _good()[:7]})
    record = json.loads(typed("power", str(path), *FIFTY, "--json")[1])
    assert record["runs"] == 7
    assert record["groups"]["graph"]["rules"][replay.OURS]["independent_runs"] == 4 * 7


def test_the_seed_gives_the_table(typed, tmp_path):
    path = str(traced.write(tmp_path / "few.npz", cells=2))
    first, again, other = (typed("power", path, *FIFTY, "--seed", seed)[1] for seed in ("0", "0", "1"))
    assert first == again != other


def test_one_cell_alone_has_no_jackknife(typed, tmp_path):
    np.savez(tmp_path / "one.npz", **{"a|graph": _good()})
    code, out, _ = typed("power", "one.npz", *FIFTY)
    assert code == 0
    assert "left out" not in out
