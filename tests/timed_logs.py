"""Logs as `run --timing` writes them, of an H200 that is described: two cells of three op families each."""

from __future__ import annotations

from pathlib import Path

from harness.contracts import op
from harness.store.results import Result, ResultLog
from harness.store.timing import Kernel, Timing

H200 = {"name": "NVIDIA H200", "arch": "sm_90", "memory_mib": "143771", "driver": "580.159", "units": "132"}
DEVICE = "nvidia-h200-sm-90-143771mib"
MI300 = {"name": "AMD Instinct MI300X", "arch": "gfx942", "memory_mib": "196592"}
DAY = {"x": "2026-12-01", "y": "2026-12-02", "z": "2026-12-03"}
WOBBLE = (1.0, 1.001, 0.9995)
CELLS = {
    "mla_decode[sglang_triton-b32-h12-s4096-pg64-bf16]": 95.0,
    "mla_decode[sglang_triton-b32-h16-s4096-pg64-bf16]": 90.0,
    "merge_state[sglang_triton-t4096-h12-bf16]": 20.0,
    "merge_state[sglang_triton-t4096-h16-bf16]": 25.0,
    "top_k_renorm[sglang_triton-b64-v163840-k50]": 400.0,
    "top_k_renorm[sglang_triton-b64-v163840-k20]": 390.0,
}
H12, H16, MERGE, MERGE16, TOP, TOP20 = CELLS


def result(cell: str, us: float = 0.0, *, start: str = "x", runs: int = 3, kernel: str = "_fwd_grouped_kernel_stage1", control: float = 67.0, **more) -> Result:
    """A row; timed where it has `us`."""
    name, _, rest = cell.removesuffix("]").partition("[")
    provider, _, case = rest.partition("-")
    at = f"{DAY.get(start, DAY['x'])}T12:00:00+00:00"
    timings = [
        Timing("graph", us * share, us * share, us * share, 20, "converged", control="copy", control_us=control * share, start=start, at=at)
        for share in WOBBLE[:runs]
        if us
    ]
    if timings and kernel:
        timings[-1].kernels = (Kernel(kernel),)
    values = dict(op(name).axes.parse(case).point) if case else {}
    given = {"status": "pass", "evidence": "measured", "device": H200, "versions": {"sglang": "0.5.16", "torch": "2.11.0"}, "at": at, **more}
    return Result(cell, name, provider, case, platform="cuda", timings=timings, values=values, **given)


def log(path: Path, *rows: Result, start: str = "x", scale: float = 1.0, **more: float) -> str:
    """A log of all cells on a machine start, as its path; `rows` stand instead of those of their cells."""
    known = {row.cell: row for row in rows}
    with ResultLog(path) as file:
        for cell, us in CELLS.items():
            file.append(known.pop(cell) if cell in known else result(cell, us * scale, start=start, **more))
        for row in known.values():
            file.append(row)
    return str(path)
