"""All the searches of one run, in turns: so many examples each, or as many as the time allows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from harness.search.hunt import Clock, Hunt

ROUND = 100  # examples of a turn, where the time is what ends the search
_STEP = 1_000_003  # between the seeds of turns


class Campaign:
    """The searches of one run; they share the clock."""

    def __init__(self, hunts: Sequence[Hunt], clock: Clock) -> None:
        self.hunts, self.clock = hunts, clock
        self.empty: list[Hunt] = []  # those without a single case

    def run(self, *, seed: int, examples: int | None = None, seconds: float | None = None) -> None:
        """What earlier runs found first; then `examples` of each search, or turns until `seconds` have passed, whichever is given.

        With examples alone nothing depends on the time but how small a failure gets.
        """
        end = time.monotonic() + (math.inf if seconds is None else seconds)
        self.clock.end = end
        for hunt in self.hunts:
            hunt.again()
        if examples is not None:
            self.empty = [hunt for hunt in self.hunts if not hunt.search(examples, seed)]
            return
        live, turn = list(self.hunts), 0
        while live and time.monotonic() < end:
            for place, hunt in enumerate(live):
                now = time.monotonic()
                self.clock.end = now + max(0.0, end - now) / (len(live) - place)
                if not hunt.search(ROUND, seed + _STEP * turn):
                    self.empty.append(hunt)
            live = [hunt for hunt in live if hunt not in self.empty and not hunt.tally.why_ended]
            turn += 1

    def finish(self, *, rerun: bool = True) -> None:
        """Takes up what was met by the way; `rerun` False: runs nothing more."""
        for hunt in self.hunts:
            hunt.finish(rerun=rerun)
