"""The verdict ladder: which kernels ran, and which word a cell gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.selection import DEFAULT_CASES
from harness.speed.identity import Identity, identify
from harness.speed.ladder import FAILS, WORDS, climb
from harness.speed.suite import Judged
from harness.store.families import load_families

FAMILIES = load_families(DEFAULT_CASES / "kernels.toml")
FA3 = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(P)"
TRITON, REDUCE, ASM, ASM_REDUCE = "_fwd_grouped_kernel_stage1", "_fwd_kernel_stage2", "_ZN5aiter27mla_a16w16_qh16_m16x4_n16x1E", "_fwd_kernel_stage2_asm"
FILL = "void at::native::elementwise_kernel<128, 4, at::native::FillFunctor<float>>(x)"


def path(name: str) -> str:
    found = FAMILIES.of(name)
    return found.path if found else ""


def ran(*names: str, then=(), **more) -> Identity:
    return identify(names, identify(then, (), path).now, path, **more)


@pytest.mark.parametrize("verdict", ["same", "slow", "new", "host-bound", "ambiguous"])
@pytest.mark.parametrize(
    ("before", "after"), [((FA3,), (TRITON, REDUCE)), ((ASM, ASM_REDUCE), (TRITON, REDUCE)), ((FA3, FILL), (TRITON, FILL)), ((FA3,), (FA3, TRITON))]
)
def test_a_generic_kernel_in_place_of_a_fast_one_is_a_fallback_whatever_the_time(verdict, before, after):
    identity = ran(*after, then=before)
    assert climb(Judged(verdict), identity) == ("fallback", "a generic kernel took over")
    assert {"_fwd_grouped_kernel_stage1"} <= set(identity.now)
    assert identity.then


def test_a_generic_kernel_that_is_confirmed_faster_is_none():
    assert climb(Judged("fast"), ran(TRITON, REDUCE, then=(FA3,))) == ("rerouted", "other kernels, faster")


def test_a_triton_reducer_beside_the_fast_kernel_is_no_fallback():
    assert climb(Judged("same"), ran(ASM, ASM_REDUCE, then=(ASM, ASM_REDUCE)))[0] == "same"
    assert climb(Judged("same"), ran(ASM_REDUCE, ASM, then=(ASM, ASM_REDUCE)))[0] == "same"
    assert climb(Judged("same"), ran(TRITON, then=(TRITON, REDUCE)))[0] == "rerouted"


@pytest.mark.parametrize(
    ("verdict", "word"), [("same", "rerouted"), ("ambiguous", "rerouted"), ("fast", "rerouted"), ("slow", "fallback"), ("host-bound", "rerouted")]
)
def test_other_kernels_of_the_same_kind(verdict, word):
    fa2 = "void pytorch_flash::flash_fwd_kernel<T>(P)"
    assert climb(Judged(verdict), ran(fa2, then=(FA3,)))[0] == word


@pytest.mark.parametrize("then", [(), (TRITON,)])
def test_names_that_must_and_must_not_run_need_no_baseline(then):
    lacking = ran(TRITON, then=then, must=["FlashAttnFwdSm", "^_fwd_grouped"])
    assert (lacking.lacking, climb(Judged("new"), lacking)) == (("FlashAttnFwdSm",), ("fallback", "no kernel fits FlashAttnFwdSm"))
    unwanted = ran(FA3, TRITON, then=(FA3, TRITON) if then else (), must=["FlashAttnFwdSm"], never=["^_fwd_"])
    assert climb(Judged("same"), unwanted) == ("fallback", "_fwd_grouped_kernel_stage1 must not run")
    assert climb(Judged("same"), ran(FA3, must=["FlashAttnFwdSm"], never=["^_fwd_"]))[0] == "same"


def test_a_must_have_name_is_found_in_a_mangled_name_too():
    assert not ran(ASM, must=["_ZN5aiter27mla_a16w16_qh16_m16x4_n16x1E"]).lacking
    assert not ran(ASM, must=["^aiter::mla_a16w16_qh16"]).lacking


def test_a_name_of_no_family_is_unclassified_unless_it_was_accepted():
    assert climb(Judged("same"), ran("quick_attention", then=(FA3,)))[0] == "unclassified"
    assert climb(Judged("same"), ran("quick_attention", then=("quick_attention",)))[0] == "same"
    assert climb(Judged("new"), ran("quick_attention")) == ("new", "no reviewed family has quick_attention")
    assert climb(Judged("slow"), ran("quick_attention", then=(FA3,)))[0] == "fallback"


def test_what_no_profiler_showed_is_not_judged_by_its_names():
    assert climb(Judged("same"), ran(then=(FA3,), must=["FlashAttnFwdSm"], never=["."]))[0] == "same"


def test_steps_and_modes_come_after_what_the_baseline_says():
    assert climb(Judged("same"), ran(FA3, then=(FA3,)), cliff="heads 12 -> 16")[0] == "cliff"
    assert climb(Judged("slow"), ran(FA3, then=(FA3,)), cliff="heads 12 -> 16")[0] == "slow"
    assert climb(Judged("new"), ran(FA3, then=(FA3,)), mode="graph then, eager now") == ("ambiguous", "graph then, eager now")
    assert climb(Judged("gone"), Identity())[0] == "gone"


kernels = st.lists(st.sampled_from([FA3, TRITON, REDUCE, ASM, ASM_REDUCE, FILL, "quick_attention"]), max_size=4)


@given(kernels, kernels, st.sampled_from(["same", "slow", "fast", "new", "ambiguous", "host-bound", "gone"]))
def test_every_cell_has_a_word_and_what_did_not_change_keeps_its_own(now, then, verdict):
    word, _ = climb(Judged(verdict), ran(*now, then=then))
    assert word in WORDS
    assert climb(Judged(verdict), ran(*now, then=now))[0] == verdict
    if verdict == "slow":
        assert word in FAILS
