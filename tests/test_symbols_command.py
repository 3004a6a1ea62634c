"""The symbols command: what it prints, its exit codes, and mistakes in its arguments and facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from symbols_packages import FOLDER, NAME, SAMPLER, SCENARIOS, package

from harness.cli import cli
from harness.errors import UsageError
from harness.offline.symbols import showing
from harness.offline.symbols.accepted import Entry, judge, load_accepted
from harness.offline.symbols.facts import load_config, load_scenarios, scenarios_of
from harness.offline.symbols.package import Report
from harness.offline.symbols.scan import Hit


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
