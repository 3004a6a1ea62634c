"""Providers that say they can be refilled: what they are refilled with decides, which Triton's interpreter shows without a graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("refilling.py")


CASES = (
    ("decode_attention", "b2-h4-kv2-s20-d16-fp32-ragged-longer", {"sglang_triton", "sglang_triton_normal", "sglang_triton_grouped"}),
    ("decode_attention", "b2-h4-kv2-s20-d16-pg8-fp32-ragged-longer", {"sglang_triton", "sglang_triton_normal", "sglang_triton_grouped"}),
    ("mla_decode", "b2-h2-s9-fp32-ragged-longer", {"sglang_triton"}),
    ("verify_attention", "b2-h4-kv2-n3-p20-d16-fp32-ragged-longer", {"sglang_triton", "sglang_triton_unified"}),
    ("verify_attention", "b2-h4-kv2-n3-p20-d16-fp32-tree-ragged-longer", {"sglang_triton", "sglang_triton_masked", "sglang_triton_unified"}),
)


def test_refilled_providers_give_what_their_buffers_say():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}
    asked = [word for name, case, _ in CASES for word in (name, case)]
    done = subprocess.run([sys.executable, str(SCRIPT), *asked], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = {case: set(providers) for case, *providers in map(str.split, done.stdout.splitlines())}
    assert all(providers <= said[case] for _, case, providers in CASES)
