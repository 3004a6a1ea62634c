"""Random numbers that a verification declares: from a key and a count of steps, so that every rank decides alike and the decision can be judged exactly.

Philox 4x32-10: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). MurmurHash3 as in `sampling.murmur`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from harness.contracts._torch import torch
from harness.contracts.inputs import Inputs
from harness.contracts.sampling import murmur

WORD = murmur.WORD
STEP = 0x632BE59BD9B4E019  # added to the key once a step, modulo 2^64
LEAST = 4.6566127342e-10  # of a coin, and what its 31 bits are scaled by
_A, _B, _RAISE_A, _RAISE_B = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
_TORCH_STEP, _TORCH_RANGE = 1_000_003, 1 << 63


@dataclass(frozen=True)
class Noise:
    """coins fp64 [batch, slots - 1], of which draft i is accepted where coin q < p; gumbel fp64 [batch, vocab], added to the logarithm of what
    is left, and how far rounding may move it, in the same shape."""

    coins: torch.Tensor
    gumbel: torch.Tensor
    margin: torch.Tensor


def declared(x: Inputs, name: str) -> Noise:
    """The noise of that name ("counter" or "torch") for inputs with `noise_key`, `noise_step` and a case of batch, slots and vocab."""
    made = _counter(x) if name == "counter" else _torch(x)
    return Noise(*made, 4e-6 + 1e-6 * made[1].masked_fill(made[1].isinf(), 0.0).abs())


def _counter(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Coins of Philox, counted over all slots of all requests; uniform numbers of MurmurHash3 over (seed, request, token)."""
    batch, drafts = x.case.batch, x.case.slots - 1
    seed = (int(x.noise_key) + int(x.noise_step) * STEP) % (1 << 64)
    rows = torch.arange(batch, device=x.device)
    place = rows[:, None] * x.case.slots + torch.arange(drafts, device=x.device)
    bits = philox(seed, place)
    coins = (torch.where(bits > WORD >> 1, WORD - bits, bits).float() * LEAST).double().clamp(min=LEAST)
    signed = seed - (1 << 64) if seed >> 63 else seed
    share = murmur.hashes(torch.full_like(rows, signed), rows, x.case.vocab)
    uniform = ((share.double() + 0.5) * 2.0**-32).float().double()
    return coins, -torch.log(-torch.log((1 - uniform).clamp(min=2.0**-24)))


def key_for(x: Inputs, value: int) -> torch.Tensor:
    """A key in the place of x.noise_key, int64 [1], by which the last token of request 0 has that hash for noise "counter"."""
    high = int(x.noise_key) >> 32
    while True:
        seed = high << 32 | murmur.seed_for(value, 0, x.case.vocab - 1, high)
        key = (seed - int(x.noise_step) * STEP) % (1 << 64)
        if key < 1 << 63:  # as keys are
            return torch.tensor([key], device=x.device)
        high = (high + 0x9E3779B9) & WORD


def _torch(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Coins, then uniform numbers, of a generator of PyTorch."""
    generator = torch.Generator(x.device)
    generator.manual_seed((int(x.noise_key) + int(x.noise_step) * _TORCH_STEP) % _TORCH_RANGE)
    coins = torch.rand(x.case.batch, x.case.slots - 1, generator=generator, device=x.device).double().clamp(min=LEAST)
    uniform = torch.rand(x.case.batch, x.case.vocab, generator=generator, device=x.device).double()
    return coins, -torch.log(-torch.log(uniform))


def philox(seed: int, counter: torch.Tensor) -> torch.Tensor:
    """The first of four 32-bit words, int64 in the shape of `counter`: int64 below 2^32, the other three words of which are 0."""
    words = [counter, torch.zeros_like(counter), torch.zeros_like(counter), torch.zeros_like(counter)]
    low, high = seed & WORD, seed >> 32
    for _ in range(10):
        one, three = _product(words[0], _A), _product(words[2], _B)
        words = [three[0] ^ words[1] ^ low, three[1], one[0] ^ words[3] ^ high, one[1]]
        low, high = (low + _RAISE_A) & WORD, (high + _RAISE_B) & WORD
    return words[0]


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The upper and the lower 32 bits of a product of 32-bit words, by halves: 64 bits would not fit int64."""
    upper, lower = a * (b >> 16), a * (b & 0xFFFF)
    middle = ((upper & 0xFFFF) << 16) + lower
    return (upper >> 16) + (middle >> 32), middle & WORD


def one_by_one(x: Inputs, name: str) -> tuple[list[list[float]], list[list[float]]]:
    """The second formula: coins and Gumbel noise in plain Python, but for what a generator of PyTorch gives."""
    if name == "torch":
        coins, gumbel = _torch(x)
        return coins.tolist(), gumbel.tolist()
    seed = (int(x.noise_key) + int(x.noise_step) * STEP) % (1 << 64)
    words = [[philox_one(seed, b * x.case.slots + i) for i in range(x.case.slots - 1)] for b in range(x.case.batch)]

    def gumbel_of(request: int, token: int) -> float:
        uniform = struct.unpack("f", struct.pack("f", (murmur.hash_one(seed, request, token) + 0.5) * 2.0**-32))[0]
        return -math.log(-math.log(max(1 - uniform, 2.0**-24)))

    drawn = [[max(min(word, WORD - word) * LEAST, LEAST) for word in row] for row in words]
    return drawn, [[gumbel_of(b, token) for token in range(x.case.vocab)] for b in range(x.case.batch)]


def philox_one(seed: int, counter: int) -> int:
    """The second formula: the same word in plain Python integers."""
    a, b, c, d = counter, 0, 0, 0
    low, high = seed & WORD, seed >> 32
    for _ in range(10):
        left, right = a * _A, c * _B
        a, b, c, d = right >> 32 ^ b ^ low, right & WORD, left >> 32 ^ d ^ high, left & WORD
        low, high = (low + _RAISE_A) & WORD, (high + _RAISE_B) & WORD
    return a
