"""Exact tails of the binomial by the incomplete beta function, vectorised; scipy.special, which a worker imports in no time."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import special

Array: TypeAlias = "np.ndarray[Any, Any]"


def above(count: Any, n: Any, p: Any) -> Array:
    """P(X > count)."""
    count = np.asarray(count, dtype=float)
    inner = special.betainc(np.clip(count + 1, 1, None), np.clip(n - count, 1e-300, None), p)
    return np.where(count < 0, 1.0, np.where(count >= n, 0.0, inner))


def upto(count: Any, n: Any, p: Any) -> Array:
    """P(X <= count)."""
    count = np.asarray(count, dtype=float)
    inner = special.betaincc(np.clip(count + 1, 1, None), np.clip(n - count, 1e-300, None), p)
    return np.where(count < 0, 0.0, np.where(count >= n, 1.0, inner))


def exactly(count: Any, n: Any, p: Any) -> Array:
    """P(X = count)."""
    count, n = np.asarray(count, dtype=float), np.asarray(n, dtype=float)
    logs = special.xlogy(count, p) + special.xlog1py(n - count, -p) - special.betaln(count + 1, n - count + 1) - np.log1p(n)
    return np.exp(logs)


def both(count: Array, n: Any, low: Any, high: Any) -> Array:
    """Two-sided p-values of counts whose probability lies in [low, high]."""
    return np.minimum(1.0, 2 * np.minimum(above(count - 1, n, high), upto(count, n, low)))


def chi_square(total: float, freedom: int) -> float:
    """P(chi-square > total)."""
    return float(special.chdtrc(freedom, total))


def normal(z: float) -> float:
    """P(standard normal > z)."""
    return float(special.ndtr(-z))
