"""An autotuner's search without a device, where no configuration is faster than another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

MOST = 8  # configurations compiled a search, once one of them fits


class Search:
    """Ends a search at the first configuration that compiles, fits and spills nothing, else at the eighth; then the first that fits is taken.

    `clean` is set by whoever sees the launches: whether the last one spilled nothing.
    """

    def __init__(self) -> None:
        self.clean = False
        self._search: Any = None
        self._tried, self._fit, self._settled = 0, False, False

    @contextlib.contextmanager
    def pruned(self) -> Iterator[None]:
        """While it is active, Triton's autotuners search so."""
        from triton.runtime.autotuner import Autotuner

        bench = Autotuner._bench
        search = self

        def searched(self: Any, *args: Any, **options: Any) -> list[float]:
            search._begin(self.nargs)
            if search._over():
                return [float("inf")] * 3
            return search._judge(bench(self, *args, **options))

        Autotuner._bench = searched
        try:
            yield
        finally:
            Autotuner._bench = bench

    def _begin(self, arguments: Any) -> None:
        if self._search is not arguments:  # the autotuner makes one such object a call
            self._search = arguments
            self._tried, self._fit, self._settled = 0, False, False

    def _over(self) -> bool:
        return self._settled or (self._fit and self._tried >= MOST)

    def _judge(self, timings: Any) -> list[float]:
        """The place in the search as its time: earlier is better, and a clean one the best."""
        self._tried += 1
        if timings[0] == float("inf"):
            return [float("inf")] * 3
        self._fit, self._settled = True, self.clean
        return [0.0 if self.clean else float(self._tried)] * 3
