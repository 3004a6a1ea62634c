"""What is kept of a compiled cell: one row a cell and target, one entry a kernel. Figures are the compiler's; nothing was run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# how a cell ended: `compiled`; `unsupported` (the library has it not, or not for this target); the rest are findings
STATUSES = ("compiled", "unsupported", "refused", "build-failed", "timeout", "crash")


class Kernel(msgspec.Struct, omit_defaults=True, frozen=True):
    """A kernel as it was compiled for one launch of the cell.

    name            as in the binary; a second specialisation in the same cell is `name#2`
    place           file under the package's folder, and line
    registers       a thread: VGPRs, accumulation VGPRs included, on AMD; `agpr`: how many of them those are; `sgpr` a wave
    vector_spills, scalar_spills   registers spilled (AMD)
    scratch         bytes of private memory a thread: AMD's scratch, NVIDIA's stack
    shared          bytes of LDS or shared memory a block, as Triton asks for it at load
    dots            dot operations in Triton's own representation
    matrix          matrix instructions in the code, by how their names begin
    code            bytes of machine code
    fp8             fp8 formats among the parameters
    limit           bytes a block may have, where the kernel asks for more and the loader would refuse it
    error           why it could not be compiled
    digest          of the binary
    tried           configurations that an autotuner compiled before this one
    """

    name: str
    place: str
    arch: str = ""
    registers: int = 0
    agpr: int = 0
    sgpr: int = 0
    vector_spills: int = 0
    scalar_spills: int = 0
    scratch: int = 0
    shared: int = 0
    dots: int = 0
    matrix: dict[str, int] = {}
    code: int = 0
    fp8: tuple[str, ...] = ()
    limit: int = 0
    error: str = ""
    digest: str = ""
    tried: int = 0
    seconds: float = 0.0


class Row(msgspec.Struct):
    """A cell on a target. `evidence` is always `compiled`; `seconds`: spent on the cell; `notes`: how it was reached."""

    cell: str
    target: str
    status: str
    detail: str = ""
    kernels: list[Kernel] = []
    notes: list[str] = []
    evidence: str = "compiled"
    seconds: float = 0.0


def numbered(kernels: Iterable[Kernel]) -> list[Kernel]:
    """The distinct kernels in order of their first launch, later ones of the same name marked `#2`, `#3`."""
    seen: dict[tuple[str, str], Kernel] = {}
    counts: dict[str, int] = {}
    for kernel in kernels:
        key = (kernel.name, kernel.digest or kernel.error)
        if key not in seen:
            counts[kernel.name] = counts.get(kernel.name, 0) + 1
            number = counts[kernel.name]
            seen[key] = kernel if number == 1 else msgspec.structs.replace(kernel, name=f"{kernel.name}#{number}")
    return list(seen.values())
