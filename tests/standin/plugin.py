"""A plugin that lets AITER's providers run on this CPU, on the stand-in: `--plugin tests/standin/plugin.py`, with its folder on PYTHONPATH.

Only they are changed: each also serves `cpu`, its rows say that a stand-in was executed, and its gates are those of the architecture
that the stand-in plays.
"""

from __future__ import annotations

import dataclasses

from aiter.jit.utils.chip_info import get_gfx

from harness.providers import libraries, registry


def served(provider: registry.Provider) -> registry.Provider:
    """The provider as it stands on the stand-in."""
    gate, kernels, arch = provider.gate, provider.kernels, get_gfx()
    return dataclasses.replace(
        provider,
        platforms=provider.platforms | {"cpu"},
        notes=(*provider.notes, f"AITER stand-in playing {arch} on a CPU: no kernel of AITER's ran"),
        gate=(lambda case, _: gate(case, arch)) if gate else None,
        kernels=(lambda case, _: kernels(case, arch)) if kernels else None,
    )


libraries._found.cache_clear()
for key, declared in list(registry.providers().items()):
    if declared.library.name == "aiter":
        registry._providers[key] = served(declared)
