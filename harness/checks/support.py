"""Which tokens were kept, which were drawn: exact support first, values after."""

from __future__ import annotations

import torch

from harness.checks.outcome import Outcome
from harness.checks.visible import visible
from harness.contracts.expected import Filtered, OneOf

_FP32 = 2.0**-24


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(torch.nonzero(mask)[0].tolist())


def filtered(actual: torch.Tensor, expected: Filtered) -> Outcome:
    """Support within [required, allowed] and exactly `kept` where declared; then each kept value against its renormalised weight."""
    value = actual.double()
    kept = value != 0
    lost, extra = expected.required & ~kept, kept & ~expected.allowed
    counts = kept.sum(-1)
    wrong_count = (counts != expected.kept) & (expected.kept >= 0) if expected.kept is not None else torch.zeros_like(counts, dtype=torch.bool)
    if expected.most is not None:
        wrong_count |= counts > expected.most
    if bool(value.isnan().any()) or bool(lost.any()) or bool(extra.any()) or bool(wrong_count.any()):
        return _wrong_support(value, counts, lost, extra, wrong_count, expected)
    golden, budget = kept_values(actual.dtype, expected, kept)
    ratio = (value - golden).abs() / budget
    worst = float(ratio.amax()) if ratio.numel() else 0.0
    figures: dict[str, float | int | str] = dict(visible(golden, budget))
    if worst <= 1:
        return Outcome(error=worst, figures=figures)
    from harness.checks.tolerance import explain

    text, error, found = explain(value, golden, ratio > 1, budget, worst)
    return Outcome("numerics", text, error, figures | found)


def kept_values(dtype: torch.dtype, expected: Filtered, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fp64 values of the tokens that were kept (bool, as the weights), and the absolute budget of each in an output of `dtype`."""
    golden = torch.where(kept, expected.weights, torch.zeros_like(expected.weights))
    if expected.renormalise:
        golden = golden / golden.sum(-1, keepdim=True)
    info = torch.finfo(dtype)
    # below the normal numbers: one step of fp16, whose subnormals every device keeps, or a flush to zero
    least = max(info.smallest_normal * info.eps, 2.0**-126)
    return golden, golden * (info.eps + expected.inner + _FP32 * (8 + 4 * kept.sum(-1).double().sqrt()[:, None])) + least


def _wrong_support(
    value: torch.Tensor, counts: torch.Tensor, lost: torch.Tensor, extra: torch.Tensor, wrong_count: torch.Tensor, expected: Filtered
) -> Outcome:
    bad = value.isnan().any(-1) | lost.any(-1) | extra.any(-1) | wrong_count
    row = _first(bad)[0]
    low, high = int(expected.required[row].sum()), int(expected.allowed[row].sum())
    high = high if expected.most is None else int(expected.most[row])
    exact = expected.kept is not None and int(expected.kept[row]) >= 0
    wanted = f"{int(expected.kept[row])}" if expected.kept is not None and exact else (f"{low}" if low == high else f"{low} to {high}")
    lines = [f"Rows with a wrong set of tokens: {int(bad.sum())} / {bad.numel()}"]
    lines.append(f"Row {row}: kept {int(counts[row])} of {value.shape[1]} tokens, expected {wanted}")
    figures: dict[str, float | int | str] = {"rows": int(bad.sum()), "row": row, "kept": int(counts[row]), "expected": wanted}
    for name, mask in (("NaN", value.isnan()), ("dropped a token that every rule keeps", lost), ("kept a token that no rule keeps", extra)):
        if bool(mask.any()):
            at = _first(mask)
            lines.append(f"{name}: {int(mask.sum())} in all, first at index {at} (weight {float(expected.weights[at]):.6g}, actual {float(value[at]):.6g})")
    return Outcome("support", "\n".join(lines), figures=figures)


def one_of(actual: torch.Tensor, expected: OneOf) -> Outcome:
    """Every drawn id in [0, vocab) and, in rows with a defined answer, in the allowed set."""
    vocab = expected.allowed.shape[-1]
    rows = expected.allowed.shape[0]
    ids = actual.long().reshape(rows, -1 if rows else 1)
    outside = (ids < 0) | (ids >= vocab)
    valid = torch.ones(ids.shape[0], dtype=torch.bool, device=ids.device) if expected.valid is None else expected.valid
    member = expected.allowed.gather(1, ids.clamp(0, vocab - 1))
    wrong = outside | (~member & valid[:, None])
    if not bool(wrong.any()):
        return Outcome(error=0.0)
    at = _first(outside if bool(outside.any()) else wrong)
    said = f"id {int(ids[at])} outside [0, {vocab})"
    if not bool(outside.any()):
        said = f"id {int(ids[at])}, which the filters remove ({int(expected.allowed[at[0]].sum())} tokens are left)"
    text = f"Wrong draws: {int(wrong.sum())} / {wrong.numel()}\nRow {at[0]}: drew {said}"
    return Outcome("support", text, figures={"count": int(wrong.sum()), "row": at[0], "id": int(ids[at])})
