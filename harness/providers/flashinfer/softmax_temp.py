"""flashinfer.sampling.softmax with a temperature a row, as SGLang's DSPARK calls it."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements


@implements("softmax_temp", library="flashinfer", platforms={"cuda"})
def softmax_temp(x: Any) -> Any:
    from flashinfer.sampling import softmax

    return softmax(logits=x.logits.float(), temperature=x.temperatures.view(-1).repeat_interleave(x.case.slots))
