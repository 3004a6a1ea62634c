"""cases/models.toml and what one rank of a model asks of the ops."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import ops
from harness.contracts.models import Model, find_model, load_models
from harness.errors import UsageError

MODELS = load_models(Path(__file__).parents[1] / "cases" / "models.toml")


@pytest.mark.parametrize(
    ("name", "tp", "heads"),
    [("kimi-k3", 8, 12), ("kimi-k3", 4, 24), ("kimi-k2", 8, 8), ("deepseek-v3", 8, 16), ("glm-4.7-flash", 4, 5), ("qwen3.8-27b", 8, 3), ("llama-4", 8, 5)],
)
def test_heads_a_rank(name: str, tp: int, heads: int) -> None:
    assert MODELS[name].rank(tp).heads == heads


def test_kv_heads_are_replicated_past_their_count() -> None:
    assert [MODELS["qwen3-235b-a22b"].rank(tp).kv_heads for tp in (1, 2, 4, 8, 16)] == [4, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "tp"), [("glm-4.7-flash", 8), ("llama-4", 16), ("kimi-k3", 5), ("kimi-k3", 0), ("kimi-k3", -8), ("llama-4", 5), ("minimax-m2", 3)]
)
def test_a_tp_that_does_not_divide_is_refused_with_those_that_do(name: str, tp: int) -> None:
    with pytest.raises(UsageError, match=rf"{name} has \d+ query .* tp {tp} .* try --tp 1, 2"):
        MODELS[name].rank(tp)


def test_what_is_not_covered_is_said() -> None:
    assert MODELS["kimi-k3"].rank(8).uncovered == "not covered: 69 of 93 layers (linear attention (KDA))"
    assert MODELS["deepseek-v3"].rank(8).uncovered == ""


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_every_model_is_consistent(model: Model) -> None:
    assert model.source
    assert model.kind in ("gqa", "mla")
    assert model.heads % model.kv_heads == 0
    assert model.covered <= model.layers
    if model.kind == "mla":
        assert (model.latent, model.rope) == (512, 64)
        assert model.head_dim == model.nope + model.rope
    else:
        assert model.latent == 0
        assert model.v_dim == model.head_dim


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 256))
def test_a_rank_holds_its_share_of_the_heads(name: str, tp: int) -> None:
    model = MODELS[name]
    try:
        rank = model.rank(tp)
    except UsageError:
        assert model.heads % tp or (model.kv_heads % tp and tp % model.kv_heads)
        return
    assert rank.heads * tp == model.heads
    assert rank.kv_heads * tp in (model.kv_heads, tp)
    assert rank.heads % rank.kv_heads == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("small", [True, False])
def test_every_op_makes_cases_of_a_model(name: str, small: bool) -> None:
    rank = MODELS[name].rank(2)
    for declared in ops().values():
        for values in getattr(declared.impl, "for_model", lambda g, s: ())(rank, small):
            case = declared.axes.case(**values)
            assert declared.axes.parse(case.id) == case


def test_unknown_models_name_the_nearest() -> None:
    with pytest.raises(UsageError, match="kimi-k3"):
        find_model(MODELS, "kimi-k33")


@pytest.mark.parametrize(
    ("text", "said"),
    [("[m", "cannot read"), ('[m]\nkind = "gqa"', "'m'.*missing"), ('[m]\nkind = "gqa"\nhead = 3', "unknown field 'head'; nearest: heads")],
)
def test_a_broken_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_models(path)
    with pytest.raises(UsageError, match="cannot read"):
        load_models(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m = 3\n", "'m' is not a table"),
        ("[m]\nkind='gqa'\nheads='8'\nkv_heads=8\nvocab=9\nsource='s'\n", "heads is '8', not of type int"),
        ("[m]\nkind='odd'\nheads=8\nkv_heads=8\nvocab=9\nsource='s'\n", "kind is gqa or mla"),
        ("[m]\nkind='gqa'\nheads=-8\nkv_heads=8\nvocab=9\nsource='s'\n", "at least 1"),
    ],
)
def test_a_field_of_the_wrong_kind_is_one_clear_line(tmp_path, text, said):
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_models(path)
