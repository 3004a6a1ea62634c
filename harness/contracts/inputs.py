"""Inputs that are bit-equal on every device and platform: a counter-based integer hash and exact arithmetic, no RNG, no exp.

The hash is the splitmix64 finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.contracts._torch import torch

if TYPE_CHECKING:
    from harness.contracts.axes import Case

_GOLDEN = -7046029254386353131  # 0x9e3779b97f4a7c15 as int64
_MIX1 = -4658895280553007687  # 0xbf58476d1ce4e5b9
_MIX2 = -7723592293110705685  # 0x94d049bb133111eb

_MASK = (1 << 64) - 1
_CHUNK = 1 << 26  # elements hashed at once: int64 takes up to eight times the memory of what it hashes

DTYPES = ("fp32", "fp16", "bf16")


def dtype_of(word: str) -> torch.dtype:
    """The torch dtype of an axis word (`fp32`, `fp16`, `bf16`)."""
    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[word]


# fp8 flavour -> the axis words that mean it
FLAVOURS = {"e4m3fn": frozenset({"e4m3fn", "allfp8", "packed"}), "e4m3fnuz": frozenset({"e4m3fnuz", "allfnuz"})}


def flavour_of(arch: str) -> str:
    """The fp8 flavour that a device computes in: e4m3fnuz on gfx940 to gfx942, e4m3fn elsewhere."""
    return "e4m3fnuz" if arch.startswith("gfx94") else "e4m3fn"


def _shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def mix(counter: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser on int64, wrapping; the same bits on every device."""
    z = counter * _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def hashed(key: str, count: int) -> list[int]:
    """The first `bits(count)` of Draw(key) as unsigned integers, in plain Python: for what must not import torch."""

    def mixed(counter: int) -> int:
        z = counter * (_GOLDEN & _MASK) & _MASK
        z = (z ^ z >> 30) * (_MIX1 & _MASK) & _MASK
        z = (z ^ z >> 27) * (_MIX2 & _MASK) & _MASK
        return z ^ z >> 31

    base = mixed(((zlib.crc32(key.encode()) << 20) + 0x632BE5AB) & 0x7FFFFFFFFFFFFFFF)
    return [mixed(base + i & _MASK) for i in range(count)]


class Draw:
    """A stream of hashed values for one case. Each call uses the next stream, so the order of calls matters and nothing else."""

    def __init__(self, key: str, seed: int = 0, device: str = "cpu") -> None:
        self.device = device
        self._key = (zlib.crc32(key.encode()) << 20) ^ (seed * 0x1F123BB5)
        self._stream = 0

    def bits(self, *shape: int) -> torch.Tensor:
        """int64 hash bits, all 64 of them random."""
        self._stream += 1
        count = 1
        for size in shape:
            count *= size
        base = mix(torch.tensor((self._key + self._stream * 0x632BE5AB) & 0x7FFFFFFFFFFFFFFF, dtype=torch.int64))
        counter = torch.arange(count, dtype=torch.int64, device=self.device)
        return mix(counter + int(base)).view(shape)

    def integers(self, *shape: int, low: int, high: int) -> torch.Tensor:
        """int64 in [low, high)."""
        return _shift(self.bits(*shape), 24) % (high - low) + low

    def uniform(self, *shape: int) -> torch.Tensor:
        """fp32 in [0, 1), multiples of 2^-24."""
        return _shift(self.bits(*shape), 40).to(torch.float32) * 2.0**-24

    def normal(self, *shape: int, dtype: torch.dtype | None = None, scale: float = 1.0) -> torch.Tensor:
        """Nearly normal values (sum of four 16-bit fields), standard deviation 1.155 * scale, exact in fp32; `scale` a power of two."""
        bits = self.bits(*shape)
        total = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + ((bits >> 48) & 0xFFFF) - 131070
        return (total.to(torch.float32) * (scale * 2.0**-15)).to(dtype or torch.float32)

    def permutation(self, count: int) -> torch.Tensor:
        """int64 permutation of range(count)."""
        return torch.argsort(self.bits(count), stable=True)


class Inputs:
    """What a provider receives: the case and its tensors and scalars as attributes (`x.probs`, `x.top_k`, `x.case`).

    Attributes are in the contract's canonical layout; contracts subclass it to add cheap views for libraries that want
    another. `device` is a torch device string.
    """

    def __init__(self, case: Case, device: str, **fields: Any) -> None:
        self.case = case
        self.device = device
        self.__dict__.update(fields)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and tensor of each input; a list of tensors as one, joined."""
        for name, value in self.__dict__.items():
            if isinstance(value, torch.Tensor):
                yield name, value
            elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                yield name, torch.cat([part.reshape(-1) for part in value])

    def copy_with(self, **fields: Any) -> Inputs:
        """The same inputs with some fields replaced: shallow, but for lists, which a call may empty."""
        clone = object.__new__(type(self))
        clone.__dict__.update({name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()})
        clone.__dict__.update(fields)
        return clone


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """A 0-d int64 on the tensor's device: a hash of its bits and positions, summed exactly (any order gives the same)."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    raw = flat.view(torch.uint8) if flat.dtype == torch.bool or flat.element_size() == 1 else flat
    views = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    ints = raw.view(views[raw.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start in range(0, ints.numel(), _CHUNK):
        part = ints[start : start + _CHUNK].to(torch.int64)
        counter = torch.arange(start, start + part.numel(), dtype=torch.int64, device=tensor.device)
        total += ((part + 0x5BD1E995) * (counter * 2 + _GOLDEN)).sum()
    return total
