"""Is a cell slower than its baseline: a prediction interval for the medians of new runs, a floor, and reruns of what is doubtful."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.speed.spread import Summary, moderated, starts_variance

GRAPH, EAGER = "graph", "eager"
SAME, FAST, SLOW, AMBIGUOUS, HOST_BOUND, NEW, GONE = "same", "fast", "slow", "ambiguous", "host-bound", "new", "gone"
BASELINE, RUNS = 10, 3  # the most runs of a baseline that are used, and of a new measurement


@dataclass(frozen=True)
class Rule:
    """
    alpha   probability that run noise alone goes beyond the margin, one-sided: the promised rate of false alarms, 0.02 %
    starts  deviations of the shift between machine starts that are allowed for: exceeded once in 46,000 by the difference of a uniform
            shift and the mean of three, once in 390 by a normal one
    doubt   probability, by run noise, that the first run hides what three runs would call slow
    floors  by mode: a smaller change is never slow. Graph: three quarters of 1 %, the least change to be found; eager: half of 5 %
    """

    alpha: float = 2e-4
    starts: float = 2.8
    doubt: float = 0.05
    floors: tuple[tuple[str, float], ...] = ((GRAPH, 0.0075), (EAGER, 0.025))

    def floor(self, mode: str) -> float:
        """The floor of a mode, as a logarithm."""
        return float(np.log1p(dict(self.floors)[mode]))


@dataclass(frozen=True)
class Prediction:
    """Where the mean of new runs of each cell will be, in logarithms of time, if nothing changed; arrays over cells in the last axis.

    variance, freedom  of one run within a machine start; `noise`: variance of the baseline's mean as a share of it
    shift              variance that the new machine start adds; 0 where the baseline has runs of it
    """

    mean: np.ndarray
    variance: np.ndarray
    freedom: np.ndarray
    noise: np.ndarray
    shift: np.ndarray
    floor: float
    rule: Rule

    def only(self, place: int) -> Prediction:
        """The prediction of one cell."""
        here = slice(place, place + 1)
        mean, variance, freedom, noise, shift = (values[..., here] for values in (self.mean, self.variance, self.freedom, self.noise, self.shift))
        return Prediction(mean, variance, freedom, noise, shift, self.floor, self.rule)

    def error(self, runs: int) -> np.ndarray:
        """Standard deviation of the mean of so many new runs about the baseline's, by run noise."""
        return np.sqrt(self.variance * (self.noise + 1 / runs))

    def margin(self, runs: int) -> np.ndarray:
        """How far the mean of so many new runs must be above the baseline's to be slow."""
        from scipy.special import stdtrit

        noise = stdtrit(self.freedom, 1 - self.rule.alpha) * self.error(runs)
        return np.maximum(self.floor, np.hypot(noise, self.rule.starts * np.sqrt(self.shift)))

    def probability(self, new: np.ndarray) -> np.ndarray:
        """The chance of new runs `[..., cells, runs]` at least so slow if nothing changed."""
        from scipy.special import stdtr

        total = np.sqrt(self.error(new.shape[-1]) ** 2 + self.shift)
        return stdtr(self.freedom, -self.deviation(new) / total)

    def deviation(self, new: np.ndarray) -> np.ndarray:
        """How far the mean of new runs `[..., cells, runs]` is above the baseline's, in logarithms."""
        return np.log(new).mean(axis=-1) - self.mean

    def doubtful(self, new: np.ndarray) -> np.ndarray:
        """Whether further runs are needed: these may be lucky ones of what `RUNS` would call slow."""
        from scipy.special import stdtrit

        luck = stdtrit(self.freedom, 1 - self.rule.doubt) * np.sqrt(self.variance / new.shape[-1])
        return self.deviation(new) + luck > self.margin(RUNS)

    def slow(self, new: np.ndarray) -> np.ndarray:
        """Whether all the runs there are say slow: their mean is beyond the margin and their median beyond the floor, so that no single
        wild run does it. A single run says nothing yet."""
        if new.shape[-1] < 2:
            return np.zeros(new.shape[:-1], dtype=bool)
        typical = np.median(np.log(new), axis=-1) - self.mean
        return (self.deviation(new) > self.margin(new.shape[-1])) & (typical > self.floor)

    def fast(self, new: np.ndarray) -> np.ndarray:
        """The same below the baseline, of a single run too: nothing fails by it."""
        typical = np.median(np.log(new), axis=-1) - self.mean
        return (self.deviation(new) < -self.margin(new.shape[-1])) & (typical < -self.floor)


def predict(summary: Summary, mode: str, *, known_start: bool | np.ndarray = False, rule: Rule | None = None) -> Prediction:
    """The prediction for cells of one mode, whose spreads are pooled. `known_start`: the baseline has
    runs of the machine start that is judged; one value, or one a cell."""
    rule = rule or Rule()
    variance, freedom = moderated(summary.variance, summary.freedom)
    shift = np.where(known_start, 0.0, starts_variance(summary) * (1 + 1 / summary.starts))
    return Prediction(summary.mean, variance, freedom, summary.noise, np.broadcast_to(shift, variance.shape), rule.floor(mode), rule)


def drifting(probabilities: np.ndarray, *, rate: float = 0.05) -> np.ndarray:
    """The cells of the drift lane: those whose change stands out over all cells, with at most `rate` of them wrongly on average
    (Benjamini and Hochberg). A drift is reported, never failed on."""
    from scipy.stats import false_discovery_control

    values = np.asarray(probabilities, dtype=float)
    return false_discovery_control(values) <= rate if values.size else np.zeros(0, dtype=bool)
