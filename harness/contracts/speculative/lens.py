"""Bookkeeping of DSPARK's acceptance: cap_len, finalize_lens and select_mixed."""

from __future__ import annotations

from harness.contracts._torch import torch
from harness.contracts.axes import Case, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.rows import row_by_row
from harness.contracts.speculative.chain import BATCH

WIDTH = words("width", ("i32", "i64"), "integer width of the lengths of sequences and budgets", default="i32")


def _lens(draw: Draw, batch: int, high: int, width: str = "i32") -> torch.Tensor:
    return draw.integers(batch, low=0, high=high).to(torch.int64 if width == "i64" else torch.int32)


@contract("speculative")
class dspark_cap_len:
    """Cut accepted drafts to a verify budget: correct_len int32, verify_lens int32 or int64 (at least 1) [batch] -> capped int32
    min(correct_len, verify_lens - 1), trim int32 correct_len - capped."""

    axes = (BATCH, WIDTH)
    outputs = ("capped", "trim")
    relations = row_by_row("batch", "correct_len", "verify_lens")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, correct_len=_lens(draw, case.batch, 9), verify_lens=_lens(draw, case.batch, 9, case.width) + 1)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        capped = torch.minimum(x.correct_len.long(), x.verify_lens.long() - 1)
        return {"capped": Exact(capped), "trim": Exact(x.correct_len.long() - capped)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        pairs = list(zip(x.correct_len.tolist(), x.verify_lens.tolist(), strict=True))
        return {"capped": torch.tensor([min(n, k - 1) for n, k in pairs]), "trim": torch.tensor([max(0, n - k + 1) for n, k in pairs])}

    def work(self, case: Case) -> Work:
        return Work(2 * case.batch, 16 * case.batch)


@contract("speculative")
class dspark_finalize_lens:
    """What a step commits: correct_len, cap_trim_lens int32, prefix_lens int32 or int64 [batch] -> commit_lens int32 correct_len + 1,
    new_seq_lens prefix_lens + commit_lens in its dtype, trim int32 as it was."""

    axes = (BATCH, WIDTH)
    outputs = ("commit_lens", "new_seq_lens", "trim")
    relations = row_by_row("batch", "correct_len", "cap_trim_lens", "prefix_lens")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        prefix = _lens(draw, case.batch, 1 << 30, case.width)
        return Inputs(case, draw.device, correct_len=_lens(draw, case.batch, 9), cap_trim_lens=_lens(draw, case.batch, 4), prefix_lens=prefix)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        commit = x.correct_len.long() + 1
        return {
            "commit_lens": Exact(commit, dtype=torch.int32),
            "new_seq_lens": Exact(x.prefix_lens.long() + commit, dtype=x.prefix_lens.dtype),
            "trim": Exact(x.cap_trim_lens.long(), dtype=torch.int32),
        }

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        commit = [n + 1 for n in x.correct_len.tolist()]
        lens = [old + n for old, n in zip(x.prefix_lens.tolist(), commit, strict=True)]
        trim = torch.tensor(x.cap_trim_lens.tolist(), dtype=torch.int32)
        return {"commit_lens": torch.tensor(commit, dtype=torch.int32), "new_seq_lens": torch.tensor(lens, dtype=x.prefix_lens.dtype), "trim": trim}

    def work(self, case: Case) -> Work:
        return Work(2 * case.batch, 24 * case.batch)


@contract("speculative")
class dspark_select_mixed:
    """Greedy results where greedy_mask is true, sampled ones elsewhere: greedy_ and sampling_ len int32, bonus int64, trim int32 [batch]
    -> correct_len, bonus, cap_trim_lens."""

    axes = (BATCH,)
    outputs = ("correct_len", "bonus", "cap_trim_lens")
    relations = row_by_row("batch", "greedy_mask", *(f"{kind}_{part}" for kind in ("greedy", "sampling") for part in ("len", "bonus", "trim")))

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        made: dict[str, torch.Tensor] = {"greedy_mask": draw.integers(case.batch, low=0, high=2).bool()}
        for kind in ("greedy", "sampling"):
            made[f"{kind}_len"] = _lens(draw, case.batch, 9)
            made[f"{kind}_bonus"] = _lens(draw, case.batch, 163840, "i64")
            made[f"{kind}_trim"] = _lens(draw, case.batch, 4)
        return Inputs(case, draw.device, **made)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        pairs = zip(self.outputs, ("len", "bonus", "trim"), strict=True)
        return {name: Exact(getattr(x, f"sampling_{part}").where(~x.greedy_mask, getattr(x, f"greedy_{part}"))) for name, part in pairs}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        made = {}
        for name, part in zip(self.outputs, ("len", "bonus", "trim"), strict=True):
            rows = zip(x.greedy_mask.tolist(), getattr(x, f"greedy_{part}").tolist(), getattr(x, f"sampling_{part}").tolist(), strict=True)
            made[name] = torch.tensor([greedy if mask else sampled for mask, greedy, sampled in rows])
        return made

    def work(self, case: Case) -> Work:
        return Work(3 * case.batch, 49 * case.batch)
