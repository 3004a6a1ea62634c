"""Triton's interpreter made strict: what a kernel touches beside its tensors is named, and masked lanes hold no zeros."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.platforms import worker_environment

pytest.importorskip("triton")

KERNELS = """
import json, sys
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice
from harness.machine.interpreted import strict
from harness.machine.memory import Guarded, Scratch

@triton.jit
def copies(source, target, n, read: tl.constexpr, write: tl.constexpr, other: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if read == 0:
        value = tl.load(source + at)
    elif other:
        value = tl.load(source + at, mask=at < n + read - 1, other=0.0)
    else:
        value = tl.load(source + at, mask=at < n + read - 1)
    total = tl.sum(value) + tl.max(value)
    tl.store(target + at, total + 0 * at, mask=at < n + write)

@triton.jit
def follows(table, target):
    address = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(target, tl.load(address))

@triton.jit
def counts(target, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(target + at, 1, mask=at < n)

@triton.jit
def claims(target, BLOCK: tl.constexpr):
    tl.store(target + tl.arange(0, BLOCK), tl.program_id(0) * 3 + tl.program_id(1))

def claimed(*grid):
    scratch = Scratch("cpu")
    with strict(scratch, lambda: []):
        target = torch.zeros(2, dtype=torch.int32)
        claims[grid](target, 2)
    return int(target[0])

@triton.jit
def twice(value):
    return value + value

@triton.jit
def logarithms(source, target, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(target + at, twice(libdevice.log1p(tl.load(source + at))) + tl.cdiv(BLOCK, BLOCK))

def logarithm():
    source, target, held = torch.tensor([0.0, 1.0, 1e-7, -0.5]), torch.empty(4), libdevice.log1p
    for _ in range(2):  # what a first launch took out again is put in for the second
        with strict(Scratch("cpu"), lambda: []):
            logarithms[(1,)](source, target, 4)
    return torch.allclose(target, 2 * torch.log1p(source) + 1, rtol=1e-6, atol=0), libdevice.log1p is held

def copied(read, write, other):
    scratch, source = Scratch("cpu"), torch.ones(5)
    with strict(scratch, lambda: []), Guarded(scratch):
        target = torch.empty(5)
        copies[(1,)](source, target, 5, read, write, other, 8)
    return scratch.strayed, scratch.trespassed() == scratch.strayed, bool((target == 6).all())

def followed(known):
    scratch, source = Scratch("cpu"), torch.ones(5)
    with strict(scratch, lambda: [source] if known else []):
        target = torch.zeros(1)
        follows[(1,)](torch.tensor([source.data_ptr()]), target)
    return scratch.strayed, float(target) == 1

def counted(n):
    scratch = Scratch("cpu")
    with strict(scratch, lambda: []):
        target = torch.zeros(5, dtype=torch.int32)
        counts[(1,)](target, n, 8)
    return scratch.strayed, target.tolist()

names = {"copied": copied, "followed": followed, "counted": counted, "claimed": claimed, "logarithm": logarithm}
print(json.dumps([names[name](*arguments) for name, *arguments in json.loads(sys.argv[1])]))
"""


def interpreted(folder: Path, *calls: list) -> list:
    """What the functions of the script above give, in a process under the interpreter."""
    script = folder / "script.py"
    script.write_text(KERNELS)
    env = {**os.environ, **worker_environment("cpu")}
    done = subprocess.run([sys.executable, script, json.dumps(calls)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kernel_may_touch_its_tensors_and_nothing_else(tmp_path):
    right, over, unmasked, wide, poisoned, known, unknown, counted, beyond = interpreted(
        tmp_path,
        ["copied", 1, 0, True],
        ["copied", 2, 0, True],
        ["copied", 0, 0, True],
        ["copied", 1, 1, True],
        ["copied", 1, 0, False],
        ["followed", True],
        ["followed", False],
        ["counted", 5],
        ["counted", 6],
    )
    assert right == ["", True, True]
    assert over == ["kernel copies read 1 of 6 elements outside the tensors it was given", True, False]
    assert unmasked == ["kernel copies read 3 of 8 elements outside the tensors it was given", True, False]
    assert wide == ["kernel copies wrote 1 of 6 elements outside the tensors it was given", True, True]
    assert poisoned == ["", True, False], "a masked lane without other holds no zero"
    assert known == ["", True], "an address from a table"
    assert unknown[0].startswith("kernel follows read 1 of 1")
    assert counted == ["", [1] * 5]
    assert beyond == ["kernel counts updated 1 of 6 elements outside the tensors it was given", [1] * 5]


def test_an_even_number_of_programs_runs_backwards(tmp_path):
    assert interpreted(tmp_path, ["claimed", 2, 3], ["claimed", 3, 3]) == [0, 8]


def test_log1p_of_libdevice_is_numpys_while_a_cell_runs(tmp_path):
    assert interpreted(tmp_path, ["logarithm"]) == [[True, True]]
