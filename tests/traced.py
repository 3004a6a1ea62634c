"""Recorded runs that were never recorded: run medians and samples with the noise that an H200 showed, for tests of the regression rule.

Deviations between runs are log-uniform from 0.1 to 0.4 % of the median for replayed graphs and long eager kernels, within a run 0.2
to 1.3 %; host-bound eager cells have 1.4 to 25 % between and 8 to 13 % within.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

GRAPH = (0.001, 0.004, 0.002, 0.013)  # least and greatest deviation between runs, within a run
EAGER = (0.001, 0.004, 0.006, 0.046)
HOST = (0.014, 0.25, 0.08, 0.13)


def medians(rng: np.random.Generator, cells: int, runs: int, *, low: float = 0.001, high: float = 0.004) -> np.ndarray:
    """Run medians `[cells, runs]` in microseconds."""
    spread = np.exp(rng.uniform(np.log(low), np.log(high), (cells, 1)))
    level = np.exp(rng.uniform(np.log(40), np.log(900), (cells, 1)))
    return level * np.exp(spread * rng.standard_normal((cells, runs)))


def trace(rng: np.random.Generator, kind: tuple[float, ...], *, us: float, runs: int = 17, samples: int = 60) -> np.ndarray:
    """The samples of one cell in milliseconds, `[runs, samples]`."""
    between, within = (np.exp(rng.uniform(np.log(low), np.log(high))) for low, high in (kind[:2], kind[2:]))
    run = between * rng.standard_normal((runs, 1))
    return (us / 1000 * np.exp(run + within * rng.standard_normal((runs, samples)))).astype(np.float32)


def write(path: Path, *, seed: int = 0, cells: int = 8, runs: int = 17, **more: np.ndarray) -> Path:
    """A file of traces: so many cells by graph and eager, one host-bound, two controls, and what is given besides."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for number in range(cells):
        us = float(np.exp(rng.uniform(np.log(40), np.log(900))))
        arrays[f"op-library-h{number}|graph"] = trace(rng, GRAPH, us=us, runs=runs)
        arrays[f"op-library-h{number}|eager"] = trace(rng, EAGER, us=us, runs=runs)
    arrays["op-library-small|eager"] = trace(rng, HOST, us=90, runs=runs)
    arrays["control-copy-256MiB|graph"] = trace(rng, (0.0007, 0.001, 0.003, 0.008), us=131, runs=runs)
    arrays["control-matmul-4096|graph"] = trace(rng, (0.0007, 0.0015, 0.003, 0.008), us=174, runs=runs)
    np.savez(path, **arrays, **more)
    return path
