"""Which cases AITER's own dispatch refuses, by the gate tables: each answer names the check, its file and line, and what it does.

A gate takes a case and the architecture; an unknown architecture ("") is refused only where every one is, and one that the tables do
not hold never.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.contracts import Case
from harness.contracts.inputs import FLAVOURS, flavour_of
from harness.contracts.mla.absorbed import ALL_FP8
from harness.providers.aiter.known import ARCHES, Facts, Outcome, facts_here
from harness.words import plural

Gate = Callable[[Case, str], str | None]
Check = Callable[[Facts, Case, str], str]


def by_arch(check: Check) -> Gate:
    """A gate from a check of one architecture that returns the reason, or an empty string."""

    def gate(case: Case, arch: str) -> str | None:
        if arch and arch not in ARCHES:
            return None
        facts = facts_here()
        reasons = {name: check(facts, case, name) for name in ([arch] if arch else ARCHES)}
        if not all(reasons.values()):
            return None
        said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return f"AITER {facts.label}, {said}"

    return gate


def flavours(case: Case) -> tuple[str, str]:
    """The words of the tables for the dtypes of queries and cache."""
    cache = case.point.get("cache", "samekv")
    q = "fp8" if cache in ALL_FP8 else str(case.dtype)
    return q, "fp8" if cache != "samekv" else q


def wrong_flavour(case: Case, arch: str) -> str:
    """The reason where the case's fp8 is not the one that the architecture's kernels read."""
    cache = case.point.get("cache", "samekv")
    own = flavour_of(arch)
    return "" if cache == "samekv" or cache in FLAVOURS[own] else f"its kernels read {own}, the case has the other fp8"


def said(outcome: Outcome, what: str) -> str:
    """A refusal in words, or an empty string."""
    return f"{what} ({outcome.refused}, which {'aborts the process' if outcome.aborts else 'raises'})" if outcome.refused else ""


def _reduce(facts: Facts, heads: int, dim: int) -> str:
    if facts.reduces(heads, dim):
        return ""
    native = facts.data["native"]["mla_reduce_v1"]
    does = "aborts the process" if native["refusal"] == "abort" else "raises"
    return f"mla_reduce_v1 is not built for {plural(heads, 'head')} of {dim} ({native['file']}, which {does})"


def split_decode(heads: Callable[[int], int]) -> Check:
    """The gate of `mla_decode_fwd` without metadata, with the heads that a remedy makes of the case's."""

    def check(facts: Facts, case: Case, arch: str) -> str:
        count, (q, kv) = heads(case.heads), flavours(case)
        if reason := wrong_flavour(case, arch):
            return reason
        keys = facts.data["constants"]["get_block_n_fp8"]
        if q == "fp8" and str(count * case.queries) not in keys["value"]:
            return f"the fp8 block table has no {plural(count * case.queries, 'row')} a request ({keys['file']}:{keys['line']}, a KeyError)"
        outcome = facts.outcome("mla_decode_stage1", count, case.queries, arch=arch, q=q, kv=kv, ps=0, lse=0)
        return said(outcome, f"no first-stage kernel for {plural(count, 'head')} and {plural(case.queries, 'query')} of {q}/{kv}")

    return check


def persistent_decode(heads: Callable[[int], int], lse: bool) -> Check:
    """The gates of `mla_decode_fwd` with metadata, in the order they are met: buffer sizes, metadata, wrapper, kernel, reduction."""

    def check(facts: Facts, case: Case, arch: str) -> str:
        count, (q, kv) = heads(case.heads), flavours(case)
        fixed = {"arch": arch, "q": q, "kv": kv}
        if reason := wrong_flavour(case, arch):
            return reason
        for table, what, point in (
            ("mla_metadata_sizes", "no buffer sizes", {}),
            ("mla_metadata", "no metadata", fixed),
            ("mla_decode_fwd_persistent", "mla_decode_fwd takes no metadata", fixed),
        ):
            outcome = facts.outcome(table, count, case.queries if point else 0, **point)
            if outcome.refused:
                return said(outcome, f"{what} for {plural(count, 'head')}")
        folded = (facts.look("mla_decode_fwd_persistent", count, case.queries, **fixed) or {}).get("takes") == "fold"
        kernel_heads = 16 if folded else count
        asked = int(lse and facts.look("mla_decode_stage1", 16, 1, ps=1, lse=1) is not None)
        outcome = facts.outcome("mla_decode_stage1", kernel_heads, case.queries, **fixed, ps=1, lse=asked)
        if outcome.refused:
            wanted = " with a log-sum-exp" if asked else ""
            return said(outcome, f"no persistent kernel{wanted} for {plural(kernel_heads, 'head')} and {plural(case.queries, 'query')} of {q}/{kv}")
        return _reduce(facts, kernel_heads, 512)

    return check


def absorbed_prefill(heads: Callable[[int], int]) -> Check:
    """The gate of `mla_prefill_fwd`."""

    def check(facts: Facts, case: Case, arch: str) -> str:
        count = heads(case.heads)
        return said(facts.outcome("mla_prefill", count, arch=arch, q=case.dtype, kv=case.dtype, causal=0), f"mla_prefill_fwd takes no {plural(count, 'head')}")

    return check


def explicit_prefill(heads: Callable[[int], int]) -> Check:
    """The gates of the fp8 prefill of 192/128: its kernel (one KV head a query head), then the reduction."""

    def check(facts: Facts, case: Case, arch: str) -> str:
        outcome = facts.outcome("mla_prefill_ps", 1, arch=arch, q="fp8", kv="fp8", causal=1)
        if outcome.refused:
            return said(outcome, "no fp8 prefill kernel")
        return _reduce(facts, heads(case.heads), case.v_dim)

    return check


def reduction(facts: Facts, case: Case, arch: str) -> str:
    """The gate of `mla_reduce_v1` alone."""
    return _reduce(facts, case.heads, case.dim)


def paged_asm(facts: Facts, case: Case, arch: str) -> str:
    """The gate of `pa_fwd_asm`: a kernel for the query heads of a KV head, or for that count rounded up to eight."""
    group = case.heads // case.kv_heads
    wanted = {group, -(-group // 8) * 8}
    q, kv = flavours(case)
    rows = [row for row in facts.data["tables"]["pa"] if (row["arch"], row["q"], row["kv"]) == (arch, q, kv) and row["group"] in wanted]
    if rows:
        return ""
    native = facts.data["native"]["pa_fwd"]
    does = "aborts the process" if native["refusal"] == "abort" else "raises"
    return f"pa_fwd_asm has no kernel for {plural(group, 'query head')} a KV head ({native['file']}, which {does})"


def unchanged(heads: int) -> int:
    """No remedy."""
    return heads


def padded(heads: int) -> int:
    """Zero heads added up to 16, or to 128 above that: the counts that the absorbed kernels are built for."""
    return 16 if heads <= 16 else 128


def to_sixteens(heads: int) -> int:
    """Zero heads added up to a multiple of 16."""
    return -(-heads // 16) * 16


def repeated(heads: int) -> int:
    """Every head repeated until there are 16 of them; for divisors of 16."""
    return 16 if 16 % heads == 0 else heads


def next_reduced(dim: int) -> Callable[[int], int]:
    """The next head count that `mla_reduce_v1` is built for at this value dimension."""

    def widened(heads: int) -> int:
        built = [h for h, d in facts_here().data["tables"]["mla_reduce"] if d == dim and h >= heads]
        return min(built, default=heads)

    return widened
