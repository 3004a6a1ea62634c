"""indexer_topk, topk_page_table and valid_kv_indices: from the indexer's scores to the slots that sparse attention reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Exact, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided, varied
from harness.contracts.relations.requests import bounds
from harness.contracts.relations.rows import row_by_row
from harness.contracts.relations.tables import backwards

SCORES = ("random", "ties", "flat", "narrow", "wide")


def _scores(case: Case, draw: Draw) -> torch.Tensor:
    """fp32 [rows, width]. ties: whole numbers; flat: all 0.5; narrow: in [1, 1 + 2^-4), one 8-bit bucket of their fp16 form; wide: up to 6e4."""
    rows, width = case.rows, case.length + (7 if case.starts == "offset" else 0)
    if case.values == "flat":
        return torch.full((rows, width), 0.5, device=draw.device)
    if case.values == "narrow":
        return 1 + draw.uniform(rows, width) * 2.0**-4
    scores = draw.normal(rows, width, scale=4.0)
    return {"ties": torch.round(scores), "wide": scores * 4096}.get(case.values, scores)


@contract("sparse")
class indexer_topk:
    """The k best-scored tokens of each row among its first `lengths` (after `row_starts`), in any order.

    scores fp32 [rows, width]; lengths int32 [rows]; row_starts int32 [rows] or None -> indices int32 [rows, k], relative to
    the row's start; a row shorter than k fills up with -1, anywhere. Of equal scores at the k-th place any may be taken.
    """

    axes = (
        number("rows", "r", "query tokens", least=0),
        number("length", "s", "longest row in tokens", search=(1, 40_000)),
        number("k", "k", "tokens picked", default=2048, search=(1, 2112)),
        words("lengths", ("equal", "ragged", "emptyrows"), "rows all as long as length; hashed lengths; every third row empty", default="equal"),
        words("starts", ("aligned", "offset"), "offset: rows start at 0 to 7 (prefill over packed keys)", default="aligned"),
        words("values", SCORES, "input family", default="random"),
    )
    outputs = ("indices",)
    relations = {**row_by_row("rows", "scores", "lengths", "row_starts"), "strided": strided("scores")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        lengths = draw.integers(case.rows, low=1, high=case.length + 1)
        if case.lengths == "equal":
            lengths.fill_(case.length)
        elif case.lengths == "emptyrows":
            lengths[::3] = 0
        starts = draw.integers(case.rows, low=0, high=8).to(torch.int32) if case.starts == "offset" else None
        return Inputs(case, draw.device, scores=_scores(case, draw), lengths=lengths.to(torch.int32), row_starts=starts, k=case.k)

    @staticmethod
    def _rows(x: Inputs) -> torch.Tensor:
        """Scores from each row's start, [rows, length], -inf past its end."""
        column = torch.arange(x.case.length, device=x.device)
        start = torch.zeros_like(x.lengths) if x.row_starts is None else x.row_starts
        return x.scores.gather(1, start.long()[:, None] + column).masked_fill(column >= x.lengths[:, None], -math.inf)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Judged]:
        rows = self._rows(x)
        count = min(x.k, x.case.length)
        best = torch.nn.functional.pad(torch.sort(rows, dim=-1, descending=True).values[:, :count], (0, x.k - count), value=-math.inf)

        def judge(actual: Any) -> tuple[str, str] | None:
            return _misses(actual, rows, best, x.lengths.long())

        return {"indices": Judged(judge)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        out = torch.full((x.case.rows, x.k), -1, dtype=torch.int32)
        for row, scores in enumerate(self._rows(x).tolist()):
            order = sorted(range(int(x.lengths[row])), key=lambda i: -scores[i])[: x.k]
            out[row, : len(order)] = torch.tensor(order, dtype=torch.int32)
        return {"indices": out.to(x.device)}

    def work(self, case: Case) -> Work:
        return Work(0, case.rows * (4 * case.length + 4 * case.k))

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "mla" and g.model.index_topk:
            k = g.model.index_topk
            for rows, length in ((2, k + 100),) if small else ((1, 16384), (64, 65536), (512, 8192)):
                yield {"rows": rows, "length": length, "k": k, "lengths": "ragged"}


def _misses(actual: Any, rows: torch.Tensor, best: torch.Tensor, lengths: torch.Tensor) -> tuple[str, str] | None:
    """What is wrong with the indices, by row: range, number, repeats, then the chosen scores against the best ones."""
    if not isinstance(actual, torch.Tensor) or actual.shape != best.shape:
        return "shape", f"expected shape {tuple(best.shape)}, got {tuple(getattr(actual, 'shape', ()))}"
    if actual.dtype not in (torch.int32, torch.int64):
        return "dtype", f"expected int32, got {actual.dtype}"
    chosen = actual.long()
    valid = chosen != -1
    outside = valid & ((chosen < 0) | (chosen >= lengths[:, None]))
    counts, wanted = valid.sum(-1), torch.minimum(lengths, lengths.new_tensor(best.shape[1]))
    ordered = torch.sort(chosen.masked_fill(outside, -1), -1).values
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    scores = torch.sort(rows.gather(1, chosen.clamp(0, rows.shape[1] - 1)).masked_fill(~valid, -math.inf), -1, descending=True).values
    worse = scores != best
    for said, wrong in (
        ("an index outside the row", outside.any(-1)),
        ("a wrong number of valid indices", counts != wanted),
        ("an index twice", repeated.any(-1)),
        ("a token chosen instead of a better one", worse.any(-1)),
    ):
        if bool(wrong.any()):
            row = int(torch.nonzero(wrong)[0])
            lines = [f"Rows with {said}: {int(wrong.sum())} / {wrong.numel()}"]
            lines.append(
                f"Row {row}, {int(lengths[row])} long: {int(counts[row])} valid indices, expected {int(wanted[row])}; {int(outside[row].sum())} outside"
            )
            lines.append(f"Scores other than the best {int(wanted[row])}: {int(worse[row].sum())}")
            return "support", "\n".join(lines)
    return None


_TABLE = (
    number("rows", "r", "query tokens", least=0),
    number("k", "k", "indices a query", default=2048, search=(1, 2112)),
    words("selection", ("full", "ragged", "holes", "empty"), "all valid; a valid run of hashed length; -1 anywhere; every third row all -1", default="full"),
)


def _chosen(case: Case, draw: Draw, high: int) -> torch.Tensor:
    """int32 [rows, k] in [0, high), -1 where the selection leaves out."""
    chosen = draw.integers(case.rows, case.k, low=0, high=high)
    column = torch.arange(case.k, device=draw.device)
    if case.selection == "ragged":
        chosen = chosen.masked_fill(column >= draw.integers(case.rows, 1, low=1, high=case.k + 1), -1)
    elif case.selection == "holes":
        chosen = chosen.masked_fill(draw.integers(case.rows, case.k, low=0, high=3) == 0, -1)
    elif case.selection == "empty":
        chosen[::3] = -1
    return chosen.to(torch.int32)


@contract("sparse")
class topk_page_table:
    """Positions in a request to token slots: page_table int32 [rows, length], indices int32 [rows, k] -> slots int32 [rows, k]; -1 stays -1.
    `group` neighbouring rows are of one request and have the same row of the table."""

    axes = (
        number("length", "s", "columns of the page table", search=(1, 40_000)),
        *_TABLE,
        number("group", "g", "rows of one request, one after another; the last request may have fewer", default=1),
    )
    outputs = ("slots",)
    relations = row_by_row("rows", "page_table", "indices") | {"strided": strided("page_table")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        requests = draw.integers(-(-case.rows // case.group), case.length, low=0, high=1 << 30).to(torch.int32)
        table = requests.repeat_interleave(case.group, 0)[: case.rows]
        return Inputs(case, draw.device, page_table=table, indices=_chosen(case, draw, case.length))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        slots = x.page_table.gather(1, x.indices.clamp_min(0).long()).masked_fill(x.indices < 0, -1)
        return {"slots": Exact(slots, dtype=torch.int32)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        pairs = zip(x.page_table.tolist(), x.indices.tolist(), strict=True)
        return {"slots": torch.tensor([[table[i] if i >= 0 else -1 for i in row] for table, row in pairs], dtype=torch.int32, device=x.device)}

    def work(self, case: Case) -> Work:
        return Work(0, 12 * case.rows * case.k)


def _counted(x: Any) -> Any:
    return varied(x, kv_indptr=bounds((x.slots >= 0).sum(-1).tolist(), x.device))


@contract("sparse")
class valid_kv_indices:
    """Rows of slots with gaps, closed up: slots int32 [rows, k] (-1: none), kv_indptr int32 [rows + 1] -> kv_indices int32 [rows * k]
    whose first kv_indptr[-1] entries are defined."""

    axes = _TABLE
    outputs = ("kv_indices",)
    relations = {"slots": backwards("rows", "slots", entries={"kv_indices": lambda x: x.kv_indptr.diff().tolist()}, remake=_counted)}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        slots = _chosen(case, draw, 1 << 30)
        return Inputs(case, draw.device, slots=slots, kv_indptr=torch.nn.functional.pad((slots >= 0).sum(-1).cumsum(0), (1, 0)).to(torch.int32))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        kept = x.slots[x.slots >= 0]
        value = torch.nn.functional.pad(kept, (0, x.slots.numel() - kept.numel()))
        return {"kv_indices": Exact(value, where=torch.arange(value.numel(), device=x.device) < kept.numel(), dtype=torch.int32)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        kept = [slot for row in x.slots.tolist() for slot in row if slot >= 0]
        return {"kv_indices": torch.tensor(kept + [0] * (x.slots.numel() - len(kept)), dtype=torch.int32, device=x.device)}

    def work(self, case: Case) -> Work:
        return Work(0, 8 * case.rows * case.k)
