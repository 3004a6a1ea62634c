"""What served cells take of a machine's memory, before any of it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from harness.contracts import Case
from harness.contracts.mla.absorbed import ROPE, WIDTH
from harness.errors import UsageError

_HASHED = 24  # bytes an element while it is drawn: its 64 bits, the sum of their fields so far, and the next field (contracts.inputs)


def least_bytes(case: Case) -> int:
    """Bytes that a served cell holds at once, at the least: those of its largest tensor while that is drawn."""
    point = case.point
    queries = point.get("new") or point.get("nodes") or point.get("queries", 1)
    keys = point["length"] if "length" in point else point.get("prefix", 0) + queries
    batch = point["batch"]
    if case.op == "mla_prefill":
        return _HASHED * batch * keys * point["heads"] * (point["nope"] + ROPE)
    pages = batch * -(-keys // point["page"])
    slots = (pages + max(2, pages // 4)) * point["page"]  # as contracts.paging.page_table has them
    dim, kv_heads = (point["dim"], point["kv_heads"]) if "dim" in point else (WIDTH, 1)
    return _HASHED * max(slots * kv_heads, batch * queries * point["heads"]) * dim


def memory(facts: Mapping[str, str]) -> int:
    """Bytes of the device with these facts, or without any of this machine."""
    if "memory_mib" in facts:
        return int(facts["memory_mib"]) << 20
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def refuse_too_large(cases: Mapping[Case, str], facts: Mapping[str, str]) -> None:
    """Raises UsageError for the largest of the cases, with the words that it was asked for in, where it cannot be held here."""
    sizes = {case: least_bytes(case) for case in cases}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    room = memory(facts)
    if largest is not None and sizes[largest] > room:
        where = f"{facts['name']} has" if "name" in facts else "this machine has"
        raise UsageError(f"{cases[largest]} takes at least {_gib(sizes[largest])} of memory and {where} {_gib(room)}: give smaller sizes")


def _gib(count: int) -> str:
    return f"{count / 2**30:,.0f} GiB"
