"""Providers that say they can be refilled: what they are refilled with decides, which Triton's interpreter shows without a graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("refilling.py")


@pytest.mark.parametrize(
    ("name", "case", "asked"),
    [
        ("decode_attention", "b3-h6-kv2-s40-d16-fp32-ragged-longer", {"sglang_triton", "sglang_triton_normal", "sglang_triton_grouped"}),
        ("decode_attention", "b3-h6-kv2-s40-d16-pg8-fp32-ragged-longer", {"sglang_triton", "sglang_triton_normal", "sglang_triton_grouped"}),
        ("mla_decode", "b2-h5-s20-fp32-ragged-longer", {"sglang_triton"}),
        ("verify_attention", "b3-h6-kv2-n4-p40-d16-fp32-ragged-longer", {"sglang_triton", "sglang_triton_unified"}),
        ("verify_attention", "b3-h6-kv2-n4-p40-d16-fp32-tree-ragged-longer", {"sglang_triton", "sglang_triton_masked", "sglang_triton_unified"}),
    ],
)
def test_refilled_providers_give_what_their_buffers_say(name, case, asked):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}
    done = subprocess.run([sys.executable, str(SCRIPT), name, case], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert asked <= set(done.stdout.split())
