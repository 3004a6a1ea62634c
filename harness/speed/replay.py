"""The regression rule replayed on recorded runs: how often it cries wolf, and which slow-down it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.speed import rivals
from harness.speed.regression import BASELINE, EAGER, GRAPH, RUNS, predict
from harness.speed.spread import summarise

LEAST = RUNS + 2  # runs a cell must have
SLOWED = (0.01, 0.015, 0.02, 0.03, 0.05, 0.1)
STARTS, SHIFT = 3, 0.009  # machine starts of a pooled baseline, and the most that one shifts all times
OURS = "this project"
HOST = "host-bound eager"
_SMALL_US = 500.0  # what the host needs for a call of a few launches hides behind a longer kernel
_RESTLESS = 0.063  # deviation within a run: 0.6 to 5 % where the device is timed, 8 to 13 % where the host is; their geometric middle


@dataclass
class Rates:
    """How often a rule said slow, by slow-down (0: false alarms), and how much stands behind it.

    cells, runs   independent ones: `cells * runs` bound the rates, not the replays
    by_cell       by slow-down, in the order of the group's cells; `reruns`: share of unchanged measurements that were run again
    """

    cells: int
    runs: int
    draws: int
    rate: dict[float, float] = field(default_factory=dict)
    by_cell: dict[float, list[float]] = field(default_factory=dict)
    reruns: float = 0.0

    def add(self, slowed: float, said: np.ndarray) -> None:
        """Takes what was said of each draw and cell."""
        self.rate[slowed] = float(said.mean())
        self.by_cell[slowed] = said.mean(axis=0).tolist()

    def bound(self, slowed: float) -> float:
        """The 95 % bound (Clopper and Pearson) of a rate as if each recorded run had been judged once: upper for false alarms, lower for
        what is found."""
        from scipy.stats import beta

        runs = self.cells * self.runs
        events = self.rate[slowed] * runs
        if slowed == 0:
            return float(beta.ppf(0.95, events + 1, runs - events)) if events < runs else 1.0
        return float(beta.ppf(0.05, events, runs - events + 1)) if events > 0 else 0.0


def host_bound(key: str, samples: np.ndarray, *, us: float = 1000.0) -> bool:
    """Whether a recorded cell timed the host: plain calls, under 500 us, that vary by over 6.3 % within a run (median over the runs).
    `us`: microseconds in the samples' unit."""
    middle = np.median(samples, axis=1)
    within = float(np.median(samples.std(axis=1) / middle))
    return key.endswith(f"|{EAGER}") and float(np.median(middle)) * us < _SMALL_US and within > _RESTLESS


def groups(traces: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """The keys that are judged together: graph, eager, and eager cells that are host-bound; controls are in none."""
    found: dict[str, list[str]] = {GRAPH: [], EAGER: [], HOST: []}
    for key, samples in traces.items():
        if not key.startswith("control-"):
            found[HOST if host_bound(key, samples) else key.rpartition("|")[2]].append(key)
    return {name: keys for name, keys in found.items() if keys}


def replay(traces: list[np.ndarray], mode: str, *, draws: int, seed: int) -> dict[str, Rates]:
    """The rates of every rule on cells of one group, each `[runs, samples]`: at most 10 runs drawn for the baseline and 3 others for the
    measurement, which is slowed by scaling. All cells are drawn at once, because their spreads are pooled."""
    base, new = _draw(traces, draws, seed)
    medians = _medians(traces)
    rates = {rule: Rates(len(traces), medians.shape[1], draws) for rule in (OURS, *rivals.RULES)}
    index = np.arange(len(traces))[:, None]
    for slowed in (0.0, *SLOWED):
        _judge(rates[OURS], [medians[index, base]], medians[index, new], mode, slowed, known=True)
        recorded = rivals.figures(traces, 1 + slowed)
        for name, rule in rivals.RULES.items():
            rates[name].add(slowed, rule(recorded, rivals.Drawn(base, new, 1 + slowed)))
    return rates


def replay_starts(traces: list[np.ndarray], mode: str, *, draws: int, seed: int, together: bool) -> Rates:
    """The rates of this project's rule where the baseline is pooled over 3 machine starts and the measurement is made on a fourth, each of
    which shifts times by a share drawn from +-0.9 %: all cells `together`, or each for itself."""
    base, new = _draw(traces, draws, seed)
    medians = _medians(traces)
    index = np.arange(len(traces))[:, None]
    random = np.random.default_rng([seed, 1])
    shifts = 1 + random.uniform(-SHIFT, SHIFT, (STARTS + 1, draws, 1 if together else len(traces), 1))
    parts = np.array_split(medians[index, base], STARTS, axis=-1)
    rates = Rates(len(traces), medians.shape[1], draws)
    for slowed in (0.0, *SLOWED):
        starts = [part * shift for part, shift in zip(parts, shifts, strict=False)]
        _judge(rates, starts, medians[index, new] * shifts[-1], mode, slowed, known=False)
    return rates


def jackknife(traces: list[np.ndarray], mode: str, *, draws: int, seed: int) -> dict[float, tuple[float, float]]:
    """The least and the greatest rate of this project's rule, by slow-down, when each cell in turn is left out."""
    base, new = _draw(traces, draws, seed)
    medians = _medians(traces)
    seen: dict[float, list[float]] = {slowed: [] for slowed in (0.0, *SLOWED)}
    for left in range(len(traces)):
        kept = np.delete(np.arange(len(traces)), left)
        rates = Rates(len(kept), medians.shape[1], draws)
        for slowed, values in seen.items():
            _judge(rates, [medians[kept[:, None], base[:, kept]]], medians[kept[:, None], new[:, kept]], mode, slowed, known=True)
            values.append(rates.rate[slowed])
    return {slowed: (min(values), max(values)) for slowed, values in seen.items()}


def _judge(rates: Rates, starts: list[np.ndarray], new: np.ndarray, mode: str, slowed: float, *, known: bool) -> None:
    prediction = predict(summarise(starts), mode, known_start=known)
    times = new * (1 + slowed)
    doubtful = prediction.doubtful(times[..., :1])
    rates.add(slowed, doubtful & prediction.slow(times))
    if slowed == 0:
        rates.reruns = float(doubtful.mean())


def _medians(traces: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.median(samples, axis=1) for samples in traces])


def _draw(traces: list[np.ndarray], draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which runs serve as baseline and as measurement, `[draws, cells, ...]`, each cell's drawn for itself."""
    runs = traces[0].shape[0]
    order = np.random.default_rng(seed).random((draws, len(traces), runs)).argsort(axis=-1)
    count = min(BASELINE, runs - RUNS)
    return order[..., :count], order[..., count : count + RUNS]


def record(traces: Mapping[str, np.ndarray], *, draws: int, seed: int) -> dict[str, Any]:
    """All of it as plain data: by group the cells, the rates of every rule, the jackknife, and the rates over machine starts."""
    told: dict[str, Any] = {}
    for name, keys in groups(traces).items():
        cells = [traces[key] for key in keys]
        mode = GRAPH if name == GRAPH else EAGER
        told[name] = {
            "cells": keys,
            "rules": {rule: _plain(rates) for rule, rates in replay(cells, mode, draws=draws, seed=seed).items()},
            "starts": {word: _plain(replay_starts(cells, mode, draws=draws, seed=seed, together=word == "together")) for word in ("together", "each")},
        }
        if len(cells) > 1:
            ranges = jackknife(cells, mode, draws=max(1, draws // 10), seed=seed)
            told[name]["jackknife"] = {f"{slowed:g}": list(range_) for slowed, range_ in ranges.items()}
    return {"runs": len(next(iter(traces.values()))), "draws": draws, "seed": seed, "groups": told}


def _plain(rates: Rates) -> dict[str, Any]:
    """Rates by slow-down, each with what it is of and its 95 % bound."""
    replays = rates.cells * rates.draws
    return {
        "cells": rates.cells,
        "independent_runs": rates.cells * rates.runs,
        "replays": replays,
        "reruns": rates.reruns,
        "rates": {
            f"{slowed:g}": {"rate": rate, "slow": round(rate * replays), "bound": rates.bound(slowed), "by_cell": rates.by_cell[slowed]}
            for slowed, rate in rates.rate.items()
        },
    }
