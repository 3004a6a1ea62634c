"""One decoding step of a batch as the server makes it: the requests' parameters, their penalties, mask and bias, then `Sampler.forward`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.served.sampling.layer import GRAMMAR, OUTPUT, PARAMETERS, Layer

_FREE = -1  # of top_k: the whole vocabulary, as a request says it


def parameters(layer: Layer, x: Any, row: int) -> Any:
    """The row's SamplingParams, as a request's JSON has them, but for the grammar."""
    temperature, top_k = float(x.temperature[row]), int(x.top_k[row])
    bias = {str(int(token)): float(value) for token, value in zip(x.bias_ids[row], x.bias[row], strict=True) if float(value)}
    made = layer.load(PARAMETERS, "SamplingParams")(
        max_new_tokens=None,
        temperature=temperature,
        top_k=_FREE if temperature == 0 or top_k >= 1 << 30 else top_k,
        top_p=float(x.top_p[row]),
        min_p=float(x.min_p[row]),
        frequency_penalty=float(x.frequency[row]),
        presence_penalty=float(x.presence[row]),
        repetition_penalty=float(x.repetition[row]),
        min_new_tokens=int(x.least[row]),
        logit_bias=bias or None,
        sampling_seed=int(x.seeds[row]) if getattr(x.case, "mode", "") == "seeded" else None,
    )
    made.verify(x.logits.shape[1])
    return made


def request(layer: Layer, x: Any, row: int) -> Any:
    """What the scheduler's batch says of one request; its end-of-sequence token is the row's stop token."""
    return SimpleNamespace(
        sampling_params=parameters(layer, x, row),
        eos_token_ids={int(x.stop[row])},
        tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=int(x.stop[row])),
        custom_logit_processor=None,
        return_sampling_mask=False,
        sampling_logprobs_mode=None,
    )


def _guide(tokens: list[int]) -> Any:
    """A grammar's state: the tokens that may come next."""
    return SimpleNamespace(get_next_instruction=lambda state: SimpleNamespace(tokens=tokens))


def grammars(layer: Layer, x: Any, times: int) -> list[Any] | None:
    """Each request's grammar object of SGLang's own class, all of them `times` over, or None where none is constrained."""
    if not bool(x.constrained.any()):
        return None
    made = layer.load(GRAMMAR, "OutlinesGrammar")
    of_row = [made(_guide(x.allowed[row].nonzero().flatten().tolist()), None) if bool(x.constrained[row]) else None for row in range(len(x.logits))]
    return of_row * times


class Step:
    """A batch that holds all requests `times` over, so that each has its own neighbours every time; ready to be sampled again and again.

    times   a copy of a request costs SGLang's penalties some small device operations: a few are made, and sampled often
    """

    def __init__(self, layer: Layer, x: Any, times: int) -> None:
        self._layer = layer
        self._times = times
        reqs = [request(layer, x, row) for row in range(len(x.logits))] * times
        self.info = layer.info(reqs, x.logits.shape[1])
        tokens = x.generated.repeat(times, 1)
        for step in range(tokens.shape[1]):
            self.info.penalizer_orchestrator.cumulate_output_tokens(tokens[:, step])
        self.info.grammars = grammars(layer, x, times)
        self.info.update_regex_vocab_mask()
        self.info = self.info.copy_for_forward()  # as the scheduler hands it on
        self.info.grammars = None  # their ranks agree on a token by a collective, which a rank alone has not
        self.logits = x.logits.repeat(times, 1)
        self.positions = x.positions.repeat(times)
        self.sampler = layer.sampler()

    def sample(self, first: int) -> Any:
        """Token ids [requests, times]: the draws from the `first` on, each at a position of its own."""
        import torch

        rows = len(self.logits) // self._times
        positions = self.positions + torch.arange(first, first + self._times, device=self.logits.device).repeat_interleave(rows)
        output = self._layer.load(OUTPUT, "LogitsProcessorOutput")(next_token_logits=self.logits.clone())
        self.info.apply_logits_bias(output.next_token_logits)
        nothing = [0] * len(self.logits)
        ids = self.sampler(output, self.info, False, nothing, [None] * len(nothing), positions)
        self._layer.linker.trace.seen.clear()
        return ids.view(self._times, -1).T
