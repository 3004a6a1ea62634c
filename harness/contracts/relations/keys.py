"""Relations over the keys of attention: parts merged give the whole, and every key twice changes the log-sum-exp alone."""

from __future__ import annotations

import math
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.expected import Close
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied
from harness.contracts.relations.requests import bounds


def on_pages(x: Any, pages: list[list[int]], lengths: list[int]) -> Any:
    """The requests on these pages, with these numbers of tokens."""
    page = x.case.page
    ids = [torch.tensor(own, dtype=torch.int64, device=x.device) for own in pages]
    places = [torch.arange(n, device=x.device) for n in lengths]
    return varied(
        x,
        {"length": max(lengths)} if "length" in x.case.point else {},
        kv_indptr=bounds([len(own) for own in pages], x.device),
        kv_indices=torch.cat(ids).to(torch.int32),
        kv_len=torch.tensor(lengths, dtype=torch.int32, device=x.device),
        slots=[own[place // page] * page + place % page for own, place in zip(ids, places, strict=True)],
        **({"prefix_len": [max(0, n - m) for n, m in zip(lengths, x.q_len, strict=True)]} if "prefix_len" in vars(x) else {}),
    )


def pages_of(x: Any) -> list[list[int]]:
    """The page ids of each request."""
    counts: list[int] = x.kv_indptr.diff().tolist()
    return [own.tolist() for own in torch.split(x.kv_indices, counts)]


def _halves(x: Any, outputs: Outputs) -> list[Inputs]:
    """The first pages of each request, about half, and the rest."""
    pages, lengths = pages_of(x), x.kv_len.tolist()
    first = [(len(own) + 1) // 2 if n > x.case.page else len(own) for own, n in zip(pages, lengths, strict=True)]
    cut = [min(n, at * x.case.page) for n, at in zip(lengths, first, strict=True)]
    low = on_pages(x, [own[:at] for own, at in zip(pages, first, strict=True)], cut)
    return [low, on_pages(x, [own[at:] for own, at in zip(pages, first, strict=True)], [n - m for n, m in zip(lengths, cut, strict=True)])]


def _shares(lse: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    total = torch.logsumexp(torch.stack([part.double() for part in lse]), 0)
    safe = total.masked_fill(total.isinf(), 0.0)
    return total, [torch.exp(part.double() - safe)[..., None] for part in lse]


def _merged(x: Any, called: list[Outputs]) -> Outputs:
    """Both parts by the weights that their log-sum-exps give; nothing without them."""
    if any("lse" not in outputs for outputs in called):
        return {}
    total, shares = _shares([outputs["lse"] for outputs in called])
    return {"o": sum(share * outputs["o"].double() for share, outputs in zip(shares, called, strict=True)), "lse": total}


def _slack(goldens: list[dict[str, Close]], budgets: list[Outputs]) -> Outputs:
    """What the budgets of the parts come to: an error e of a part's lse moves its weight w by w (exp(e) - 1), and with it the mean."""
    _, shares = _shares([golden["lse"].value for golden in goldens])
    worst = torch.stack([budget["lse"] for budget in budgets]).amax(0)
    moved = 2 * torch.expm1(worst.clamp_max(50))[..., None]
    parts = [share * (budget["o"] * (1 + moved) + moved * golden["o"].value.abs()) for share, golden, budget in zip(shares, goldens, budgets, strict=True)]
    return {"o": torch.stack(parts).sum(0), "lse": worst}


def _doubled(x: Any, outputs: Outputs) -> list[Inputs]:
    return [on_pages(x, [own * 2 for own in pages_of(x)], [2 * n for n in x.kv_len.tolist()])]


def _less(x: Any, called: list[Outputs]) -> Outputs:
    """The log-sum-exp less ln 2, which is what every key's second mass adds."""
    outputs = called[0]
    return {**outputs, "lse": outputs["lse"].double() - math.log(2)} if "lse" in outputs else outputs


def _same(goldens: list[dict[str, Close]], budgets: list[Outputs]) -> Outputs:
    return budgets[0]


def _alike(case: Case) -> str | None:
    """Why keys are not all alike to the query: it sees a part, or some mass that is not a key's."""
    if case.point.get("window", -1) >= 0 or case.point.get("sinks") == "sinks":
        return "with a window or sinks the keys' parts do not add up"
    return "a query of several sees its own keys" if case.point.get("queries", 1) > 1 else None


def _doubles(case: Case) -> str | None:
    return _alike(case) or (None if case.page == 1 else "a last page that is not full cannot come twice")


KEYS = {
    "split": Relation("each request's keys in two parts, merged by their log-sum-exps", _halves, _merged, slack=_slack, unfit=_alike),
    "twicekeys": Relation("every key twice: the log-sum-exp grows by ln 2", _doubled, _less, slack=_same, unfit=_doubles),
}
