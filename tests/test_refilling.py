"""Providers that say they can be refilled: what they are refilled with decides, which Triton's interpreter shows without a graph."""

from __future__ import annotations

import os

import pytest
import torch

os.environ.update(TRITON_INTERPRET="1", TORCHDYNAMO_DISABLE="1")

from harness.contracts import make_inputs, op
from harness.machine.memory import Scratch
from harness.providers import providers_of

REFILLED = {  # providers that can be asked on a CPU, by op
    "decode_attention": ("b3-h6-kv2-s40-d16-fp32-ragged-longer", "b3-h6-kv2-s40-d16-pg8-fp32-ragged-longer"),
    "mla_decode": ("b2-h5-s20-fp32-ragged-longer",),
    "verify_attention": ("b3-h6-kv2-n4-p40-d16-fp32-ragged-longer", "b3-h6-kv2-n4-p40-d16-fp32-tree-ragged-longer"),
}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in REFILLED.items() for case in cases])
def test_refilled_providers_give_what_their_buffers_say(name, case):
    """Without a graph: the longest call, the shortest and the longest again in the buffers of one."""
    declared = op(name)
    case = declared.axes.parse(case)
    law = declared.relation(case)
    x = make_inputs(case, "cpu")
    asked = 0
    for provider in providers_of(name):
        if "interpret" not in provider.platforms or provider.declines(case, "interpret") or "splitkv" in provider.name:
            continue  # splits without work give NaN, which the ledger has
        made, scratch = provider.make(), Scratch("cpu")
        made.prepare(law.vary(x, {})[0], scratch)
        for given in (x, law.captured(x), x):
            made.refill(given)
            made.run()
            golden = declared.impl.reference(given, provider.semantics_on("interpret"))["o"].value
            torch.testing.assert_close(scratch.outputs["o"].double(), golden, rtol=1e-4, atol=1e-5)
        asked += 1
    assert asked >= 2
