"""MurmurHash3 (x86, 32 bits) of four words, as seeded samplers use it: seed low, seed high, position, column.

Appleby, MurmurHash3, public domain, 2011. The hash can be run backwards, which gives the seeds of the unlucky rows.
"""

from __future__ import annotations

from harness.contracts._torch import torch

WORD = 0xFFFFFFFF
_C1, _C2, _F1, _F2, _ADD = 0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35, 0xE6546B64
_LENGTH = 16


def hashes(seeds: torch.Tensor, positions: torch.Tensor, columns: int) -> torch.Tensor:
    """int64 [rows, columns] hashes in [0, 2^32) of int64 seeds [rows], positions [rows] and columns 0 to columns - 1."""

    def rotate(x: torch.Tensor, by: int) -> torch.Tensor:
        return ((x << by) | (x >> (32 - by))) & WORD

    def mixed(h: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        h = h ^ ((rotate((k * _C1) & WORD, 15) * _C2) & WORD)
        return (rotate(h, 13) * 5 + _ADD) & WORD

    h = torch.zeros_like(seeds)
    for word in (seeds & WORD, (seeds >> 32) & WORD, positions.long() & WORD):
        h = mixed(h, word)
    h = mixed(h[:, None], torch.arange(columns, device=seeds.device)[None, :]) ^ _LENGTH
    h = ((h ^ (h >> 16)) * _F1) & WORD
    h = ((h ^ (h >> 13)) * _F2) & WORD
    return h ^ (h >> 16)


def _rotated(x: int, by: int) -> int:
    return ((x << by) | (x >> (32 - by))) & WORD


def _scrambled(k: int) -> int:
    return _rotated(k * _C1 & WORD, 15) * _C2 & WORD


def hash_one(seed: int, position: int, column: int) -> int:
    """The second formula: one hash in plain Python integers."""
    h = 0
    for word in (seed & WORD, seed >> 32 & WORD, position & WORD, column & WORD):
        h = (_rotated(h ^ _scrambled(word), 13) * 5 + _ADD) & WORD
    h ^= _LENGTH
    for shift, factor in ((16, _F1), (13, _F2)):
        h = (h ^ h >> shift) * factor & WORD
    return h ^ h >> 16


def seed_for(value: int, position: int, column: int, high: int = 0) -> int:
    """The lower 32 bits of the seed whose upper ones are `high` and whose hash at this position and column is `value`: every step undone, from the last."""
    h = value ^ value >> 16
    h = h * pow(_F2, -1, 1 << 32) & WORD
    h ^= h >> 13 ^ h >> 26
    h = h * pow(_F1, -1, 1 << 32) & WORD
    h ^= h >> 16
    h ^= _LENGTH
    for word in (column, position, high):
        h = _rotated((h - _ADD) * pow(5, -1, 1 << 32) & WORD, 19) ^ _scrambled(word)
    scrambled = _rotated((h - _ADD) * pow(5, -1, 1 << 32) & WORD, 19)
    return _rotated(scrambled * pow(_C2, -1, 1 << 32) & WORD, 17) * pow(_C1, -1, 1 << 32) & WORD
