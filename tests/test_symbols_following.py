"""What the symbols scan follows between functions and modules: imports that stop, values that the start refuses, what a mention means, what is passed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from symbols_packages import NAME, NONE, hits, package, sampler

STOPPED = "layers/attention/sparse"
NEEDS = "from flash_mla import attend\ndef sparse(q): return attend(q)\n"
IMPORTS = "from sglang.srt.layers.attention.sparse import sparse\n"


@pytest.mark.parametrize(
    ("body", "failures"),
    [
        ("from flash_mla import attend\nreturn attend(probs)", ["ImportError"]),
        ("import flash_mla\nreturn flash_mla.attend(probs)", ["ImportError"]),
        ("try:\n    from flash_mla import attend\nexcept ImportError:\n    return probs\nreturn attend(probs)", []),
        ("if _is_hip:\n    return probs\nfrom flash_mla import attend\nreturn attend(probs)", []),
    ],
)
def test_an_import_inside_a_function(tmp_path: Path, body: str, failures: list[str]) -> None:
    assert [hit.failure for hit in sampler(tmp_path, "", body)] == failures


@pytest.mark.parametrize(
    ("importer", "text", "found"),
    [
        ("models/llama", IMPORTS, True),
        ("models/llama", f"import sglang.srt.layers.between\n{IMPORTS}", True),
        ("models/llama", "try:\n    " + IMPORTS + "except ImportError:\n    sparse = None\n", False),
        ("managers/run", f"def run():\n    {IMPORTS}    return sparse\nENTRY = run\n", True),
        ("managers/run", f"def run():\n    try:\n        {IMPORTS}    except ImportError:\n        return None\n    return sparse\nENTRY = run\n", False),
        ("managers/run", f"def run():\n    {IMPORTS}    return sparse\n", False),
    ],
)
def test_a_module_that_stops_is_a_hit_where_somebody_imports_it(tmp_path: Path, importer: str, text: str, found: bool) -> None:
    between = {"layers/between": IMPORTS, STOPPED: NEEDS, importer: text}
    told = [(hit.file, hit.function, hit.symbol, hit.failure) for hit in hits(package(tmp_path, **between))]
    assert told == ([("sglang/srt/layers/attention/sparse.py", "<module>", "flash_mla", "ImportError")] if found else [])


def checks(test: str, consequence: str) -> str:
    """A module `server_args` that makes the check."""
    return textwrap.dedent(f"""
    from sglang.srt.utils import assert_pkg_version, is_sm100_supported, is_gfx95_supported
    class ServerArgs:
        def check(self):
            if {test}:
                {consequence}
    """)


@pytest.mark.parametrize(
    ("package_name", "tiers"),
    [("flashinfer_python", []), ("flashinfer-python", []), ("transformers", ["explicit-flag"])],
)
def test_a_value_for_which_the_start_asks_for_an_absent_package(tmp_path: Path, package_name: str, tiers: list[str]) -> None:
    check = checks("self.sampling_backend == 'flashinfer'", f"assert_pkg_version('{package_name}', '0.6', 'install it')")
    found = sampler(tmp_path, NAME, "if self.args.sampling_backend == 'flashinfer':\n    return topk(probs, k)\nreturn probs", server_args=check)
    assert [hit.tier for hit in found] == tiers


@pytest.mark.parametrize(
    ("refused_unless", "test", "tiers"),
    [
        ("is_sm100_supported()", "self.args.enable_deepseek_v4_fp4_indexer", []),
        ("(is_sm100_supported() or is_sm120_supported())", "self.args.enable_deepseek_v4_fp4_indexer", []),
        ("(is_sm100_supported() or is_gfx95_supported())", "self.args.enable_deepseek_v4_fp4_indexer", ["explicit-flag"]),
        ("is_hip()", "self.args.enable_deepseek_v4_fp4_indexer", ["explicit-flag"]),
        ("is_sm100_supported()", "not self.args.enable_deepseek_v4_fp4_indexer", ["default"]),
    ],
)
def test_a_switch_that_the_start_refuses_without_another_device(tmp_path: Path, refused_unless: str, test: str, tiers: list[str]) -> None:
    check = checks(f"self.enable_deepseek_v4_fp4_indexer and not {refused_unless}", "raise ValueError('not here')")
    found = sampler(tmp_path, NAME, f"if {test}:\n    return topk(probs, k)\nreturn probs", server_args=check)
    assert [hit.tier for hit in found] == tiers


@pytest.mark.parametrize(("instead", "found"), [("_is_hip", False), ("flag", True)])
def test_a_switch_and_a_name_of_the_same_truth(tmp_path: Path, instead: str, found: bool) -> None:
    body = f"here = args.use_fp4_indexer and {instead}\nfast = args.use_fp4_indexer\nif fast and not here:\n    return topk(probs, k)\nreturn probs"
    assert bool(sampler(tmp_path, NAME, "args = self.args\n" + body)) == found


@pytest.mark.parametrize(
    ("call", "found"),
    [("Sampler().pick(1)", True), ("Other().pick(1)", False), ("args.pick(1)", True), ("Heir().pick(1)", True), ("print(Sampler())", False)],
)
def test_a_method_is_called_where_the_object_may_be_of_its_class(tmp_path: Path, call: str, found: bool) -> None:
    text = f"""
    from sglang.srt.utils import is_cuda
    {NONE}

    class Sampler:
        def pick(self, probs):
            return topk(probs)

    class Heir(Sampler):
        pass

    class Other:
        def pick(self, probs):
            return probs

    def make(args):
        Sampler(), Heir(), Other()
        return {call}

    ENTRY = make
    """
    assert [hit.function for hit in hits(package(tmp_path, sampler=text))] == (["Sampler.pick"] if found else [])


@pytest.mark.parametrize(
    ("handed", "again", "found"),
    [("False", "fast", False), ("True", "fast", True), ("args.fast", "fast", True), ("False", "not fast", True), ("False", "True", True)],
)
def test_what_is_passed_is_followed_through_two_callers(tmp_path: Path, handed: str, again: str, found: bool) -> None:
    text = f"""
    from sglang.srt.utils import is_cuda
    {NONE}

    def inner(probs, fast):
        if fast:
            return topk(probs)
        return probs

    def middle(probs, fast):
        return inner(probs, {again})

    def make(args):
        return middle(args.probs, {handed})

    ENTRY = make
    """
    assert [hit.function for hit in hits(package(tmp_path, sampler=text))] == (["inner"] if found else [])
