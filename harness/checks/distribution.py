"""Do draws follow their distribution: exact support, then the questions of `tally`, then a name for what is wrong.

Pure: ids and the contract's probabilities in, an Outcome out. docs/distribution.md derives the levels and the power.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from harness.checks.outcome import Outcome
from harness.checks.power import CONFIRM, DOUBT, SURE, TOKENS, detectable
from harness.checks.support import one_of
from harness.checks.tails import Array
from harness.checks.tally import MANY, Answer, Tally, questions, verdict
from harness.contracts.expected import Drawn, Instead

SAMPLE = 1 << 20  # draws whose order is looked at
_CHUNK = 1 << 24  # ids counted at once
_LIKELIER = 20.0  # in nats: how much better a mistake must explain the draws than the contract does
_FITS = 1e-4  # and the p-value it must reach itself
_RARELY = 1e-9  # how rarely two honest calls may draw the same


def drawn(actual: Any, expected: Drawn, confirm: bool = False) -> Outcome:
    """Judges draws; `confirm`: this is the second look, with four times the draws of one that was suspicious."""
    if expected.first is not None:
        said = expected.first.judge(actual)
        if said:
            return Outcome(*said)
    ids = actual if expected.ids is None else expected.ids(actual)
    rows = expected.allowed.shape[0]
    if not rows:
        return Outcome(error=0.0) if not ids.numel() else Outcome("shape", f"expected no draws of no rows, got {ids.numel()}")
    ids = ids.reshape(rows, -1)
    if expected.draws and ids.shape[1] != expected.draws:
        return Outcome("shape", f"expected {expected.draws} draws a row, got {ids.shape[1]}")
    vocab = expected.allowed.shape[1]
    outside = (ids >= vocab) | (ids < (0 if expected.ids is None else -1))
    if bool(outside.any()):
        return one_of(ids, expected)
    counts = _counted(ids, vocab)
    if expected.valid is not None:
        counts = counts * expected.valid[:, None]
    wrong = bool(((counts > 0) & ~expected.allowed).any())
    tally = _tally(ids, counts, expected)
    watched = {name: at.cpu().numpy() for name, at in expected.watched.items()}
    answers = [] if wrong else questions(tally, watched)
    if not wrong and not answers:
        return Outcome(error=0.0)
    figures = _figures(tally, answers)
    everywhere, somewhere = _greedy(counts, expected)
    if everywhere:
        return Outcome("silently-greedy", everywhere, figures=figures)
    if wrong or somewhere:
        named = _named(counts, expected)
        if named is not None:
            return Outcome(named.reason, named.text, figures=figures)
        if wrong:
            return one_of(ids, expected) if expected.ids is None else _foreign(counts, expected)
        return Outcome("silently-greedy", somewhere, figures=figures)
    worst = verdict(answers)
    level = CONFIRM if confirm else DOUBT
    figures["p_value"] = worst.p
    if worst.p >= level:
        return Outcome(error=max(0.0, math.log(max(worst.p, 1e-300)) / math.log(level)), figures=figures)
    reason, text = _explained(worst, answers, counts, expected)
    return Outcome(reason, text, figures=figures, suspicious=not confirm and worst.p >= SURE)


def chance_of_the_same(actual: torch.Tensor, expected: Drawn) -> float:
    """Probability that two calls that draw as `expected` says give these same ids throughout."""
    kept = expected.weights * expected.allowed
    share = (kept / kept.sum(1, keepdim=True).clamp_min(1e-300)).square().sum(1)
    share = torch.where(_rows(expected), share, 1.0)  # rows without a defined answer may repeat theirs
    draws = actual.numel() / max(len(share), 1)
    return math.exp(max(-700.0, draws * float(share.clamp(1e-300, 1.0).log().sum())))


def tells(actual: torch.Tensor, expected: Drawn) -> bool:
    """Whether two honest calls would hardly draw the same ids, so that two alike show one set of random numbers. Not where ids are
    read off the output: those ops are given their coins or seeds, and draw alike from them."""
    return expected.ids is None and chance_of_the_same(actual, expected) < _RARELY


def _counted(ids: torch.Tensor, vocab: int) -> torch.Tensor:
    """int64 [rows, vocab] draws of each token."""
    rows = ids.shape[0]
    counts = torch.zeros(rows * (vocab + 1), dtype=torch.int64, device=ids.device)
    start = torch.arange(rows, device=ids.device)[:, None] * (vocab + 1) + 1
    step = max(1, _CHUNK // max(rows, 1))
    for first in range(0, ids.shape[1], step):
        counts += torch.bincount((ids[:, first : first + step].long() + start).flatten(), minlength=len(counts))
    return counts.view(rows, vocab + 1)[:, 1:]


def _rows(expected: Drawn) -> torch.Tensor:
    rows = expected.allowed.any(1)
    return rows if expected.valid is None else rows & expected.valid


def _tally(ids: torch.Tensor, counts: torch.Tensor, expected: Drawn) -> Tally:
    held = expected.weights * expected.required
    mass = held.sum(1, keepdim=True)
    band = expected.weights * (expected.allowed & ~expected.required)
    low, high = torch.zeros_like(mass), band.sum(1, keepdim=True)
    if expected.kept is not None and bool((high > 0).any()):
        free = (expected.kept - expected.required.sum(1)).clamp(min=0)[:, None]
        known = expected.kept[:, None] >= 0
        falling = band.sort(1, descending=True).values
        place = torch.arange(band.shape[1], device=band.device)
        entries = (band > 0).sum(1, keepdim=True)
        most = (falling * (place < free)).sum(1, keepdim=True)
        least = (falling * ((place >= entries - free) & (place < entries))).sum(1, keepdim=True)
        low, high = torch.where(known, least, low), torch.where(known, most, high)
    valid = _rows(expected)[:, None]
    inside = counts * expected.required * valid
    total = counts.sum(1) * valid.squeeze(1)
    width = max(1, min(ids.shape[1], SAMPLE // max(ids.shape[0], 1)))
    sample = torch.where(valid, ids[:, :width].long(), -1)

    def host(value: torch.Tensor) -> Array:
        return value.cpu().numpy()

    return Tally(
        counts=host(inside),
        p=host(torch.where(valid & (mass > 0), held / mass.clamp_min(1e-300), 0.0)),
        n=host(inside.sum(1)),
        total=host(total),
        low=host(torch.where(valid, low / (mass + low).clamp_min(1e-300), 0.0).squeeze(1)),
        high=host(torch.where(valid, high / (mass + high).clamp_min(1e-300), 0.0).squeeze(1)),
        sample=host(sample),
        gap=expected.gap,
    )


def _figures(tally: Tally, answers: list[Answer]) -> dict[str, float | int | str]:
    """Draws of the row with fewest, and the smallest relative bias of a token that they would show."""
    rows = tally.n[tally.n >= MANY]
    if not len(rows) or not answers:
        return {"draws": int(tally.total.sum())}
    figures: dict[str, float | int | str] = {"draws": int(tally.total.sum()), "draws_a_row": int(rows.min())}
    for p in TOKENS:
        slack = float(tally.slack(p))
        figures[f"bias_at_{p:g}"] = detectable(int(rows.min()), p, len(rows), len(answers), slack)
    return figures


def _greedy(counts: torch.Tensor, expected: Drawn) -> tuple[str, str]:
    """Whether every draw of all rows, or of one, is a most probable token where chance would not have it so, in words. Chance is the greatest that
    a correct rule gives: one that keeps no more of the band than those tokens."""
    mass = expected.weights * expected.allowed
    best = mass == mass.amax(1, keepdim=True)
    share = (mass * best).sum(1) / _least_mass(expected, best).clamp_min(1e-300)
    n = counts.sum(1) * _rows(expected)
    stuck = (n > 0) & ((counts * best).sum(1) == n)
    chance = torch.where(stuck, n * share.clamp(1e-300, 1.0).log(), 0.0)
    drew = n > 0
    if bool(stuck.sum() == drew.sum()) and float(chance.sum()) < math.log(SURE / 2):
        return f"Every one of {int(n.sum())} draws is a most probable token of its row; of chance e^{float(chance.sum()):.4g}", ""
    row = int(chance.argmin()) if len(chance) else 0
    if len(chance) and float(chance[row]) < math.log(SURE / 2 / len(chance)):
        return "", f"Every one of {int(n[row])} draws of row {row} is its most probable token, of probability {float(share[row]):.4g}"
    return "", ""


def _least_mass(expected: Drawn, tokens: torch.Tensor) -> torch.Tensor:
    """The least mass that a correct rule keeps together with these tokens, a row: theirs, that of the required ones, and of the lightest of the band
    that make up the number to be kept, where that is fixed."""
    mass, kept = expected.weights * expected.allowed, tokens | expected.required
    least = (mass * kept).sum(1)
    if expected.kept is None:
        return least
    band = expected.allowed & ~kept
    lightest = torch.where(band, mass, torch.inf).sort(1).values
    more = (expected.kept - kept.sum(1)).clamp(min=0).minimum(band.sum(1))
    return least + torch.where(torch.arange(mass.shape[1], device=mass.device) < more[:, None], lightest, 0.0).sum(1)


def _named(counts: torch.Tensor, expected: Drawn) -> Instead | None:
    """The mistake that explains the draws, where the contract's own rule does not."""
    valid = _rows(expected)[:, None]
    counts = counts * valid
    kept = expected.weights * expected.allowed
    stray = 1 / counts.sum(1, keepdim=True).clamp(min=1)  # one foreign draw a row is no parameter ignored
    honest = _likelihood(counts, (1 - stray) * kept / kept.sum(1, keepdim=True).clamp_min(1e-300) + stray / kept.shape[1])
    best, best_value = None, honest + _LIKELIER
    for other in expected.instead() if expected.instead else []:
        value = _likelihood(counts, other.weights)
        if value > best_value and _fits(counts, other.weights, expected.gap):
            best, best_value = other, value
    return best


def _likelihood(counts: torch.Tensor, weights: torch.Tensor) -> float:
    p = weights / weights.sum(1, keepdim=True).clamp_min(1e-300)
    return float(torch.where(counts > 0, counts * p.log(), 0.0).sum())


def _fits(counts: torch.Tensor, weights: torch.Tensor, gap: float) -> bool:
    """Whether counts, whose order is not looked at, follow the weights."""
    p = weights / weights.sum(1, keepdim=True).clamp_min(1e-300)
    seen, chance, n = (value.cpu().numpy() for value in (counts, p, counts.sum(1)))
    none = np.zeros(len(n))
    tally = Tally(seen, chance, n, n, none, none, np.full((len(n), 1), -1), gap)
    answers = questions(tally, {})
    return not answers or verdict(answers).p > _FITS


def _explained(worst: Answer, answers: list[Answer], counts: torch.Tensor, expected: Drawn) -> tuple[str, str]:
    # a wrong distribution may disturb the order a little: beside a worse answer, it must be beyond doubt itself
    order = next((a for a in answers if a.question == "order" and a.p * len(answers) < (DOUBT if a.p <= worst.p else SURE)), None)
    accusing = sorted((answer for answer in answers if answer.p < DOUBT), key=lambda answer: (answer is not order, answer.p))
    figures = "\n".join(f"{answer.question}: {answer.text} (p = {answer.p:.3g})" for answer in accusing or [worst])
    named = _named(counts, expected)
    if named is not None:
        return named.reason, f"{named.text}\n{figures}"
    if order is not None:
        return "reused-random", f"Random numbers are used more than once\n{figures}"
    return "distribution", f"Draws do not follow their distribution\n{figures}"


def _foreign(counts: torch.Tensor, expected: Drawn) -> Outcome:
    row, token = torch.nonzero((counts > 0) & ~expected.allowed)[0].tolist()
    text = f"Row {row}: token {token}, which has no mass there, was drawn {int(counts[row, token])} times in {int(counts[row].sum())}"
    return Outcome("support", text, figures={"row": row, "id": token})
