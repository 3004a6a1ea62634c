"""Small packages for the tests of the symbols scan: a sampler that one platform leaves without a name."""

from __future__ import annotations

import textwrap
from pathlib import Path

from harness.offline.symbols.facts import load_config, load_scenarios
from harness.offline.symbols.package import hits_of
from harness.offline.symbols.scan import Hit
from harness.offline.symbols.tree import Tree

FOLDER = Path(__file__).parents[1] / "cases" / "symbols"
CONFIG, SCENARIOS = load_config(FOLDER / "sglang.toml"), load_scenarios(FOLDER / "scenarios.toml")

COMMON = """
import torch
def is_cuda(): return torch.cuda.is_available() and torch.version.cuda is not None
def is_hip(): return torch.version.hip is not None
class LazyImport:
    def __init__(self, module_name, class_name): pass
"""
SAMPLER = """
    from sglang.srt.utils import is_cuda, is_hip, LazyImport
    _is_cuda = is_cuda()
    _is_hip = is_hip()
    {head}

    class Sampler:
        def __init__(self, args):
            self.args = args
        def forward(self, probs, k, flag):
{body}

    def make(args):
        return Sampler(args).forward(args.probs, 1, args.flag)

    ENTRY = make
"""
BOUND_ON_CUDA = "if is_cuda():\n        from sgl_kernel import topk"


def package(tmp_path: Path, **modules: str) -> Tree:
    """A package `sglang` whose modules are these texts; `srt.layers.sampler` is named `sampler`."""
    names = {"sampler": "srt/layers/sampler.py", "utils": "srt/utils.py", "eagle": "srt/speculative/eagle.py", "kernels": "kernels/ops/sampling/renorm.py"}
    for name, text in {"utils": COMMON, **modules}.items():
        path = tmp_path / "sglang" / names.get(name, f"srt/{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        for parent in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / parent / "__init__.py").touch()
    return Tree(tmp_path, "sglang", CONFIG.leave)


def hits(tree: Tree, scenario: str = "hip") -> list[Hit]:
    chosen = SCENARIOS[scenario]
    return hits_of(tree, CONFIG, chosen, SCENARIOS[chosen.reference])


def sampler(tmp_path: Path, head: str, body: str, **modules: str) -> list[Hit]:
    return hits(package(tmp_path, sampler=SAMPLER.format(head=head, body=textwrap.indent(textwrap.dedent(body), " " * 12)), **modules))


NAME, NONE = BOUND_ON_CUDA, BOUND_ON_CUDA + "\n    else:\n        topk = None"
