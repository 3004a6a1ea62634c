"""Calls whose numbers are missing: what their row says, and that it can be read."""

from __future__ import annotations

import math

import pytest
import torch

from harness.contracts import op
from harness.machine.execute import Bench
from harness.machine.platforms import Device
from harness.providers import implements, registry
from harness.store.results import decode, encode

CPU = Device("cpu", "cpu", {"name": "a cpu", "arch": "cpu"})


@pytest.mark.parametrize("relation", ["unscaled", "slots"])
def test_a_number_that_is_missing_in_every_call_is_no_law_broken_and_its_row_can_be_read(relation):
    class Missing:
        def prepare(self, x, scratch):
            self.like = x.q

        def run(self):
            return {"o": torch.full_like(self.like, math.nan)}

    case = op("decode_attention").axes.case(batch=2, heads=4, kv_heads=2, length=8, dim=16, dtype="fp32", scales="scaled", relation=relation)
    implements("decode_attention", library="torch", name="gives_no_number", platforms={"cpu"})(Missing)
    provider = registry._providers.pop(("decode_attention", "gives_no_number"))
    result, healthy = Bench(CPU).run(case, provider, "cpu")
    assert healthy
    assert (result.status, result.reason) == ("mismatch", "numerics")
    assert decode(encode(result)) == result
