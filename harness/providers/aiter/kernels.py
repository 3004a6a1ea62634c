"""Which kernels a case must lead to, from the gate tables and `kernels.toml`. A kernel that is not among them is no proof of anything."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.contracts import Case
from harness.providers.aiter.gates import flavours
from harness.providers.aiter.known import facts_here

Kernels = Callable[[Case, str], tuple[str, ...]]


@functools.cache
def _named() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((Path(__file__).parent / "kernels.toml").read_text())


def always(entry: str) -> Kernels:
    """Of an entry point whose kernel does not depend on the case."""
    return lambda case, arch: _any(_named()[entry]["must"])


def split_decode(heads: Callable[[int], int]) -> Kernels:
    """Of `mla_decode_fwd` without metadata: the first stage from the tables, then the merge (left out when there is one split)."""

    def named(case: Case, arch: str) -> tuple[str, ...]:
        q, kv = flavours(case)
        outcome = facts_here().outcome("mla_decode_stage1", heads(case.heads), case.queries, arch=arch, q=q, kv=kv, ps=0, lse=0)
        return (outcome.kernel,) if outcome.kernel else ()

    return named


def persistent_decode(heads: Callable[[int], int], lse: bool) -> Kernels:
    """Of `mla_decode_fwd` with metadata. From a batch on that the wrapper fixes it drops the metadata, and the split kernel runs."""

    def named(case: Case, arch: str) -> tuple[str, ...]:
        facts, (q, kv), count = facts_here(), flavours(case), heads(case.heads)
        most = facts.data["constants"].get("_MLA_DECODE_PERSISTENT_MAX_BATCH_DEFAULT", {}).get("value", 0)
        if most and (arch, q, kv, count, case.queries) == ("gfx950", "bf16", "bf16", 16, 1) and case.batch >= most:
            return split_decode(heads)(case, arch)
        fixed = {"arch": arch, "q": q, "kv": kv}
        folded = (facts.look("mla_decode_fwd_persistent", count, case.queries, **fixed) or {}).get("takes") == "fold"
        asked = int(lse and facts.look("mla_decode_stage1", 16, 1, ps=1, lse=1) is not None)
        kernel = facts.outcome("mla_decode_stage1", 16 if folded else count, case.queries, **fixed, ps=1, lse=asked).kernel
        return (kernel, *_named()["mla_decode_fwd_persistent"]["also"]) if kernel else ()

    return named


def absorbed_prefill(heads: Callable[[int], int]) -> Kernels:
    """Of `mla_prefill_fwd`."""

    def named(case: Case, arch: str) -> tuple[str, ...]:
        kernel = facts_here().outcome("mla_prefill", heads(case.heads), arch=arch, q=case.dtype, kv=case.dtype, causal=0).kernel
        return (kernel,) if kernel else ()

    return named


def explicit_prefill(case: Case, arch: str) -> tuple[str, ...]:
    """Of the fp8 prefill of 192/128."""
    kernel = facts_here().outcome("mla_prefill_ps", 1, arch=arch, q="fp8", kv="fp8", causal=1).kernel
    return (kernel, *_named()["mla_prefill_ps"]["also"]) if kernel else ()


def varlen(dims: Callable[[Case], tuple[int, int]], flag: Callable[[Case], str]) -> Kernels:
    """Of `flash_attn_varlen_func`, by its route for these head dimensions and this flag."""

    def named(case: Case, arch: str) -> tuple[str, ...]:
        for row in facts_here().data["tables"]["varlen"]:
            if (row["arch"], row["dtype"], tuple(row["dims"]), row["flag"]) == (arch, case.dtype, dims(case), flag(case)):
                return _any(_named()[row["route"]]["must"])
        return ()

    return named


def paged_asm(case: Case, arch: str) -> tuple[str, ...]:
    """Of `pa_fwd_asm`: any kernel of the table for the group."""
    group, (q, kv) = case.heads // case.kv_heads, flavours(case)
    wanted = {group, -(-group // 8) * 8}
    rows = facts_here().data["tables"]["pa"]
    return _any([row["kernel"] for row in rows if (row["arch"], row["q"], row["kv"]) == (arch, q, kv) and row["group"] in wanted])


def _any(names: Sequence[str]) -> tuple[str, ...]:
    """One pattern that any of the names fits, or nothing of none."""
    return ("|".join(names),) if names else ()
