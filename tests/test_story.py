"""The story is what happens when it runs: both bugs show on the versions that have them, and on sources without them it says so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from edited import edited
from surveys import source

from harness.cli import cli
from harness.commands import retold
from harness.commands import story as told
from harness.errors import UsageError
from harness.offline.sources import Source
from harness.offline.symbols.package import Report
from harness.served.story import cost, renorm

UTILS = "sglang/srt/speculative/dflash_utils.py"
GATE = "sglang/srt/arg_groups/model_override_base.py"
UNBOUND = "else:\n    top_k_renorm_prob = None\n    top_p_renorm_prob = None\n"
BOUND = """else:

    def top_k_renorm_prob(probs, top_ks):
        kept, ids = probs.sort(-1, descending=True)
        kept[torch.arange(probs.shape[-1])[None] >= top_ks[:, None]] = 0
        return torch.zeros_like(probs).scatter_(-1, ids, kept / kept.sum(-1, keepdim=True))

    def top_p_renorm_prob(probs, top_ps):
        kept, ids = probs.sort(-1, descending=True)
        kept[kept.cumsum(-1) - kept > top_ps[:, None]] = 0
        return torch.zeros_like(probs).scatter_(-1, ids, kept / kept.sum(-1, keepdim=True))

"""
NO_HITS = Report("sglang", "sglang", "", ("hip",))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["story", "kimi-k3-rocm", *arguments])


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Source:
    """0.5.16 with the two filters bound where no kernel of CUDA is."""
    root = edited(source("0.5.16").root, tmp_path_factory.mktemp("fixed"), UTILS, (UNBOUND, BOUND))
    return Source("sglang", "0.5.16", root)


def test_both_bugs_show_on_the_versions_that_have_them():
    source("0.5.16"), source("0.5.23")
    done = run("--platform", "cpu")
    assert done.exit_code == 0, done.output
    said = re.sub(r"\s+", " ", done.output)
    assert "top_k_renorm_prob = None, top_p_renorm_prob = None" in said
    assert "TypeError: 'NoneType' object is not callable, at srt/speculative/dflash_utils.py:784 in build_dflash_verify_target_probs" in said
    assert "dflash_utils.py:775, 784, 789" in said
    assert "the cure in 7 of 7 cases" in said
    assert "head_num == 128 or head_num == 16 is False" in said
    assert "pads them to 16 with zeros" in said
    assert "12, 24 refused at start-up" in said
    assert "pass, the first 12 equal to the bit (interpreted)" in said
    assert "not measured here: this machine has no GPU" in said
    assert " us" not in said
    assert len(done.output.splitlines()) <= 45
    assert max(map(len, done.output.splitlines())) <= 160


def test_a_version_whose_filters_are_bound_has_not_the_first_bug(fixed):
    act = retold.first(fixed, NO_HITS)
    assert (act.shown, act.lacking) == (False, "the filters are bound")
    assert "it comes to its kernel" in "\n".join(act.lines)
    assert "None" not in act.lines[0]


def test_the_command_says_that_a_bug_is_not_there(fixed, monkeypatch, tmp_path):
    root = edited(source("0.5.23").root, tmp_path, GATE, ("head_num == 128 or head_num == 16", "head_num % 4 == 0"))
    monkeypatch.setattr(told, "_scan", lambda folder, source: NO_HITS)
    done = run("--renorm", str(fixed.root), "--heads", str(root), "--platform", "cpu", "--json")
    assert done.exit_code == 1, done.output
    first, second = json.loads(done.output)["acts"]
    assert (first["shown"], first["lacking"]) == (False, "the filters are bound")
    assert (second["shown"], second["lacking"]) == (False, "the default is aiter")


def test_the_fixed_accept_hands_on_right_probabilities(fixed):
    ended = renorm.accept(fixed)
    assert ended.error is None
    assert renorm.judged(ended.probs) == ""
    wrong = ended.probs.clone()
    wrong[0, 1] = torch.softmax(torch.arange(wrong.shape[-1]).float(), 0)
    assert "wrong set of tokens" in renorm.judged(wrong)


def test_the_cure_takes_the_same_accept_to_its_kernel():
    assert renorm.bound(source("0.5.16")) == dict.fromkeys(renorm.CURE)
    ended = renorm.accept(source("0.5.16"), cured=True)
    assert renorm.judged(ended.probs) == ""


def test_a_cure_that_is_wrong_is_no_cure(monkeypatch):
    def one_too_many(probs, top_k):
        return renorm.sort_mask_divide(probs, top_k + 1)

    monkeypatch.setitem(renorm.CURE, "top_k_renorm_prob", one_too_many)
    assert any(text for _, text in renorm.cure_by_contract())
    assert "wrong set of tokens" in retold._uncured(source("0.5.16"))


def test_a_version_that_cannot_be_had_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    done = run("--renorm", "sglang==0.5.1")
    assert isinstance(done.exception, UsageError)
    assert "cannot get sglang==0.5.1 from the package index" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_times_are_held_against_the_generic_kernel():
    lines = cost.told([cost.Timed("sglang_triton", 12, False, 200.0), cost.Timed("fast", 12, True, 50.0), cost.Timed("fast", 16, False, 40.0)], "a GPU")
    assert "measured on a GPU" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["fast", "fast", "sglang_triton"]
    assert "12 padded to 16" in lines[2]
    assert "0.25 of sglang_triton at 12 heads" in lines[2]


def test_served_tells_it_too(monkeypatch):
    asked = {}
    monkeypatch.setattr("harness.commands.story.tell", lambda **options: asked.update(options) or 1)
    done = CliRunner().invoke(cli, ["served", "--story", "kimi-k3-rocm", "--platform", "cpu"])
    assert done.exit_code == 1, done.output
    assert asked == {"renorm": "sglang==0.5.16", "heads": "sglang==0.5.23", "platform": "cpu", "cases_dir": None, "as_json": False}


def test_a_story_that_nobody_wrote_is_refused(tmp_path: Path):
    done = CliRunner().invoke(cli, ["story", "no-such"])
    assert done.exit_code == 2
    assert "kimi-k3-rocm" in done.output
