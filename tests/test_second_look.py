"""Draws in cells: batches, the second look at what is suspicious, what a result says of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from click.testing import CliRunner

from harness.checks import power
from harness.cli import cli
from harness.contracts import Draw, Drawn, make_inputs, op
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.providers import implements, providers_of, registry


def test_batches_hold_every_draw_and_stay_small() -> None:
    x = make_inputs(op("sample").axes.parse("b3-v1000-n5000"), "cpu")
    sizes = []

    def call(part: Any) -> torch.Tensor:
        sizes.append(part.repeated("probs").numel())
        assert len(part.draw_rows) == 3 * part.draws
        return torch.full((3 * part.draws,), len(sizes))

    ids = x.in_batches(call)
    assert tuple(ids.shape) == (3, 5000)
    assert len(sizes) > 1
    assert max(sizes) <= 1 << 22
    assert sum(sizes) == 3 * 5000 * 1000
    assert ids[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "case_id"),
    [
        ("sample", "b2-v9-n300"),
        ("seeded_sample", "b64-v9-fewseeds"),
        ("chain_verify", "b300-n3-v9-drawn"),
        ("tree_verify_sample", "b300-n4-v9-drawn"),
        ("dspark_accept_sampling", "b300-n3-v60-drawn-t0.5"),
    ],
)
def test_a_second_look_asks_the_same_question_with_four_times_the_draws(name: str, case_id: str) -> None:
    impl, semantics = op(name).impl, op(name).resolve({})
    x = make_inputs(op(name).axes.parse(case_id), "cpu")
    more = impl.again(x, Draw("again", 0))
    first, second = (impl.reference(y, semantics) for y in (x, more))
    one, other = (next(e for e in made.values() if isinstance(e, Drawn)) for made in (first, second))
    assert torch.equal(one.weights, other.weights)
    size = "draws" if name == "sample" else "batch"
    assert getattr(more.case, size) == power.RETRY * getattr(x.case, size)


def test_results_are_the_same_for_one_seed_and_others_for_another() -> None:
    bench, provider = Bench(open_device("cpu")), next(p for p in providers_of("sample") if p.name == "torch_eager")
    case = op("sample").axes.parse("b2-v50-n3000")
    figures = [bench.run(case, provider, "cpu", seed)[0].figures for seed in (0, 0, 5)]
    assert figures[0] == figures[1] != figures[2]
    assert figures[0]["ids"]["draws_a_row"] == 3000


def test_a_finding_says_what_the_first_look_said() -> None:
    @implements("sample", library="torch", name="slightly_off", platforms={"cpu"})
    def slightly_off(x: Any) -> Any:
        weights = x.probs.double()
        weights[0, weights[0].argmax()] *= 1.3
        return torch.multinomial(weights, x.draws, replacement=True)

    provider = registry._providers.pop(("sample", "slightly_off"))
    case = op("sample").axes.parse("b1-v111-n4000")
    results = [Bench(open_device("cpu")).run(case, provider, "cpu", seed)[0] for seed in range(4)]
    twice = [result for result in results if any("first look" in note for note in result.notes)]
    assert twice
    assert all(result.reason == "distribution" and result.figures["ids"]["draws_a_row"] == 16000 for result in twice)


def test_show_power(tmp_path) -> None:
    cell = "sample[torch_eager-b1-v111-n20000]"
    done = CliRunner().invoke(cli, ["run", "--platform", "cpu", "--cell", cell, "--show-power", "--results", str(tmp_path / "r.jsonl")])
    line = next(line for line in done.stdout.splitlines() if line.startswith(cell) and "%" in line)
    assert [part for part in line.split() if part != "%"][1] == "20000"
    assert "bias of p = 0.1" in done.stdout
