"""Rows and kernels of a sweep as tests describe them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from harness.offline.codegen.rows import Kernel, Row, numbered
from harness.offline.codegen.rules import Finding
from harness.offline.targets import load_targets
from harness.selection import DEFAULT_CASES

TARGETS = load_targets(DEFAULT_CASES / "targets.toml")
GFX942 = TARGETS["gfx942"]
PLANTED = str(Path(__file__).with_name("planted_codegen.py"))
CELL = "mla_decode[sglang_triton-b2-h{}-s128-bf16]"
VERSIONS = {"sglang": "0.5.23", "triton": "3.7.1"}

QUIET = settings(deadline=None)  # other work may use the cores
sizes = st.integers(0, 512)
kernels = st.builds(
    Kernel,
    name=st.sampled_from(["_stage1", "_stage2"]),
    place=st.just("k.py:1"),
    registers=sizes,
    vector_spills=sizes,
    scalar_spills=sizes,
    scratch=sizes,
    shared=st.integers(0, 1 << 16),
    code=st.integers(0, 1 << 16),
    dots=st.integers(0, 3),
    matrix=st.dictionaries(st.sampled_from(["v_mfma_", "v_smfmac_"]), st.integers(1, 99)),
    fp8=st.sampled_from([(), ("e4m3fn",)]),
    digest=st.text("0123456789abcdef", min_size=4, max_size=4),
)
rows = st.builds(Row, cell=st.just(CELL.format(12)), target=st.just("gfx942"), status=st.just("compiled"), kernels=st.lists(kernels, max_size=4).map(numbered))


def row(*found: Kernel, heads: int = 12, **facts: str) -> Row:
    return Row(CELL.format(heads), "gfx942", **{"status": "compiled", **facts}, kernels=list(found))


def kernel(**figures: object) -> Kernel:
    return Kernel("_stage1", "k.py:1", **{"registers": 100, "dots": 2, "matrix": {"v_mfma_": 8}, "code": 9000, "shared": 8192, **figures})


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]
