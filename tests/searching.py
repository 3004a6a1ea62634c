"""Searches whose cells are described, not run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.providers import Provider, providers
from harness.search.hunt import Clock, Hunt
from harness.search.kept import Kept
from harness.search.space import Space
from harness.selection import standing
from harness.store.ledger import Ledger
from harness.store.results import Result

COST = 1_000_000
Ending = Callable[[Case, int], tuple[str, str, float]]
HERE = [(provider, platform) for provider in providers().values() for platform, status, _ in [standing(provider, "cpu")] if not status and not provider.variant]
MERGE = providers()["merge_state", "torch_eager"]
RIGHT = ("pass", "", 0.25)


def space(provider: Provider = MERGE, **bounds: Any) -> Space:
    return Space(provider, "cpu", cost=COST, bounds=bounds)


class Described:
    """Ends cells as a function of the case and the seed says, without a worker; remembers which were asked for."""

    def __init__(self, ending: Ending, provider: Provider = MERGE, platform: str = "cpu") -> None:
        self.ending, self.provider, self.platform, self.asked = ending, provider, platform, list[tuple[str, int]]()

    def __call__(self, case: Case, seed: int) -> Result:
        self.asked.append((case.id, seed))
        status, reason, error = self.ending(case, seed)
        cell = f"{case.op}[{self.provider.name}-{case.id}]"
        errors: Any = {} if math.isnan(error) else {"o": error}
        return Result(cell, case.op, self.provider.name, case.id, status, self.platform, reason=reason, values=dict(case.point), seed=seed, errors=errors)


def hunt(
    ending: Ending, *, provider: Provider = MERGE, platform: str = "cpu", ledger: Ledger | None = None, kept: Kept | None = None, **bounds: Any
) -> tuple[Hunt, Described]:
    described = Described(ending, provider, platform)
    return Hunt(space(provider, **bounds), described, Described(ending, provider), ledger or Ledger(), kept or Kept(None), Clock(shrink=60.0)), described


def wrong(where: Callable[[Case], bool], status: str = "mismatch", reason: str = "numerics") -> Ending:
    return lambda case, seed: (status, reason, 2.0) if where(case) else RIGHT
