"""The symbols scan: each guard and failure on small packages, the known bugs on real wheels, mutants of real sources, the accepted hits."""

from __future__ import annotations

import gc
import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import symbols_mutants
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import UsageError
from harness.offline.sources import find_source
from harness.offline.symbols import showing
from harness.offline.symbols.accepted import Entry, judge, load_accepted
from harness.offline.symbols.facts import load_config, load_scenarios, scenarios_of
from harness.offline.symbols.package import Report, hits_of, scan_source
from harness.offline.symbols.scan import Hit, Scan
from harness.offline.symbols.tree import Tree
from harness.offline.symbols.world import World

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


# ---- real versions ----


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The scans of two versions from the package index; kept ones are used."""
    wanted = scenarios_of([], SCENARIOS, CONFIG)
    return {v: scan_source(find_source(f"sglang=={v}"), FOLDER / "sglang.toml", FOLDER / "scenarios.toml", wanted) for v in ("0.5.16", "0.5.23")}


def _names(report: Report, part: str) -> set[tuple[str, str, str]]:
    return {(hit.symbol.rpartition(":")[2], hit.failure, hit.tier) for hit in report.hits if part in hit.file}


def test_0_5_16_has_the_renorm_ops_that_are_none(reports: dict[str, Report]) -> None:
    found = _names(reports["0.5.16"], "srt/speculative/dflash_utils.py")
    assert found == {("top_k_renorm_prob", "TypeError", "default"), ("top_p_renorm_prob", "TypeError", "default")}
    chains = [hit.chain for hit in reports["0.5.16"].hits if "dflash_utils" in hit.file]
    assert chains
    assert all(any("dspark_accept" in link for link in chain) for chain in chains)


def test_0_5_23_has_the_four_names_of_the_sampler(reports: dict[str, Report]) -> None:
    four = ("top_k_renorm_prob", "top_p_renorm_prob", "min_p_sampling_from_probs", "top_k_top_p_sampling_from_probs")
    assert _names(reports["0.5.23"], "srt/layers/sampler.py") == {(name, "NameError", "explicit-flag") for name in four}
    assert _names(reports["0.5.23"], "srt/speculative") == {("argmax when not use_rejection_sampling", "silently greedy", "default")}


def test_the_accepted_hits_are_those_found(reports: dict[str, Report]) -> None:
    entries = load_accepted(FOLDER / "accepted.toml")
    for version, report in reports.items():
        judged = judge(report, entries)
        assert not judged.new, version
        assert not judged.gone, version
        assert judged.precision >= 0.8, version
        assert len(report.functions) <= 12, version


def test_a_new_and_a_vanished_hit_both_fail(reports: dict[str, Report]) -> None:
    report, entries = reports["0.5.23"], load_accepted(FOLDER / "accepted.toml")
    fewer = [entry for entry in entries if entry.function != "Sampler._sample_from_probs"]
    assert {hit.function for hit in judge(report, fewer).new} == {"Sampler._sample_from_probs"}
    without = Report(report.label, report.package, report.version, report.scenarios, [h for h in report.hits if h.function != "Sampler._sample_from_probs"])
    assert {entry.function for entry, _ in judge(without, entries).gone} == {"Sampler._sample_from_probs"}
    assert not judge(without, entries, whole=False).gone


def test_a_kept_scan_is_quick(reports: dict[str, Report]) -> None:
    began = time.monotonic()
    again = scan_source(find_source("sglang==0.5.16"), FOLDER / "sglang.toml", FOLDER / "scenarios.toml", scenarios_of([], SCENARIOS, CONFIG))
    assert again.kept
    assert again.hits == reports["0.5.16"].hits
    assert time.monotonic() - began < 5


def caught(version: str, seeds: range) -> list[tuple[symbols_mutants.Mutant, bool]]:
    """Mutants of one version's sources, a seed each, and whether the scan reports each in its place."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        tree = Tree(find_source(f"sglang=={version}").root, "sglang", CONFIG.leave)
        plain = Scan(tree, SCENARIOS["hip"], SCENARIOS["cuda"], CONFIG)
        modules = [m for m in tree.within(CONFIG.scope) if "cutlass" not in tree.text(m)]
        outcome = []
        for seed in seeds:
            mutant = next(symbols_mutants.mutants(plain, modules, seed))
            with tree.changed(mutant.module, mutant.text):
                scan = Scan(tree, SCENARIOS["hip"], SCENARIOS["cuda"], CONFIG)
                found = scan.hits([mutant.module])
            told = any(hit.function == mutant.function and hit.symbol.rpartition(":")[2] == mutant.name for hit in found)
            outcome.append((mutant, told))
        return outcome
    finally:
        if enabled:
            gc.enable()


def test_mutants_of_real_sources_are_caught() -> None:
    missed = [mutant for mutant, told in caught("0.5.16", range(2)) if not told]
    assert not missed


# ---- the command ----


def run(*args: str) -> tuple[int, str]:
    """The command's exit code and what it prints."""
    done = CliRunner().invoke(cli, ["symbols", *args])
    assert done.exception is None or isinstance(done.exception, (SystemExit, UsageError)), done.exception
    if isinstance(done.exception, UsageError):
        return 2, str(done.exception)
    return done.exit_code, done.output


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path / "cache"))
    package(tmp_path / "old", sampler=SAMPLER.format(head="from sglang.srt.utils import is_cuda as topk", body=" " * 12 + "return topk()"))
    package(tmp_path / "new", sampler=SAMPLER.format(head=NAME, body=" " * 12 + "return topk(probs)"))
    assert run(str(tmp_path / "old"), "--platform", "hip")[0] == 0
    code, text = run(str(tmp_path / "new"), "--platform", "hip")
    assert code == 1
    assert "srt/layers/sampler.py" in text
    assert "NEW" in text
    code, text = run(str(tmp_path / "new"), "--platform", "hip", "--json")
    assert (code, json.loads(text)["functions"], json.loads(text)["hits"][0]["failure"]) == (1, 1, "NameError")
    code, text = run(str(tmp_path / "new"), "--diff", str(tmp_path / "old"), "--platform", "hip")
    assert code == 1
    assert "came: sglang/srt/layers/sampler.py" in text
    code, text = run(str(tmp_path / "old"), "--diff", str(tmp_path / "new"), "--platform", "hip", "--json")
    assert (code, len(json.loads(text)["went"])) == (0, 1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nowhere/at/all",), "no package with a configuration"),
        (("torch",), "'torch' is no package with a configuration (sglang, aiter;"),
        (("torch==2.9.0",), "(sglang, aiter;"),
        (("sglang", "--platform", "vulkan"), "unknown scenario 'vulkan'"),
        (("sglang", "--ledger", "missing.toml"), "cannot read the accepted hits"),
    ],
)
def test_a_mistake_of_the_user_is_one_line(args: tuple[str, ...], says: str) -> None:
    code, text = run(*args)
    assert code == 2
    assert says in text
    assert "\n" not in text
    assert "kernel-parity list" not in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("label = 'perhaps'", "label is true or false"),
        ("versions = '0.5'", "Invalid specifier"),
        ("symbols = 'x'", "symbols is a list of words"),
        ("sybols = ['x']", "unknown field 'sybols'"),
        ("why = ''", "needs why"),
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, line: str, says: str) -> None:
    good = {"package": "'sglang'", "function": "'f'", "failure": "'NameError'", "symbols": "['x']", "label": "'true'", "why": "'w'", "versions": "'>=0.5'"}
    name, _, value = line.partition(" = ")
    (tmp_path / "accepted.toml").write_text("[[hit]]\n" + "\n".join(f"{k} = {v}" for k, v in {**good, name: value}.items()))
    with pytest.raises(UsageError, match=says):
        load_accepted(tmp_path / "accepted.toml")


def test_bad_facts_are_named(tmp_path: Path) -> None:
    (tmp_path / "scenarios.toml").write_text("[[scenario]]\nname = 'x'\nplatform = 'y'\n")
    with pytest.raises(UsageError, match="names no platform of the file"):
        load_scenarios(tmp_path / "scenarios.toml")
    (tmp_path / "config.toml").write_text("package = 'x'\n")
    with pytest.raises(UsageError, match="needs scope"):
        load_config(tmp_path / "config.toml")


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("sglang", '["hip", "hip-aiter"]', '["hip", "hip-aitre"]', "scenarios names no scenario 'hip-aitre'; nearest: hip-aiter"),
        ("sglang", 'option = "--sampling-backend"\n', "", r"\[flag.sampling_backend\]: needs option"),
        ("sglang", "default = { hip = [false]", "default = { hpi = [false]", r"\[flag.prefill_context_parallel\]: no platform 'hpi'"),
        ("sglang", "draws = [", "drawz = [", r"\[idioms\]: unknown field 'drawz'; nearest: draws"),
        ("sglang", '= "attention_backend" }', '= "attention_backed" }', "registries names no flag 'attention_backed'; nearest: attention_backend"),
        ("aiter", "library = true", "libary = true", "unknown field 'libary'; nearest: library"),
        ("aiter", "reference = false", "reference = 'no'", "reference is true or false, not 'no'"),
        ("scenarios", "\nhas = [", "\nhass = [", r"\[platform.hip.without.sgl_kernel\]: unknown field 'hass'; nearest: has"),
        ("scenarios", "env = {}\n", "envs = {}\n", r"\[\[scenario\]\] 1 \(hip\): unknown field 'envs'; nearest: env"),
        ("scenarios", '{ SGLANG_USE_AITER = "1" }', "{ SGLANG_USE_AITER = 1 }", "env.SGLANG_USE_AITER is text, not 1"),
        ("scenarios", "[platform.cuda]", "[platfrom.x]\n[platform.cuda]", "unknown field 'platfrom'; nearest: platform"),
        ("scenarios", 'reference = "hip"', 'reference = "hipp"', r"\[platform.cuda\]: reference names no scenario 'hipp'; nearest: hip"),
        ("scenarios", 'name = "hip-aiter"', 'name = "hip"', "there is one of that name before it"),
    ],
)
def test_a_typo_in_the_facts_is_named(tmp_path: Path, file: str, old: str, new: str, says: str) -> None:
    text = (FOLDER / f"{file}.toml").read_text()
    assert old in text
    (tmp_path / f"{file}.toml").write_text(text.replace(old, new, 1))

    def load(path: Path) -> object:
        return load_scenarios(path) if file == "scenarios" else scenarios_of([], SCENARIOS, load_config(path))

    with pytest.raises(UsageError, match=rf"{file}\.toml.*{says}"):
        load(tmp_path / f"{file}.toml")


def _hit(function: str, symbol: str, **more: Any) -> Hit:
    return Hit("sglang/srt/a.py", function, f"sglang.srt.b:{symbol}", "NameError", **{"line": 3, "scenarios": ("hip",), **more})


def test_the_text_adds_up_and_a_new_hit_comes_with_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    chain = tuple(f"some.module.of.the.package.Class.method_{number}:1" for number in range(4))
    operators = [Hit("sglang/k.py", "<registry>", f"sampling.op{number}", "no kernel", 1, scenarios=("hip",)) for number in range(2)]
    report = Report("sglang 0.5.99", "sglang", "0.5.99", ("hip",), [_hit("f", "one", chain=chain), _hit("f", "two"), _hit("g", "one"), *operators])
    entry = Entry("sglang", "f", "NameError", ("one",), "true", "because of it", ">=0.5")
    entries = [entry, Entry("sglang", "<registry>", "no kernel", ("sampling.op0",), "true", "w", ">=0.5", place="accepted 2")]
    judged = judge(report, entries)
    text = "\n".join(showing.lines(report, judged, "accepted.toml"))
    assert "NameError: one (line 3), two (line 3) NEW" in text
    assert "accepted (true): because of it" in text
    assert "NEW: 1 of 2 uses" in text
    assert "2 operators, 1 NEW\n  sampling.op0, sampling.op1 NEW\n" in text
    assert " ".join(text.split()).endswith("5 hits (3 uses in 2 functions, 2 operators): new 3, accepted 2; gone 0. Read from source, nothing was run.")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert f"  from {chain[0]} >\n      {chain[1]}" in text
    pasted = text[text.index("[[hit]]") : text.rindex("sglang 0.5.99")]
    with pytest.raises(UsageError, match="needs label, why"):
        load_accepted(written(tmp_path, pasted))
    filled = pasted.replace('label = ""', 'label = "true"').replace('why = ""', 'why = "looked at"')
    assert not judge(report, [*entries, *load_accepted(written(tmp_path, filled))]).new
    assert "[[hit]]" not in "\n".join(showing.lines(report, judged))


def written(folder: Path, text: str) -> Path:
    (folder / "accepted.toml").write_text(text)
    return folder / "accepted.toml"


def test_the_predicates_follow_from_torch_where_the_facts_do_not_answer(tmp_path: Path) -> None:
    tree = package(tmp_path, other="from sglang.srt.utils import is_cuda\nON = is_cuda()\n")
    for name, wanted in (("hip", "False"), ("cuda", "True")):
        bare = SCENARIOS[name].__class__(**{**SCENARIOS[name].__dict__, "answers": {}})
        assert wanted in repr(World(tree, bare, CONFIG).lookup("sglang.srt.other", "ON"))
