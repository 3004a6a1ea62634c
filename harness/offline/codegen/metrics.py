"""The figures of a compiled kernel, read from its assembly and metadata."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from typing import Any

from harness.errors import HarnessError
from harness.machine.launches import Launch
from harness.offline.codegen.rows import Kernel
from harness.offline.targets import Target

_FP8 = {"fp8e4nv": "e4m3fn", "fp8e4b8": "e4m3fnuz", "fp8e5": "e5m2", "fp8e5b16": "e5m2fnuz", "fp8e4b15": "e4m3b15"}
_DOT = re.compile(r"\btt\.dot(?:_scaled)?\b")
_AMD = {
    "registers": re.compile(r"^\s+\.vgpr_count:\s+(\d+)", re.M),
    "agpr": re.compile(r"^\s+-?\s*\.agpr_count:\s+(\d+)", re.M),
    "sgpr": re.compile(r"^\s+\.sgpr_count:\s+(\d+)", re.M),
    "vector_spills": re.compile(r"^\s+\.vgpr_spill_count:\s+(\d+)", re.M),
    "scalar_spills": re.compile(r"^\s+\.sgpr_spill_count:\s+(\d+)", re.M),
    "scratch": re.compile(r"^\s+\.private_segment_fixed_size:\s+(\d+)", re.M),
    "code": re.compile(r"^; codeLenInByte = (\d+)", re.M),
}
_AMD_ARCH = re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa-[^"]*-(gfx\w+)', re.M)
_PTX_ARCH = re.compile(r"^\.target\s+(sm_\d+)", re.M)
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")


def kernel_of(launch: Launch, target: Target, root: str) -> Kernel:
    """The launch's row. Raises HarnessError where the artefact is not one of the target: then every figure would be another machine's."""
    place = launch.place.removeprefix(root.rstrip("/") + "/")
    if launch.compiled is None:
        return Kernel(name=launch.kernel, place=place, error=" ".join(launch.error.split())[:300], seconds=round(launch.seconds, 2))
    asm = launch.compiled.asm
    figures = _amd(asm["amdgcn"]) if target.hip else _nvidia(asm)
    arch = figures.pop("arch")
    if target.id not in (arch, launch.target) or arch != launch.target:
        raise HarnessError(f"{launch.kernel} was compiled for {arch or 'nothing known'}, not for {target.id}")
    shared = launch.compiled.metadata.shared
    return Kernel(
        name=launch.kernel,
        place=place,
        arch=arch,
        shared=shared,
        limit=target.shared_limit if launch.error and shared > target.shared_limit else 0,
        dots=len(_DOT.findall(asm["ttir"])),
        matrix=_count(asm["amdgcn" if target.hip else "ptx"], target.matrix),
        fp8=tuple(sorted({_FP8[word] for word in re.findall(r"fp8\w+", " ".join(map(str, launch.signature.values())))})),
        digest=hashlib.sha256(launch.compiled.kernel).hexdigest()[:16],
        seconds=round(launch.seconds, 2),
        **figures,
    )


def _count(text: str, names: tuple[str, ...]) -> dict[str, int]:
    """How many lines begin with each of the instructions; a PTX predicate may stand before it."""
    counts = {name: len(re.findall(rf"^\s+(?:@!?%?\w+\s+)?{re.escape(name)}", text, re.M)) for name in names}
    return {name: count for name, count in counts.items() if count}


def _amd(text: str) -> dict[str, Any]:
    found = {name: pattern.search(text) for name, pattern in _AMD.items()}
    lost = [name for name, match in found.items() if match is None]
    if lost:
        raise HarnessError(f"this Triton's AMD assembly does not say {', '.join(lost)}")
    arch = _AMD_ARCH.search(text)
    return {"arch": arch[1] if arch else "", **{name: int(match[1]) for name, match in found.items() if match}}


def _nvidia(asm: Any) -> dict[str, Any]:
    """Registers and stack from the cubin, by the cuobjdump that comes with Triton; the code size from its sections."""
    from triton import knobs

    cubin = asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True)
    usage = _USAGE.search(done.stdout)
    if usage is None:
        raise HarnessError(f"cuobjdump says nothing of the registers: {(done.stderr or done.stdout).strip()[:200]}")
    arch = _PTX_ARCH.search(asm["ptx"])
    return {"arch": arch[1] if arch else "", "registers": int(usage[1]), "scratch": int(usage[2]), "code": _text_bytes(cubin)}


def _text_bytes(elf: bytes) -> int:
    """The size of a 64-bit ELF file's executable sections."""

    def word(offset: int, size: int) -> int:
        return int.from_bytes(elf[offset : offset + size], "little")

    start, size, count = word(0x28, 8), word(0x3A, 2), word(0x3C, 2)
    headers = (start + size * index for index in range(count))
    executable = 4
    return sum(word(at + 0x20, 8) for at in headers if word(at + 8, 8) & executable and word(at + 4, 4) == 1)
