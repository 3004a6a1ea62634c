"""The sampling family: filters by hand and by law, the hash, the provider helpers, and that each op's check catches a wrong output."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import checks
from harness.contracts import make_inputs, op
from harness.contracts.sampling import filters, murmur
from harness.errors import Missing, Unsupported
from harness.providers.isolate import isolate


def kept(p: list[float], k: int, target: float, ties: str = "all", order: str = "joint") -> tuple[list[int], list[int], int | None]:
    row = torch.tensor([p], dtype=torch.float32)
    s = filters.nucleus(row, torch.tensor([[k]]), torch.tensor([[target]], dtype=torch.float64), ties, order)
    required, allowed = (torch.nonzero(mask[0]).flatten().tolist() for mask in (s.required, s.allowed))
    return required, allowed, None if s.kept is None else int(s.kept[0])


def only(p: list[float], k: int, target: float, ties: str = "all", order: str = "joint") -> list[int]:
    required, allowed, _ = kept(p, k, target, ties, order)
    assert required == allowed
    return required


def test_the_order_of_top_k_and_top_p_decides() -> None:
    p = [0.35, 0.25, 0.20, 0.05, 0.03, 0.12]
    assert only(p, 4, 0.82) == [0, 1, 2, 5]
    assert only([0.35, 0.25, 0.20, 0.05, 0.03], 4, 0.82, order="top-k-first") == [0, 1, 2]
    fourth = [0.35, 0.25, 0.20, 0.05, 0.03, 0.04, 0.04, 0.04]
    assert only(fourth, 4, 0.82) == [0, 1, 2, 3]
    assert only(fourth, 4, 0.82, order="top-k-first") == [0, 1, 2]
    logits = torch.softmax(torch.tensor([0.1, 0.2, 0.3, 0.4]), -1).tolist()
    assert only(logits, 2, 0.5, order="top-k-first") == [3]
    assert only(logits, 2, 0.5) == [2, 3]


def test_ties_at_the_kth_place() -> None:
    p = [0.3, 0.2, 0.2, 0.2, 0.1]
    assert only(p, 2, filters.OFF) == [0, 1, 2, 3]
    assert kept(p, 2, filters.OFF, "exactly-k") == ([0], [0, 1, 2, 3], 2)
    logits = torch.softmax(torch.tensor([1.0, 2, 2, 2, 3]), -1).tolist()
    assert only(logits, 3, filters.OFF) == [1, 2, 3, 4]
    assert kept(logits, 3, filters.OFF, "exactly-k")[2] == 3


@pytest.mark.parametrize("k", [0, -1, 5, 6, 1 << 30])
def test_k_past_the_row_or_not_positive_keeps_everything(k: int) -> None:
    assert only([0.3, 0.2, 0.2, 0.2, 0.1], k, filters.OFF) == [0, 1, 2, 3, 4]


def test_top_p_at_its_edges() -> None:
    p = [0.5, 0.25, 0.125, 0.125]
    assert only(p, 0, 0.0) == [0]
    assert only(p, 0, 1.0) == [0, 1, 2, 3]
    assert only(p, 0, 0.74) == [0, 1]
    required, allowed, _ = kept(p, 0, 0.75)  # the mass of two meets the target exactly: the third may go either way, by rounding
    assert (required, allowed) == ([0, 1], [0, 1, 2, 3])
    assert kept(p, 0, 0.75, "exactly-k") == ([0, 1], [0, 1, 2, 3], -1)


def test_the_mass_a_nucleus_keeps_reaches_the_target() -> None:
    x = make_inputs(op("top_p_renorm").axes.parse("b1-v500-p0.9"), "cpu")
    s = filters.top_p(x.probs, torch.tensor([[0.9]], dtype=torch.float64), "all")
    assert float(x.probs.double()[s.required].sum()) >= 0.9 - 1e-5


rows = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any)


@settings(max_examples=120, deadline=None)
@given(
    rows,
    st.integers(-1, 14),
    st.sampled_from([0.0, 0.1, 0.5, 0.77, 0.9, 1.0]),
    st.sampled_from(["all", "exactly-k"]),
    st.sampled_from(["joint", "top-k-first"]),
)
def test_two_formulas_of_the_nucleus_agree(weights: list[int], k: int, target: float, ties: str, order: str) -> None:
    row = torch.tensor([weights], dtype=torch.float64)
    row = (row / row.sum()).float()
    s = filters.nucleus(row, torch.tensor([[k]]), torch.tensor([[target]], dtype=torch.float64), ties, order)
    other = torch.zeros_like(s.allowed)
    other[0, filters.kept_by_rank(row[0].double().tolist(), k, target, ties, order)] = True
    assert not bool((other & ~s.allowed).any())
    assert not bool((s.required & ~other).any())
    assert s.kept is None or int(s.kept[0]) in (-1, int(other.sum()))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**20), st.integers(0, 2**18))
def test_the_hash_two_ways_and_backwards(seed: int, position: int, column: int) -> None:
    at = column % 97
    assert int(murmur.hashes(torch.tensor([seed]), torch.tensor([position]), 97)[0, at]) == murmur.hash_one(seed, position, at)
    assert murmur.hash_one(murmur.seed_for(murmur.WORD, position, column), position, column) == murmur.WORD


def judged(name: str, case_id: str, spoil: Callable[[dict[str, Any]], None] | None = None, **semantics: str) -> str:
    """The reason of the verdict on the second formula's output, after `spoil` has changed it."""
    declared = op(name)
    x = make_inputs(declared.axes.parse(case_id), "cpu")
    chosen = declared.resolve(semantics)
    expected, output = declared.impl.reference(x, chosen), declared.impl.second(x, chosen)
    if spoil:
        spoil(output)
    first = declared.outputs[0]
    if getattr(expected[first], "dtype", None) is not None:
        output[first] = output[first].to(expected[first].dtype)
    return checks.judge(output[first], expected[first]).reason


def put(output: str, at: tuple[int, ...], value: float) -> Callable[[dict[str, Any]], None]:
    def spoil(outputs: dict[str, Any]) -> None:
        outputs[output] = outputs[output].clone()
        outputs[output][at] = value

    return spoil


def swap_mass(outputs: dict[str, Any]) -> None:
    """Gives a removed token a share and takes it from nobody."""
    p = outputs["probs"]
    p[0, int((p[0] == 0).nonzero()[0])] = 1e-7


def scale(outputs: dict[str, Any]) -> None:
    outputs["probs"] *= 1.0001


WRONG = [
    ("top_k_renorm", "b2-v111-k5", swap_mass, "support"),
    ("top_k_renorm", "b2-v111-k5", scale, "numerics"),
    ("top_k_renorm", "b2-v1000-k1000-fp16-flat", scale, "numerics"),
    ("top_p_renorm", "b2-v111-p0.5", swap_mass, "support"),
    ("top_k_top_p_filter", "b2-v111-k5-p0.9", swap_mass, "support"),
    ("min_p_filter", "b2-v111-mp0.3", swap_mass, "support"),
    ("temperature_softmax", "b2-v111-t0.7", scale, "numerics"),
    ("temperature_softmax", "b2-v111-masked", put("probs", (0, 0), 1e-9), "numerics"),
    ("greedy", "b2-v111", put("ids", (1,), 3), "support"),
    ("greedy", "b2-v111-nan", put("ids", (0,), 111), "support"),
    ("sample", "b2-v9-onehot", put("ids", (0, 0), 9), "support"),
    ("top_k_top_p_sample", "b2-v9-k1-p0.9", lambda o: o.update(ids=(o["ids"] + 1) % 9), "support"),
    ("min_p_sample", "b2-v9-mp1", lambda o: o.update(ids=(o["ids"] + 1) % 9), "support"),
    ("sample", "b2-v9-zero", put("ids", (0, 0), -1), "support"),
    ("token_bitmask", "b2-v111", put("logits", (1, 110), 7.0), "numerics"),
    ("penalties", "b2-v111", put("logits", (1, 110), 7.0), "numerics"),
]


@pytest.mark.parametrize(("name", "case_id", "spoil", "reason"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_wrong_output_is_caught(name: str, case_id: str, spoil: Callable[[dict[str, Any]], None], reason: str) -> None:
    assert judged(name, case_id) == ""
    assert judged(name, case_id, spoil) == reason


def test_a_seeded_sampler_that_depends_on_its_slot_or_its_call_is_caught() -> None:
    def other_call(outputs: dict[str, Any]) -> None:
        outputs["ids"] = torch.stack((outputs["ids"][:, 0], (outputs["ids"][:, 1] + 1) % 9), -1)

    def other_slot(outputs: dict[str, Any]) -> None:
        outputs["ids"] = outputs["ids"].clone()
        outputs["ids"][4:] = (outputs["ids"][4:] + 1) % 9

    assert judged("seeded_sample", "b4-v9-flat") == ""
    assert judged("seeded_sample", "b4-v9-flat", noise="murmur3") == ""
    assert judged("seeded_sample", "b4-v9-flat", other_call) == "invariant"
    assert judged("seeded_sample", "b4-v9-flat", other_slot) == "invariant"
    assert judged("seeded_sample", "b4-v9-flat", other_slot, noise="murmur3") == "support"


def test_an_unlucky_seed_gives_the_massless_token_the_greatest_hash() -> None:
    x = make_inputs(op("seeded_sample").axes.parse("b4-v111-unlucky-onehot"), "cpu")
    hashes = murmur.hashes(x.seeds, x.positions, 111)
    worst = hashes.argmax(-1)
    assert bool((hashes.amax(-1) == murmur.WORD).all())
    assert bool((x.probs.gather(1, worst[:, None]) == 0).all())


def test_penalties_by_hand() -> None:
    impl = op("penalties").impl
    x = make_inputs(op("penalties").axes.parse("b1-v9"), "cpu")
    x = x.copy_with(logits=torch.tensor([[2.0, -1.0, 0.5]]), generated=torch.tensor([[0, 0, 1]]), frequency=torch.tensor([0.5]))
    x = x.copy_with(presence=torch.tensor([0.25]), repetition=torch.tensor([2.0]))
    assert impl.reference(x, {"order": "additive-first"})["logits"].value.tolist() == [[(2 - 1.25) / 2, -1.75 * 2, 0.5]]
    assert impl.reference(x, {"order": "scaling-first"})["logits"].value.tolist() == [[1 - 1.25, -2 - 0.75, 0.5]]


def test_bitmask_by_hand() -> None:
    impl = op("token_bitmask").impl
    x = make_inputs(op("token_bitmask").axes.parse("b2-v9-some"), "cpu")
    x = x.copy_with(logits=torch.ones(2, 9), bitmask=torch.tensor([[0b100000001], [0]], dtype=torch.int32))
    assert impl.reference(x, {})["logits"].value.tolist() == [[1.0, *[-math.inf] * 7, 1.0], [1.0] * 9]


def test_isolated_code_runs_without_its_module_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy_module.py").write_text(
        "import not_installed_anywhere\nBASE = 2\n\ndef twice(x: not_installed_anywhere.T):\n    return BASE * x\n\n"
        "def lost(x):\n    return not_installed_anywhere.f(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    taken = isolate("heavy_module", "BASE", "twice", "lost", given={})
    assert taken.twice(3) == 6
    with pytest.raises(Unsupported, match="not_installed_anywhere"):
        taken.lost(1)
    with pytest.raises(Missing, match="heavy_module:gone"):
        isolate("heavy_module", "gone", given={})
    with pytest.raises(Missing, match="no_such_module_at_all"):
        isolate("no_such_module_at_all", "x", given={})


def test_every_input_family_is_what_it_says() -> None:
    from harness.contracts.inputs import Draw
    from harness.contracts.sampling import distributions

    rows = {values: distributions.logits(Draw("x"), 4, 99, values) for values in distributions.LOGITS}
    assert [values for values, x in rows.items() if bool((x == x[:, :1]).all())] == ["flat"]
    assert [values for values, x in rows.items() if bool(x.isnan().any())] == ["nan", "onenan"]
    assert int(rows["onenan"].isnan().sum()) == 2
    assert bool((rows["allmasked"][::2] == -math.inf).all())
    mass = {values: distributions.probs(Draw("x"), 4, 99, values) for values in (*distributions.PROBS, *distributions.SPOILT)}
    for values in distributions.PROBS:
        assert bool(((mass[values].double().sum(-1) - 1).abs() < 1e-6).all()), values
    assert int((mass["onehot"] > 0).sum()) == 4
    assert int((mass["flat"] == 0).sum()) == 4
