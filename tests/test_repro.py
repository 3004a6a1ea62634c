"""The script that `kernel-parity repro` writes shows the same verdict, without the harness."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.commands.inline import KIT, Bundle, bundle
from harness.commands.repro import Script, write_script
from harness.contracts import op
from harness.errors import UsageError
from harness.selection import find_cell

ENTRY = ("harness.providers.torch_eager.merging", "merge_state")
WRITE = "import sys; from harness.commands.repro import write_script; [write_script(c, {plugins!r}, 'cpu', 0, f'{{i}}.py') for i, c in enumerate(sys.argv[1:])]"
# as a stranger would run it: nothing of this package can be imported
ALONE = """
import os, runpy, sys, traceback
sys.modules["harness"] = None
os.environ.update(TRITON_INTERPRET="1", TORCHDYNAMO_DISABLE="1")
for script in sys.argv[1:]:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        print(f"{script} ends with {end.code}")
    except Exception as error:
        print(f"{script} raises {type(error).__name__}: {error}")
"""


def written(folder: Path, cells: Sequence[str], plugins: Sequence[str] = ()) -> list[str]:
    """Scripts 0.py, 1.py, ... of these cells, in the folder."""
    subprocess.run([sys.executable, "-c", WRITE.format(plugins=tuple(plugins)), *cells], cwd=folder, check=True)
    return [f"{i}.py" for i in range(len(cells))]


def alone(folder: Path, scripts: Sequence[str]) -> list[str]:
    """What each script printed, run one after another in one process without this package."""
    done = subprocess.run([sys.executable, "-I", "-c", ALONE, *scripts], cwd=folder, capture_output=True, text=True, check=True)
    said, rest = [], done.stdout
    for script in scripts:
        for word in (f"{script} ends with ", f"{script} raises "):
            if word in rest:
                head, _, rest = rest.partition(word)
                line, _, rest = rest.partition("\n")
                said.append(f"{head}{word.removeprefix(script).strip()} {line}")
    assert len(said) == len(scripts), done.stdout + done.stderr
    return said


def text_of(cell: str, platform: str = "cpu") -> str:
    provider, case = find_cell(cell)
    return Script(op(case.op), provider, case, platform, 0).text()


def test_each_kind_of_op_and_provider_gives_the_verdict_of_the_harness(tmp_path):
    pytest.importorskip("sglang")
    cells = {
        "merge_state[sglang_triton-t4-h12-fp16-bothempty]": "1",  # NaN where both parts are empty
        "merge_state[sglang_triton-t3-h12-fp16]": "0",
        "mla_decode[sglang_triton-b2-h12-s9-fp16]": "0",  # phased, views of the inputs, the library's own views
        "mla_decode[torch_eager-b2-h12-s9-fp32]": "0",
        "top_k_renorm[sglang_triton-b3-v111-k4]": "0",  # goes round is_cuda, judged by support
        "top_k_top_p_sample[torch_eager-b3-v111-k4-p0.9]": "0",  # draws
        "kv_write[torch_eager-t5-kv2-fp16]": "0",  # in place
        "token_bitmask[sglang_triton-b4-v111]": "0",
        "tree_verify_greedy[torch_eager-b4-n8]": "0",  # judged by the contract's own rule
    }
    said = alone(tmp_path, written(tmp_path, list(cells)))
    assert [text.rpartition(" ")[2] for text in said] == list(cells.values()), said
    assert "o: 3072 of 6144 elements wrong; greatest difference inf at index (0, 0, 0)\n  expected 0, its row [0.0," in said[0]
    assert "actual nan" in said[0]
    assert said[0].rstrip().endswith("wrong: the failure shows\nends with 1")
    assert "right: the failure does not show" in said[1]


FAULTS = '''
import os
from harness.contracts import Exact, Inputs, Work, contract, number
from harness.providers import implements

@contract("merging")
class doubled:
    """Twice x."""
    axes = (number("n", "n", "elements"),)
    outputs = ("y",)
    def inputs(self, case, draw): return Inputs(case, draw.device, x=draw.integers(case.n, low=0, high=100))
    def reference(self, x, semantics): return {"y": Exact(2 * x.x)}
    def work(self, case): return Work(case.n, 16 * case.n)

def declare(name):
    return implements("doubled", library="torch", name=name, platforms={"cpu"})

@implements("doubled", library="torch", name="right", platforms={"cpu"})
def right(x): return x.x + x.x

@implements("doubled", library="torch", name="wrong", platforms={"cpu"})
def wrong(x): return x.x + x.x + (x.x == x.x.max())

@implements("doubled", library="torch", name="raises", platforms={"cpu"})
def raises(x): raise RuntimeError(f"no kernel for {x.case.n}")

@implements("doubled", library="torch", name="aborts", platforms={"cpu"})
def aborts(x): os.abort()

@implements("doubled", library="torch", name="changes", platforms={"cpu"})
def changes(x):
    made = x.x + x.x
    x.x[0] += 1
    return made

class Buffered:
    width = 0
    def prepare(self, x, scratch): self.x, self.out = x, scratch.output("y", like=x.x)
    def run(self):
        self.out[: len(self.out) - 1].copy_(2 * self.x.x[:-1])
        self.out.as_strided((len(self.out) + self.width,), (1,))[-1] = 2 * self.x.x[-1]

@implements("doubled", library="torch", name="outside", platforms={"cpu"})
class Outside(Buffered):
    width = 1

@implements("doubled", library="torch", name="unwritten", platforms={"cpu"})
class Unwritten(Buffered):
    def run(self): self.out[1:] = 2 * self.x.x[1:]

@implements("doubled", library="torch", name="short", platforms={"cpu"})
def short(x): return (2 * x.x)[1:]
'''


def test_each_way_to_fail_shows(tmp_path):
    (tmp_path / "faults.py").write_text(FAULTS)
    ways = ("right", "wrong", "raises", "changes", "outside", "unwritten", "short", "aborts")
    scripts = written(tmp_path, [f"doubled[{way}-n5]" for way in ways], ["faults.py"])
    said = dict(zip(ways, alone(tmp_path, scripts[:-1]), strict=False))
    assert said["right"].endswith("ends with 0")
    assert "y: 1 of 5 elements wrong; greatest difference 1 at index" in said["wrong"]
    assert said["raises"] == "raises RuntimeError: no kernel for 5"
    assert "input tensors: the call changed ['x']" in said["changes"]
    assert "memory: the call wrote outside buffers of [40] bytes" in said["outside"]
    assert f"actual {0x5A5A5A5A5A5A5A5A:.9g}" in said["unwritten"]
    assert "y: expected shape (5,), an integer dtype, got (4,), torch.int64" in said["short"]
    assert all(text.endswith("ends with 1") for way, text in said.items() if way not in ("right", "raises"))
    crashed = subprocess.run([sys.executable, "-I", scripts[-1]], cwd=tmp_path, capture_output=True, check=False)
    assert crashed.returncode == -6
    text = (tmp_path / "1.py").read_text()
    assert "data = {'x': torch.tensor([" in text  # tiny inputs are numbers that can be read and changed
    assert len(text.splitlines()) < 80


def test_a_script_is_short_and_names_nothing_of_the_harness():
    text = text_of("merge_state[torch_eager-t4-h12-fp16-bothempty]")
    assert "harness" not in text.replace("kernel-parity", "")
    assert len(text.splitlines()) < 110
    assert "def copy(" not in text  # of a class, what nothing names is left out


def test_big_inputs_go_beside_the_script_and_are_never_printed(tmp_path, capsys):
    cell = "mla_decode[torch_eager-b8-h16-s300-fp32]"
    with pytest.raises(UsageError, match=r"MiB of inputs: give -o FILE\.py \(they go into FILE\.py\.pt beside it\)"):
        write_script(cell, (), "cpu", 0, None)
    write_script(cell, (), "cpu", 0, str(tmp_path / "0.py"))
    assert (tmp_path / "0.py.pt").stat().st_size > 1_000_000
    assert len((tmp_path / "0.py").read_text()) < 20_000
    assert alone(tmp_path, ["0.py"])[0].endswith("ends with 0")


def test_a_device_script_is_written_without_the_device():
    text = text_of("merge_state[flashinfer-t4-h12-fp16]", "cuda")
    assert "from flashinfer.cascade import merge_state" in text
    assert "device='cuda'" in text
    assert "TRITON_INTERPRET" not in text
    assert "TRITON_INTERPRET" in text_of("merge_state[sglang_triton-t4-h12-fp16]", "interpret")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("merge_stat[torch_eager-t4-h12-fp16]", "unknown op 'merge_stat'; nearest: merge_state"),
        ("merge_state[torch_eagr-t4-h12-fp16]", "unknown provider 'torch_eagr'; nearest: torch_eager"),
        ("merge_state[torch_eager]", "names no case"),
        ("merge_state[flashinfer-t4-h12-fp16]", "flashinfer serves cuda, not cpu: say for which the script is, with --platform"),
        ("merge_state[sglang_triton-t4-h12-bf16]", "unsupported, so there is no failure to show: Triton's interpreter has no bf16"),
        ("decode_attention[sglang_triton-b1-h1-kv1-s1-fp16-e4m3fnuz]", "Triton's interpreter does not read e4m3fnuz"),
    ],
)
def test_what_has_no_script_says_why(name, said):
    with pytest.raises(UsageError, match=said):
        write_script(name, (), "cpu", 0, None)


def test_definitions_are_followed_through_imports_and_modules():
    made = bundle(lambda into: into.require("harness.contracts.rounding", "dot_roundoff"), ENTRY)
    names = [statement.name for statement in made.statements if hasattr(statement, "name")]
    assert names == ["dot_roundoff"]
    assert list(made.imports) == ["torch"]


def test_two_definitions_of_one_name_stay_apart():
    into = Bundle(ENTRY)
    assert into.require("harness.providers.torch_eager.merging", "merge_state") == "merge_state"
    assert into.require("harness.contracts.merging.states", "merge_state") == "merge_state_2"


def test_what_is_bound_at_run_time_is_refused():
    with pytest.raises(UsageError, match="defines no 'nothing' at its top level"):
        Bundle(ENTRY).require(KIT, "nothing")


@pytest.mark.parametrize("layer", ["decode_attention[served_triton-b2-h4-kv4-s33-fp16-w7]", "served_sample[served_sampler_pytorch-b7-v64-simple]"])
def test_a_served_layer_is_no_script_and_one_line_says_what_shows_it(typed, layer):
    code, out, err = typed("repro", layer)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"see it with kernel-parity run --cell '{layer}'" in err


def test_a_case_that_is_too_large_here_is_one_line(typed):
    code, _, err = typed("repro", "merge_state[torch_eager-t999999999999-h1-fp32]")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "cannot be made here" in err
