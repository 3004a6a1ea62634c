"""Routes: a changed gate, name or table of SGLang does not pass unseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from surveys import FACTS, GATE, one, source

from harness.offline.routes.known import hold, unknowns
from harness.offline.routes.survey import compare
from harness.offline.sources import Source


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Source]:
    """The 0.5.23 sources with one file changed; the others are links."""

    def make(relative: str, *changes: tuple[str, str]) -> Source:
        original = source("0.5.23").root
        where = tmp_path
        for part in Path(relative).parts:
            at = original / where.relative_to(tmp_path)
            for sibling in at.iterdir() if where != tmp_path else [original / "sglang"]:
                if sibling.name != part:
                    (where / sibling.name).symlink_to(sibling)
            where = where / part
            if part != Path(relative).name:
                where.mkdir()
        text = (original / relative).read_text()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        where.write_text(text)
        return Source("sglang", "0.5.23", tmp_path)

    return make


_DEFAULT = "sglang/srt/arg_groups/model_override_base.py"


def test_a_widened_gate_is_seen(edited: Callable[..., Source]) -> None:
    found = one(edited(_DEFAULT, (GATE, GATE + " or head_num == 12")), "kimi-k3", 8)
    assert (found.routes[0].backend, found.routes[0].fast) == ("aiter", True)
    assert [finding.kind for finding in hold(found.routes, FACTS.known, "0.5.23")] == ["gone"]


def test_a_narrowed_gate_is_a_new_finding(edited: Callable[..., Source]) -> None:
    found = one(edited(_DEFAULT, (GATE, "head_num == 128")), "kimi-k2", 4)
    assert found.routes[0].gates[0].condition == "head_num == 128"
    assert [finding.kind for finding in hold(found.routes, FACTS.known, "0.5.23")] == ["new"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("elif get_platform().is_hip:\n            head_num", "elif get_platform().has_matrix_cores:\n            head_num", "has_matrix_cores"),
        ("elif get_platform().is_hip:\n            head_num", "elif brand_new_probe():\n            head_num", "brand_new_probe"),
        ("def get_default_attn_backend(", "def choose_attn_backend(", "get_default_attn_backend"),
        ("cfg.tp_size)", "cfg.head_parallel_size)", "head_parallel_size"),
    ],
)
def test_an_unknown_form_is_a_row_that_says_so(edited: Callable[..., Source], old: str, new: str, says: str) -> None:
    found = one(edited(_DEFAULT, (old, new)), "kimi-k3", 8)
    assert (found.routes[0].fast, found.routes[0].backend) == (None, "unknown")
    assert says in found.routes[0].stopped
    assert [finding.kind for finding in hold(found.routes, FACTS.known, "0.5.23")] == ["unknown"]


def test_a_lost_platform_guard_of_verify_is_seen(edited: Callable[..., Source]) -> None:
    file = "sglang/srt/speculative/eagle_utils.py"
    found = one(edited(file, ("or (is_hip and not use_rejection_sampling)", "or is_hip")), "kimi-k3", 8)
    assert {row.answer for row in found.sampling if "verify" in row.question} == {"argmax"}
    worse = compare(one(source("0.5.23"), "kimi-k3", 8), found)
    assert [(row["what"], row["worse"]) for row in worse] == [("speculative verify, EAGLE, a chain", True)]


def test_a_head_gate_that_changes_is_seen(edited: Callable[..., Source]) -> None:
    file = "sglang/srt/layers/attention/aiter_backend.py"
    found = one(edited(file, ("self.num_head_padded = 16 if self.num_head < 16 else", "self.num_head_padded = 12 if self.num_head == 12 else")), "kimi-k3", 8)
    assert {row.padded for _, row in found.heads if row.place == "aiter decode, bf16 KV" and row.heads == 12} == {12}
    assert any(row["where"] == "gfx950 12 heads" for row in compare(one(source("0.5.23"), "kimi-k3", 8), found))


def test_a_constructor_of_another_form_is_a_row(edited: Callable[..., Source]) -> None:
    file = "sglang/srt/layers/attention/aiter_backend.py"
    found = one(edited(file, ("        if self.use_mla:\n            _mla_low", "        if self.is_mla():\n            _mla_low")), "kimi-k3", 8)
    assert {row.accepted for _, row in found.heads if row.place.startswith("aiter decode")} == {None}
    assert "not recognised" in found.routes[0].remedy


def test_a_stale_table_is_seen(edited: Callable[..., Source]) -> None:
    file = "sglang/srt/layers/attention/aiter_backend.py"
    found = one(edited(file, ("128: frozenset({1, 2, 4, 8, 10, 16,", "128: frozenset({1, 2, 4, 8, 10, 12, 16,")), "kimi-k3", 8)
    assert [drift.foreign for drift in found.drifts if drift.dim == 128 and "e404" in drift.aiter] == [[12]]
    prefill = next(row for _, row in found.heads if row.place == "aiter fp8 prefill" and row.heads == 12)
    assert prefill.padded == 12
    assert any("e404" in label for label in prefill.aborts)


_AITER = "sglang/srt/layers/attention/aiter_backend.py"


@pytest.mark.parametrize(
    ("file", "change", "question", "says"),
    [
        (_AITER, ("self.num_head_padded = 16 if", "self.heads_padded = 16 if"), "aiter decode, bf16 KV", "num_head_padded"),
        (
            _AITER,
            ("        if self.use_mla:\n            _mla_low", "        if self.is_mla():\n            _mla_low"),
            "aiter decode, fp8 KV",
            "not recognised",
        ),
        (_AITER, ("def check_fp8_prefill_num_head(", "def check_fp8_heads("), "aiter fp8 prefill", "check_fp8_prefill_num_head"),
        (_AITER, ("supported = _MLA_REDUCE_V1_HEADS.get", "supported = brand_new_table.get"), "aiter fp8 prefill", "brand_new_table"),
        ("sglang/srt/layers/attention/dsa_backend.py", ("self.need_pad_heads = ", "self.pads = "), "dsa", "need_pad_heads"),
        ("sglang/srt/speculative/eagle_utils.py", ("or (is_hip and not", "or (is_rocm_like and not"), "speculative verify, EAGLE3, a chain", "is_rocm_like"),
        (
            "sglang/srt/arg_groups/speculative_hook.py",
            ("def _should_auto_enable_hip_rejection_sampling(", "def _should_enable("),
            "speculative verify, EAGLE, a chain",
            "turns it on",
        ),
        ("sglang/srt/arg_groups/overrides.py", ("def _sampling_backend_default(", "def _sampler("), "sampling backend by default", "known form"),
    ],
)
def test_a_decision_of_another_form_is_a_finding_and_worse(edited: Callable[..., Source], file: str, change: tuple[str, str], question: str, says: str) -> None:
    found = one(edited(file, change), "kimi-k3", 8)
    assert [finding.text for finding in unknowns(found) if finding.model == question and says in finding.text]
    assert any(row["worse"] and row["what"] == question for row in compare(one(source("0.5.23"), "kimi-k3", 8), found))
    assert not unknowns(one(source("0.5.23"), "kimi-k3", 8))


def test_a_route_that_is_not_known_any_more_is_worse(edited: Callable[..., Source]) -> None:
    found = one(edited(_DEFAULT, ("def get_default_attn_backend(", "def choose_attn_backend(")), "kimi-k3", 8)
    assert [row["worse"] for row in compare(one(source("0.5.23"), "kimi-k3", 8), found) if row["what"] == "route of kimi-k3"] == [True]
