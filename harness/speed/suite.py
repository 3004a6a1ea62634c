"""A whole measurement against its baselines: whether the device moved rather than a kernel, and a verdict for each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.speed.regression import AMBIGUOUS, BASELINE, EAGER, FAST, GONE, GRAPH, HOST_BOUND, NEW, RUNS, SAME, SLOW, Prediction, Rule, predict
from harness.speed.spread import stack, summarise

_CLEAR = 3.0  # standard errors by which a shift of all cells stands out
_LEAST = 0.0025  # and a smaller one is not worth a correction: a third of the floor
_RESTLESS = 0.03  # move of the control beside one cell that is more than its noise: on an H200 1 % either way, or 11 %
_CELLS = 5  # fewer say nothing about a shift of all
_UNLIKELY = 0.05  # chance under which a change between floor and margin is `ambiguous`


@dataclass(frozen=True)
class Timed:
    """A cell's times in microseconds: run medians of the baseline by machine start, oldest first, and those of this measurement, made
    on the machine start `start`. `mode` as in the result; `control`: no library under test has a part in it; `beside`: what the control
    took between this cell's samples, then and now (0: not known)."""

    mode: str
    baseline: Mapping[str, Sequence[float]] = field(default_factory=dict)
    new: Sequence[float] = ()
    start: str = ""
    host_bound: bool = False
    control: bool = False
    beside: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Judged:
    """A verdict of the ladder. `change`: of the time, as a share of the baseline's, less what all cells moved by; `margin`: the change
    beyond which it counts; `chance`: of so slow a time if nothing changed; `rerun`: runs that are still needed; `restless`: the control
    beside it moved, the same way and as much."""

    verdict: str
    change: float = 0.0
    margin: float = 0.0
    chance: float = 1.0
    rerun: int = 0
    restless: bool = False


def latest(baseline: Mapping[str, Sequence[float]], most: int = BASELINE) -> dict[str, list[float]]:
    """The runs that are used: the most even share of each machine start, its latest, at most `most` in all; the latest starts first."""
    names = list(baseline)[-most:]
    share = dict.fromkeys(names, 0)
    while sum(share.values()) < most and any(share[name] < len(baseline[name]) for name in names):
        for name in reversed(names):
            if sum(share.values()) < most and share[name] < len(baseline[name]):
                share[name] += 1
    return {name: list(baseline[name])[-share[name] :] for name in names if share[name]}


def judge(cells: Mapping[str, Timed], *, rule: Rule | None = None) -> tuple[dict[str, Judged], float]:
    """The verdict of every cell, and by which share all times moved with the device (0 where they did not)."""
    judged: dict[str, Judged] = {}
    compared: dict[str, list[str]] = {}
    for name, cell in cells.items():
        if not cell.new:
            judged[name] = Judged(GONE)
        elif not any(cell.baseline.values()):
            judged[name] = Judged(NEW)
        elif cell.host_bound:
            judged[name] = Judged(HOST_BOUND)
        else:
            compared.setdefault(cell.mode, []).append(name)
    predictions = {mode: _predictions(mode, [cells[name] for name in names], rule) for mode, names in compared.items()}
    moved = {mode: common_shift(*_moves(prediction, [cells[name] for name in compared[mode]])) for mode, prediction in predictions.items()}
    shift = next((moved[mode] for mode in (GRAPH, EAGER) if moved.get(mode)), 0.0)
    for mode, names in compared.items():
        for place, name in enumerate(names):
            new = np.asarray(cells[name].new, dtype=float) / np.exp(shift)
            judged[name] = _verdict(predictions[mode].only(place), new[None, :], _restless(cells[name], shift))
    return {name: judged[name] for name in cells}, float(np.expm1(shift))


def common_shift(deviations: np.ndarray, errors: np.ndarray, control: np.ndarray) -> float:
    """By how much, in logarithms, all times of a measurement moved together; 0 unless that is clearly the device.

    The median of all deviations from the baselines counts when it is 3 of its standard errors (1.2533 deviations / sqrt n, the
    greater of predicted and seen ones) and 0.25 % from 0. It is the device, not a library, only when the controls, which no library
    under test has a part in, moved the same way: what is taken off is then the smaller of both.
    """
    if len(deviations) < _CELLS or not control.any():
        return 0.0
    middle = float(np.median(deviations))
    seen = 1.4826 * float(np.median(np.abs(deviations - middle)))
    error = 1.2533 * max(seen, float(np.median(errors))) / np.sqrt(len(deviations))
    beside = float(np.median(deviations[control]))
    if abs(middle) < max(_CLEAR * error, _LEAST) or middle * beside <= 0:
        return 0.0
    return middle if abs(middle) < abs(beside) else beside


def _predictions(mode: str, cells: Sequence[Timed], rule: Rule | None) -> Prediction:
    summary = stack(summarise([np.asarray(runs) for runs in latest(_beside(cell)).values()]) for cell in cells)
    known = np.array([bool(cell.baseline.get(cell.start)) for cell in cells])
    return predict(summary, mode, known_start=known, rule=rule)


def _beside(cell: Timed) -> Mapping[str, Sequence[float]]:
    """What of its baseline a cell is held against: the runs of its own machine start where there are any, else those of all starts. Its
    start may lie off their mean by more than the floor, and always does so."""
    mine = cell.baseline.get(cell.start)
    return {cell.start: mine} if mine else cell.baseline


def _moves(prediction: Prediction, cells: Sequence[Timed]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    means = np.array([float(np.log(cell.new).mean()) for cell in cells])
    errors = np.array([float(prediction.error(len(cell.new))[place]) for place, cell in enumerate(cells)])
    return means - prediction.mean, errors, np.array([cell.control for cell in cells])


def _restless(cell: Timed, shift: float) -> float:
    """By how much, in logarithms, the control beside this cell moved more than the device did; 0 where nobody knows."""
    then, now = cell.beside
    return float(np.log(now / then)) - shift if then > 0 and now > 0 else 0.0


def _verdict(prediction: Prediction, new: np.ndarray, restless: float) -> Judged:
    """The verdict on one cell, from its prediction and its new runs `[1, runs]`; `restless`: the move of the control beside it, which
    explains a move of the cell the same way up to its own size."""
    count = new.shape[-1]
    deviation, margin = float(prediction.deviation(new)[0]), float(prediction.margin(count)[0])
    chance = float(prediction.probability(new)[0])
    doubtful = bool(prediction.doubtful(new)[0])
    beside = restless * deviation > 0 and abs(restless) > _RESTLESS and abs(deviation) - abs(restless) <= margin
    if beside and (prediction.fast(new)[0] or prediction.slow(new)[0]):
        return Judged(AMBIGUOUS, float(np.expm1(deviation)), float(np.expm1(margin)), chance, max(0, RUNS - count), restless=True)
    if prediction.fast(new)[0]:
        word = FAST
    elif count < RUNS:
        word = AMBIGUOUS if doubtful else SAME
    elif prediction.slow(new)[0]:
        word = SLOW
    else:
        word = AMBIGUOUS if deviation > prediction.floor and chance < _UNLIKELY else SAME
    return Judged(word, float(np.expm1(deviation)), float(np.expm1(margin)), chance, RUNS - count if count < RUNS and doubtful else 0, restless=beside)
