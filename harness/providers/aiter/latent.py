"""What AITER's MLA entry points on the paged latent cache share, and the absorbed prefill; plain, and with heads padded or repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.providers.aiter import gates, kernels
from harness.providers.aiter.gates import padded, repeated, unchanged
from harness.providers.aiter.known import ARCHES, facts_here
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.words import plural

ROCM = {"rocm"}


def bf16(case: Case) -> str | None:
    """Its reason for other dtypes."""
    return None if case.dtype == "bf16" else "AITER's MLA takes bf16 and fp8"


def needs(widen: Callable[[int], int], accepts: Callable[[Case], str | None], check: gates.Check) -> Callable[[Case], str | None]:
    """`accepts`, and that the remedy changes the number of heads. check: the gate with the remedy's heads, which here are the case's own."""
    return lambda case: accepts(case) or (None if widen(case.heads) != case.heads else _unhelped(case, check, "repeated" if widen is repeated else "padded"))


def _unhelped(case: Case, check: gates.Check, how: str) -> str:
    """Why the remedy leaves the heads as they are: the kernel takes them so, or refuses them on some architectures of those that read the case's fp8."""
    facts = facts_here()
    asked = [arch for arch in ARCHES if not gates.wrong_flavour(case, arch)]
    refusing = [arch for arch in asked if check(facts, case, arch)]
    where = "" if refusing == asked else f" on {', '.join(refusing)}"
    helpless = f"cannot be {how} to a count that the kernel takes{where}"
    return f"{plural(case.heads, 'head')} {helpless if refusing else 'needs no remedy' if case.heads == 1 else 'need no remedy'}"


def last_page(x: Any) -> Any:
    """int32 [batch]: tokens in each request's last page, 0 for a request without keys."""
    import torch

    page = x.case.page
    return torch.where(x.kv_len > 0, (x.kv_len - 1) % page + 1, 0).to(torch.int32)


class Latent:
    """Queries in the kernel's number of heads, the pool [pages, page, 1, 576], the output [tokens, heads, 512] bf16."""

    widen: Callable[[int], int] = staticmethod(unchanged)
    repeats = False
    lse = False

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        heads = self.widen(x.case.heads)
        self.x, self.heads = x, heads
        self.q = x.q if heads == x.case.heads else self.widened(x.q, heads, scratch)
        self.kv = x.kv.unsqueeze(2)
        self.last = last_page(x)
        self.o = scratch.empty(x.q.shape[0], heads, 512, dtype=torch.bfloat16)

    def widened(self, q: Any, heads: int, scratch: Any) -> Any:
        """Each head repeated in turn, or zero heads after them."""
        if self.repeats:
            return q.repeat(1, heads // q.shape[1], 1)
        wide = scratch.empty(q.shape[0], heads, q.shape[2], dtype=q.dtype).zero_()
        wide[:, : q.shape[1]] = q
        return wide

    def given(self, lse: Any) -> Any:
        """The outputs of the case's own heads."""
        kept = self.x.case.heads
        o = self.o[:, :kept].contiguous()
        return {"o": o, "lse": lse[:, :kept].contiguous()} if self.lse else {"o": o}


class Prefill(Latent):
    """mla_prefill_fwd: bf16, one pass over each request's keys."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.attend = resolve("aiter.mla:mla_prefill_fwd")

    def run(self) -> Any:
        x = self.x
        o, lse = self.attend(self.q, self.kv, self.o, x.qo_indptr, x.kv_indptr, x.kv_indices, self.last, max(x.q_len), sm_scale=x.scale)
        self.o = o
        return self.given(lse.view(o.shape[0], self.heads) if self.lse else None)


def _prefill(name: str, widen: Callable[[int], int] = unchanged) -> Callable[[Any], Any]:
    check = gates.absorbed_prefill(widen)
    return implements(
        "mla_prefill_absorbed",
        library="aiter",
        name=name,
        platforms=ROCM,
        accepts=bf16 if widen is unchanged else needs(widen, bf16, check),
        gate=gates.by_arch(check),
        kernels=kernels.absorbed_prefill(widen),
    )


@_prefill("aiter_asm")
class PrefillPlain(Prefill):
    """The case's own heads."""


@_prefill("aiter_asm_lse")
class PrefillLse(Prefill):
    """With the log-sum-exp that it returns."""

    lse = True


@_prefill("aiter_asm_pad", padded)
class PrefillPad(Prefill):
    """Zero heads added up to 16 or 128."""

    widen = staticmethod(padded)


@_prefill("aiter_asm_repeat", repeated)
class PrefillRepeat(Prefill):
    """Heads repeated until there are 16."""

    widen = staticmethod(repeated)
    repeats = True
