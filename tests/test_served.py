"""What describes a server to SGLang, which cases a model gives, and what the command makes of times; nothing of SGLang is imported here."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import cli
from harness.commands.served import Point, compare
from harness.contracts.models import load_models
from harness.errors import Unsupported, UsageError
from harness.report.served import ServedLine, served
from harness.selection import DEFAULT_CASES
from harness.served.attention import absent, configuring
from harness.served.attention.backends import BACKENDS, serving, why_not
from harness.served.attention.cases import MODES, Asked, cases_of
from harness.served.attention.choosing import backend_for, defaults, words
from harness.served.attention.described import Described, Undescribed
from harness.served.attention.reading import reads
from harness.speed.behind import MARGIN, ahead, ratios

MODELS = load_models(DEFAULT_CASES / "models.toml")
ASKED = Asked(context=32, batch=2, dtype="fp16", new=4)
INSTALLED = importlib.util.find_spec("sglang")


def test_what_is_not_described_raises_and_is_never_a_default():
    described = Described("model_runner", {"device": "cpu"}, absent=("prefill_aware_swa",))
    assert described.device == "cpu"
    assert getattr(described, "prefill_aware_swa", 7) == 7
    with pytest.raises(Undescribed, match=r"SGLang reads model_runner\.gpu_di, which is not described"):
        getattr(described, "gpu_di", 0)


@pytest.fixture
def described(monkeypatch):
    """The runner and its model's configuration, made without SGLang."""
    stands = {
        "sglang.srt.configs.model_config": SimpleNamespace(AttentionArch=SimpleNamespace(MLA="mla", MHA="mha")),
        "sglang.srt.speculative.spec_info": SimpleNamespace(SpeculativeAlgorithm=SimpleNamespace(from_string=lambda word: word)),
        "sglang.srt.mem_cache.kv_index_translator": SimpleNamespace(KVIndexTranslator=lambda **named: named),
    }
    monkeypatch.setattr(configuring.importlib, "import_module", lambda name: stands[name])
    shape = configuring.Shape(True, 12, 1, 576, 512, 0.07, None, "cpu", 1, 64, 2)
    pools = SimpleNamespace(requests=SimpleNamespace(req_to_token=None), tokens=None)
    runner = configuring.runner(shape, "triton", SimpleNamespace(), pools)
    config = runner.model_config
    return {"model_runner": runner, "model_config": config, "hf_config": config.hf_config, "token_to_kv_pool_allocator": runner.token_to_kv_pool_allocator}


@pytest.mark.skipif(INSTALLED is None, reason="SGLang is not installed")
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=list(BACKENDS))
def test_everything_that_a_back_end_reads_is_described(backend, described):
    module = backend.place.partition(":")[0].split(".")
    source = Path(next(iter(INSTALLED.submodule_search_locations)), *module[1:]).with_suffix(".py")
    found = reads(source)
    lacking = [
        f"{name}.{attribute}, line {line}" for name, read in found.items() for attribute, line in read.items() if attribute not in described[name].known()
    ]
    assert not lacking
    assert len(found["model_runner"]) >= 3


def test_a_name_of_next_year_is_seen_in_the_source(tmp_path):
    source = tmp_path / "backend.py"
    source.write_text(
        "class B:\n    def __init__(self, model_runner):\n        a = model_runner.next_year\n        b = getattr(model_runner.model_config, 'later', 0)\n"
    )
    assert reads(source) == {"model_runner": {"model_config": 4, "next_year": 3}, "model_config": {"later": 4}}


def test_what_stands_in_can_be_named_and_inherited_but_not_used():
    finder = absent._Finder(lambda name: name.split(".")[0] == "surely_absent")
    with absent._found(finder, last=True):
        from surely_absent.deep import Config

        class Child(Config):
            pass

        assert not isinstance(3, Config | Child)
        assert not hasattr(Config, "standardize")
        with pytest.raises(Unsupported, match=r"calls surely_absent\.deep\.Config, which is not installed here"):
            Config()
    assert not [name for name in sys.modules if name.startswith("surely_absent")]
    assert importlib.util.find_spec("surely_absent") is None


def test_twelve_heads_of_kimi_k3_in_every_mode():
    geometry = MODELS["kimi-k3"].rank(8)
    made = {mode: [one.case.id for one in cases_of(geometry, mode, ASKED)] for mode in MODES}
    assert made == {
        "prefill": ["b2-h12-n32-fp16"],
        "prefix": ["b2-h12-n4-pre32-fp16"],
        "decode": ["b2-h12-s32-fp16"],
        "verify": ["b2-q4-h12-s32-fp16"],
    }


def test_a_window_and_sinks_are_held_against_their_absence():
    plain, windowed = cases_of(MODELS["gpt-oss"].rank(8), "decode", ASKED)
    assert [case.point["relation"] for case in plain.flags] == ["unsunk"]
    assert windowed.mode == "decode, window 16"
    assert [case.point["relation"] for case in windowed.flags] == ["unsunk", "unwindowed"]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_cases_at_tp_one(model):
    assert all(list(cases_of(MODELS[model].rank(1), mode, ASKED)) for mode in MODES)


@pytest.mark.skipif(INSTALLED is None, reason="SGLang is not installed")
def test_the_default_at_twelve_heads_is_triton_on_rocm_and_the_gate_is_named():
    (route,) = defaults(MODELS["kimi-k3"], 8, ["gfx950"], DEFAULT_CASES)
    if not route.served:
        pytest.skip("this SGLang does not know Kimi K3")
    assert [backend_for(route, mode) for mode in MODES] == ["triton"] * 4
    said = words(route)
    assert "gfx950: triton by default (12 heads a rank), not its fast path (aiter)" in said
    assert "head_num == 128 or head_num == 16" in said


def test_a_flag_has_its_class_by_the_kind_of_attention():
    assert serving("flashinfer", "mla") is BACKENDS["flashinfer_mla"]
    assert serving("flashinfer", "mha") is BACKENDS["flashinfer"]
    assert serving("flashmla", "mha") is None
    assert why_not(BACKENDS["fa3"], "cpu") == "it is driven on cuda; this machine is cpu"


@given(st.dictionaries(st.sampled_from(list(BACKENDS)), st.floats(0.5, 1e6), min_size=1))
def test_what_is_behind_names_the_fastest_and_by_how_much(times):
    assert min(ratios(times).values()) == 1.0
    for name in times:
        found = ahead(times, name)
        assert (found is not None) == (times[name] > MARGIN * min(times.values()) * (1 + 1e-12) or ratios(times)[name] > MARGIN)
        if found:
            assert times[found[0]] == min(times.values())
            assert found[1] == pytest.approx(times[name] / times[found[0]])


def _line(backend, us, status="pass", **more):
    return ServedLine("decode, batch 8", 4096, "mla_decode", backend, status, us=us, **more)


def _points(lines, asked=()):
    return [Point(None, BACKENDS[line.backend], None, 8, line.default, line.backend in asked) for line in lines]


def test_a_default_that_another_back_end_beats_is_a_fallback():
    lines = [_line("triton", 300.0, default=True), _line("flashmla", 100.0), _line("torch_native", 10.0, status="mismatch")]
    assert compare(_points(lines), lines, None)
    assert (lines[0].verdict, lines[0].ratio) == ("fallback", 3.0)
    assert lines[0].detail.startswith("3.00 times the time of flashmla, which gives the same answer")  # what is wrong is not faster
    assert not lines[1].verdict
    assert "fallback: 3.00 times" in served(lines)


def test_what_is_asked_for_is_judged_and_not_the_default_beside_it():
    lines = [_line("triton", 300.0), _line("fa3", 100.0, default=True)]
    assert compare(_points(lines, asked=("triton",)), lines, None)
    assert lines[0].detail.endswith("asked for by --attention-backend")
    assert not compare(_points(lines[1:]), lines[1:], None)


def test_what_alone_is_timed_in_its_mode_is_held_against_nothing():
    lines = [
        _line("triton", 30.0, chosen={"launch": "graph"}),
        _line("fa3", 20.0, chosen={"launch": "graph"}),
        _line("torch_native", 9e4, chosen={"launch": "eager"}),
    ]
    assert not compare(_points(lines), lines, None)
    assert [line.ratio for line in lines] == [1.5, 1.0, 0.0]
    assert served(lines).splitlines()[-1].split()[-4:-1] == ["90000.0", "-", "launch"]


def test_without_times_there_is_no_verdict_on_speed():
    lines = [_line("triton", 0.0, default=True), _line("torch_native", 0.0)]
    assert not compare(_points(lines), lines, None)
    assert "us" not in served(lines).splitlines()[0].split()


@pytest.mark.parametrize(
    ("words_given", "message"),
    [
        ([], "give --model NAME"),
        (["--model", "kimi-k4"], "unknown model 'kimi-k4'"),
        (["--model", "kimi-k3", "--tp", "7"], "which tp 7 does not divide"),
        (["--model", "kimi-k3", "--attention-backend", "trtn"], "unknown attention back end 'trtn'; nearest: triton"),
        (["--model", "gpt-oss", "--attention-backend", "flashmla"], "--attention-backend flashmla does not serve gpt-oss"),
        (["--model", "gpt-oss", "--mode", "prefil"], "unknown mode 'prefil'"),
        (["--model", "gpt-oss", "--platform", "gfx9"], "unknown platform 'gfx9'"),
        (["--model", "gpt-oss", "--platform", "cpu", "--context", "0"], "--context takes numbers from 1 to"),
        (["--model", "gpt-oss", "--platform", "cpu", "--batch", "²"], "--batch takes numbers from 1 to"),
        (["--model", "gpt-oss", "--platform", "cpu", "--context", "1" * 20], "--context takes numbers from 1 to"),
        (["--model", "gpt-oss", "--platform", "cpu", "--soft-cap", "nan"], "--soft-cap is a number, 0 for none, not nan"),
        (["--model", "gpt-oss", "--platform", "cpu", "--timing"], "--timing needs a GPU"),
    ],
)
def test_a_mistake_is_one_line(words_given, message, tmp_path):
    done = CliRunner().invoke(cli, ["served", *words_given, "--results", str(tmp_path / "r.jsonl")])
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.skipif(INSTALLED is None, reason="SGLang is not installed")
def test_on_a_target_that_is_not_here_the_default_is_routed_and_nothing_runs():
    done = CliRunner().invoke(cli, ["served", "--model", "deepseek-v3", "--tp", "4", "--platform", "gfx942", "--json"])
    found = json.loads(done.output)
    assert [(route["backend"], route["heads"]) for route in found["routes"]] == [("triton", 32)]
    assert found["cells"] == []
    assert found["note"] == "gfx942 is routed: nothing ran"
