"""The symbols scan on small packages: each failure, and each guard that keeps it silent."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from symbols_packages import CONFIG, FOLDER, NAME, NONE, SAMPLER, SCENARIOS, hits, package, sampler

from harness.offline.symbols.facts import load_config
from harness.offline.symbols.package import hits_of
from harness.offline.symbols.tree import Tree
from harness.offline.symbols.world import World


@pytest.mark.parametrize(
    ("head", "body", "failure"),
    [
        (NAME, "return topk(probs, k)", "NameError"),
        (NONE, "return topk(probs, k)", "TypeError"),
        (NONE, "return topk.default(probs, k)", "AttributeError"),
        ("try:\n        from flashinfer.sampling import topk\n    except ImportError:\n        topk = None", "return topk(probs, k)", "TypeError"),
        (
            "if is_cuda():\n        topk = LazyImport('flashinfer.sampling', 'topk')\n    else:\n        topk = LazyImport('flashinfer.other', 'topk')",
            "topk(probs)",
            "ImportError",
        ),
        ("import sgl_kernel", "return sgl_kernel.top_k_renorm_prob(probs, k)", "unregistered operator"),
        ("import torch", "return torch.ops.sgl_kernel.top_k_renorm_probs.default(probs, k)", "unregistered operator"),
        ("import sglang.srt.other as other", "return other.topk(probs, k)", "AttributeError"),
        ("from sglang.srt.other import nothing", "return nothing(probs, k)", "TypeError"),
        (NAME, "pick = topk\n    return pick(probs)".replace("\n    ", "\n"), "NameError"),
        (NONE, "pick = topk if k else None\nreturn pick(probs)", "TypeError"),
        (NONE, "def inner():\n    return topk(probs)\nreturn inner()", "TypeError"),
        (NONE, "return [topk(p) for p in probs]", "TypeError"),
        (NONE, "pick = topk if k else print\nreturn pick(probs)", "TypeError"),
        (NONE, "if k:\n    pick = topk\nelse:\n    pick = self.args.pick\nreturn pick(probs)", "TypeError"),
    ],
)
def test_each_failure_is_found(tmp_path: Path, head: str, body: str, failure: str) -> None:
    other = "from sglang.srt.utils import is_cuda\nif is_cuda():\n    def topk(p, k): return p\n    nothing = topk\nelse:\n    nothing = None\n"
    found = sampler(tmp_path, head, body, other=other)
    assert [(hit.function, hit.failure) for hit in found] == [("Sampler.forward", failure)]
    assert any("make" in link for link in found[0].chain), found[0].chain


@pytest.mark.parametrize(
    "body",
    [
        "if _is_cuda:\n    return topk(probs, k)",
        "if _is_hip:\n    return probs\nreturn topk(probs, k)",
        "if not _is_cuda:\n    raise RuntimeError('not here')\nreturn topk(probs, k)",
        "assert is_cuda()\nreturn topk(probs, k)",
        "if topk is not None:\n    return topk(probs, k)",
        "if topk is None:\n    return probs\nreturn topk(probs, k)",
        "return topk(probs, k) if topk else probs",
        "return topk is not None and topk(probs, k)",
        "return topk and flag and topk(probs)",
        "try:\n    return topk(probs, k)\nexcept TypeError:\n    return probs",
        "while _is_cuda:\n    topk(probs)",
        "def inner():\n    return topk(probs)\nif _is_cuda:\n    return inner()",
        "topk = probs.topk\nreturn topk(k)",
        "return [topk(p) for p in probs if _is_cuda]",
        "kind = 'a' if _is_cuda else 'b'\nif kind == 'a':\n    return topk(probs)",
        "if k:\n    pick = topk\nelse:\n    pick = print\nif pick is not None:\n    return pick(probs)",
        "pick = print if flag else topk\nif flag:\n    return probs\nif not _is_hip:\n    return pick(probs)",
        "if not flag and not _is_cuda:\n    return probs\npick = print if flag else topk\nreturn pick(probs)",
        "flag, other = (1, 2) if _is_hip else (3, 4)\nif not _is_hip and flag:\n    return topk(probs)",
    ],
)
def test_each_guard_keeps_it_silent(tmp_path: Path, body: str) -> None:
    assert sampler(tmp_path, NONE, body) == []


def test_a_flag_that_follows_from_the_import_is_a_guard(tmp_path: Path) -> None:
    head = "READY = False\n    try:\n        from flashinfer.sampling import topk\n        READY = True\n    except ImportError:\n        topk = None"
    head += "\n    def ready():\n        return READY"
    assert sampler(tmp_path / "a", head, "if not ready():\n    return probs\nreturn topk(probs, k)") == []
    assert sampler(tmp_path / "b", head.replace("READY = True", "pass"), "if ready():\n    return probs\nreturn topk(probs, k)") != []


def test_what_no_caller_reaches_is_silent(tmp_path: Path) -> None:
    text = textwrap.dedent(SAMPLER.format(head=NAME, body=" " * 12 + "return topk(probs, k)"))
    assert hits(package(tmp_path / "a", sampler=text.replace("ENTRY = make", ""))) == []
    guarded = text.replace("    return Sampler(args)", "    if _is_cuda:\n        return Sampler(args)")
    assert hits(package(tmp_path / "b", sampler=guarded)) == []
    raising = text.replace("        self.args = args", "        if not _is_cuda:\n            raise ValueError('no')")
    assert hits(package(tmp_path / "c", sampler=raising)) == []
    assert len(hits(package(tmp_path / "d", sampler=text))) == 1


def test_what_callers_pass_counts(tmp_path: Path) -> None:
    body = "return self._inner(probs, use_fast=_is_cuda)\n" + textwrap.indent(
        "def _inner(self, probs, use_fast=True):\n    if use_fast:\n        return topk(probs)\n    return probs", ""
    )
    text = SAMPLER.format(head=NONE, body=textwrap.indent(body.split("\n", 1)[0], " " * 12) + "\n" + textwrap.indent(body.split("\n", 1)[1], " " * 8))
    assert hits(package(tmp_path / "a", sampler=text)) == []
    assert len(hits(package(tmp_path / "b", sampler=text.replace("use_fast=_is_cuda", "use_fast=_is_hip")))) == 1


def test_a_default_of_a_constructor_is_not_what_every_object_has(tmp_path: Path) -> None:
    text = SAMPLER.format(head=NAME, body=" " * 12 + "if self.fused:\n" + " " * 16 + "return topk(probs)\n" + " " * 12 + "return probs")
    text = text.replace("def __init__(self, args):", "def __init__(self, args, plain=True):").replace("self.args = args", "self.fused = not plain")
    assert [hit.failure for hit in hits(package(tmp_path, sampler=text))] == ["NameError"]


def test_a_predicate_tells_its_caller_what_it_asked(tmp_path: Path) -> None:
    """A choice of ROCm by a function of one expression leaves only the way on which a local flag holds."""
    head = NONE + "\n    def greedy(all_greedy, hip, rejection):\n        return all_greedy or (hip and not rejection)"
    body = "if greedy(all_greedy=probs, hip=_is_hip, rejection=flag):\n    return probs\npick = print if flag else topk\nreturn pick(probs)"
    assert sampler(tmp_path / "a", head, body) == []
    assert [hit.failure for hit in sampler(tmp_path / "b", head, body.replace("hip=_is_hip", "hip=False"))] == ["TypeError"]


@pytest.mark.parametrize("gone", ["", "fast = None"])
def test_what_only_this_platform_runs_needs_no_binding_on_the_other(tmp_path: Path, gone: str) -> None:
    body = "if _is_hip:\n    return fast(probs)\nreturn probs"
    assert sampler(tmp_path / "a", "if _is_hip:\n        from aiter import fast", body) == []
    assert [hit.symbol for hit in sampler(tmp_path / "b", gone, body)] == ["sglang.srt.layers.sampler:fast"]
    assert sampler(tmp_path / "c", gone, body.replace("_is_hip", "flag")) == []  # it fails on both


def test_a_name_that_the_top_of_a_module_does_not_find(tmp_path: Path) -> None:
    found = sampler(tmp_path, "if _is_cuda:\n        READY = True\n    fast = print if READY else None", "return probs")
    assert [(hit.function, hit.failure, hit.symbol) for hit in found] == [("<module>", "NameError", "sglang.srt.layers.sampler:READY")]


def test_the_default_of_a_data_class_is_one_of_its_values(tmp_path: Path) -> None:
    head = NONE + "\n    from dataclasses import dataclass\n    @dataclass\n    class Choice:\n        fused: bool = False\n    CHOICE = Choice({})"
    body = "if CHOICE.fused:\n    return topk(probs)\nreturn probs"
    assert sampler(tmp_path / "a", head.format(""), body) == []
    assert [hit.failure for hit in sampler(tmp_path / "b", head.format("fused=True"), body)] == ["TypeError"]


def test_a_platform_twin(tmp_path: Path) -> None:
    text = (
        SAMPLER.format(head=NAME, body=" " * 12 + "return self.run(probs)")
        .replace("def forward(", "def forward_cuda(")
        .replace("return self.run(probs)", "return topk(probs)")
    )
    text = text.replace(".forward(args.probs, 1, args.flag)", "")
    assert [hit.function for hit in hits(package(tmp_path / "a", sampler=text))] == ["Sampler.forward_cuda"]
    twin = text.replace("        def forward_cuda(", "        def forward_hip(self, probs, k, flag):\n            return probs\n        def forward_cuda(")
    assert hits(package(tmp_path / "b", sampler=twin)) == []


def test_the_explicit_flag_is_a_tier_of_its_own(tmp_path: Path) -> None:
    body = "backend = self.args.sampling_backend\nif backend == '{}':\n    return topk(probs, k)"
    assert [(hit.tier, hit.needs) for hit in sampler(tmp_path / "a", NAME, body.format("flashinfer"))] == [
        ("explicit-flag", ("--sampling-backend flashinfer",))
    ]
    assert [hit.tier for hit in sampler(tmp_path / "b", NAME, body.format("pytorch"))] == ["default"]
    assert sampler(tmp_path / "c", NAME, body.format("intel_xpu")) == []


def test_a_field_of_a_flag_that_starts_as_none_is_the_flag(tmp_path: Path) -> None:
    """The resolved flags of some versions are a class of fields that another module fills."""
    flags = "class Flags:\n    sampling_backend: str | None = None\n_FLAGS = Flags()\ndef get_flags(): return _FLAGS\n"
    body = "if get_flags().sampling_backend == 'flashinfer':\n    return topk(probs, k)"
    found = sampler(tmp_path, "from sglang.srt.flags import get_flags\n    " + NAME, body, flags=flags)
    assert [(hit.tier, hit.needs) for hit in found] == [("explicit-flag", ("--sampling-backend flashinfer",))]


def test_an_import_at_the_top_of_a_name_that_is_not_there(tmp_path: Path) -> None:
    other = "from sglang.srt.utils import is_cuda\nif is_cuda():\n    def topk(p): return p\n"
    found = hits(package(tmp_path, sampler="from sglang.srt.other import topk\n", other=other))
    assert [(hit.function, hit.failure, hit.symbol) for hit in found] == [("<module>", "ImportError", "sglang.srt.other:topk")]


EAGLE = """
    from sglang.srt.utils import is_hip
    import torch, logging
    logger = logging.getLogger()
    _is_hip = is_hip()
    def _greedy(all_greedy, hip, rejection):
        return all_greedy or {condition}
    def sample(info, logits):
        {say}
        if {test}:
            out = torch.argmax(logits)
        else:
            out = torch.multinomial(torch.softmax(logits, -1), 1)
        return out
    ENTRY = sample
"""


@pytest.mark.parametrize(
    ("test", "condition", "when"),
    [
        ("info.all or _is_hip", "hip", "always"),
        ("info.all", "hip", None),
        ("_greedy(info.all, _is_hip, info.rejection)", "hip", "always"),
        ("_greedy(all_greedy=info.all, hip=_is_hip, rejection=info.rejection)", "(hip and not rejection)", "not rejection"),
        ("_greedy(info.all, False, info.rejection)", "(hip and not rejection)", None),
    ],
)
def test_silently_greedy(tmp_path: Path, test: str, condition: str, when: str | None) -> None:
    found = hits(package(tmp_path, eagle=EAGLE.format(test=test, condition=condition, say="pass")))
    assert [(hit.failure, hit.symbol) for hit in found] == ([("silently greedy", f"argmax when {when}")] if when else [])


def test_greedy_with_a_warning_is_not_silent(tmp_path: Path) -> None:
    text = EAGLE.replace("_is_hip", "LACKING")
    say = "if LACKING:\n            logger.warning('greedy here')"
    assert hits(package(tmp_path / "a", eagle=text.format(test="info.all or LACKING", condition="hip", say=say))) == []
    assert hits(package(tmp_path / "b", eagle=text.format(test="info.all or LACKING", condition="hip", say="pass"))) != []


def test_operators_without_a_kernel(tmp_path: Path) -> None:
    text = """
        _HERE = frozenset({Capability.CUDA, Capability.HIP})
        for _fn in ("a", "b"):
            register_kernel(KernelSpec(op=f"sampling.{_fn}", backend=Backend.TRITON, target="x:y"))
        register_kernel(KernelSpec(op="sampling.both", backend=Backend.JIT, capabilities=_HERE))
        register_kernel(KernelSpec(op="sampling.lone", backend=Backend.JIT, capabilities=CUDA_ONLY))
        register_kernel(KernelSpec(op="gemm.lone", backend=Backend.JIT, capabilities=CUDA_ONLY))
        register_kernel(KernelSpec(op="sampling.two", backend=Backend.AOT, capabilities=frozenset({Capability.cuda(min_sm=(9, 0))})))
        register_kernel(KernelSpec(op="sampling.two", backend=Backend.AITER, capabilities=frozenset({Capability.HIP})))
    """
    found = hits(package(tmp_path, kernels=text))
    assert [(hit.symbol, hit.failure) for hit in found] == [("sampling.lone", "no kernel")]


def test_another_package_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("from .ops import *\n")
    (tmp_path / "aiter" / "ops.py").write_text("def mla_stage1(q): pass\n")
    (tmp_path / "aiter" / "mla.py").write_text("import aiter\ndef decode(q, hk):\n    if hk:\n        return aiter.hk_mla(q)\n    return aiter.mla_stage1(q)\n")
    config = load_config(FOLDER / "aiter.toml")
    found = hits_of(Tree(tmp_path, "aiter", config.leave), config, SCENARIOS["hip"], SCENARIOS["cuda"])
    assert [(hit.function, hit.symbol, hit.failure) for hit in found] == [("decode", "aiter:hk_mla", "AttributeError")]


def test_the_predicates_follow_from_torch_where_the_facts_do_not_answer(tmp_path: Path) -> None:
    tree = package(tmp_path, other="from sglang.srt.utils import is_cuda\nON = is_cuda()\n")
    for name, wanted in (("hip", "False"), ("cuda", "True")):
        bare = SCENARIOS[name].__class__(**{**SCENARIOS[name].__dict__, "answers": {}})
        assert wanted in repr(World(tree, bare, CONFIG).lookup("sglang.srt.other", "ON"))
