"""The command line: what a user gets wrong is one line and exit code 2, listings are JSON on demand, help is quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from harness import cli, contracts
from harness.contracts import ops
from harness.providers import providers, registry

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--op", "top_k_renrm"), "unknown op 'top_k_renrm'; nearest: top_k_renorm"),
        (("run", "--provider", "flashinfr"), "unknown provider 'flashinfr'; nearest: flashinfer"),
        (("run", "--model", "kimi-k33"), "unknown model 'kimi-k33'; nearest: kimi-k3"),
        (("run", "--preset", "nightley"), "unknown preset 'nightley'; nearest: nightly"),
        (("run", "--model", "kimi-k3", "--tp", "7"), "kimi-k3 has 96 query and 96 kv heads, which tp 7 does not divide; try --tp 1, 2"),
        (("run", "--model", "kimi-k3", "--tp", "0"), "which tp 0 does not divide"),
        (("run", "--tp", "x"), "'--tp': 'x' is not a valid integer"),
        (("run", "--platform", "metal"), "unknown platform 'metal'; it is one of cuda, rocm, cpu"),
        (("run", "--shard", "9/8"), "'9/8' is not of the form 2/8"),
        (("run", "--cases", "nowhere"), "nowhere has no presets"),
        (("run", "--cell", "merge_state"), "'merge_state' names no case"),
        (("run", "--cell", "merge_state[torch_eager]"), "names no case"),
        (
            ("run", "--cell", "merge_state[torch_eager-t3-h2-fp17]"),
            "no axis for 'fp17' in case 't3-h2-fp17' (kernel-parity list ops --op merge_state",
        ),
        (("run", "--cell", "merge_state[torch_eagr-t3-h2-fp16]"), "unknown provider 'torch_eagr'; nearest: torch_eager"),
        (
            ("run", "--cell", "decode_attention[torch_eager-b1-h6-kv4-s9-fp16]"),
            "op 'decode_attention': there is no case 'b1-h6-kv4-s9-fp16': 4 kv heads do not divide 6 query heads",
        ),
        (("run", "--cell", "merge_state[torch_eager-t3-h0-fp16]"), "op 'merge_state': axis 'heads' (query heads) is at least 1, not 0"),
        (("run", "--cell", "mla_decode[torch_eager-b2-h4-s9-id3-fp16]"), "its pages have ids up to 21, above 3"),
        (("repro", "extend_attention[torch_eager-b1-h2-kv2-qm1-fp16]"), "axis 'new' (most new tokens (queries) of a request) is at least 0, not -1"),
        (("run", "--op", "merge_state", "--timeout", "nan"), "a cell's time limit is a number of seconds above 0, not nan"),
        (("run", "--op", "merge_state", "--build-timeout", "nan"), "a build's time limit is a number of seconds above 0, not nan"),
        (("run", "--plugin", "absent.py"), "'absent.py' is not a file"),
        (("run", "--plugin", "absent.module"), "'absent.module' does not load: ModuleNotFoundError"),
        (("run", "--ledger", "absent.toml"), "cannot read the ledger absent.toml"),
        (("run", "--op", "merge_state", "--results", "/proc/none/r.jsonl"), "cannot write results to /proc/none/r.jsonl"),
        (("run", "--show", "-1"), "'--show': -1 is not in the range x>=0"),
        (("gate", "--show", "-1"), "'--show': -1 is not in the range x>=0"),
        (("run", "--unknown"), "No such option '--unknown'"),
        (("list", "things"), "'things' is not one of 'ops'"),
        (("list", "ops", "--op", "merge_stat"), "unknown op 'merge_stat'; nearest: merge_state"),
        (("list", "providers", "--provider", "aitr"), "unknown provider 'aitr'"),
        (("doctor", "--platform", "metal"), "unknown platform 'metal'"),
        (("repro", "merge_stat[torch_eager-t3-h2-fp16]"), "unknown op 'merge_stat'"),
        (("repro",), "Missing argument 'CELL'"),
    ],
)
def test_what_is_typed_wrong_is_one_line(typed, arguments, said):
    code, out, err = typed(*arguments)
    assert code == 2
    assert not out
    lines = [line for line in err.splitlines() if line.startswith("kernel-parity: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert lines[0] == err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[entry]", "cannot read the ledger"),
        ("[table]\nx = 1", "holds [[entry]] tables alone, not table"),
        ('[[entry]]\nop = "o"', "needs provider, why"),
        ('[[entry]]\nop = "o"\nprovider = "p"\nwhy = "w"\nstate = "mismatch"', "unknown field 'state'"),
        ('[[entry]]\nop = "o"\nprovider = "p"\nwhy = "w"\nstatus = "wrong"', "gives the status it ends with"),
        ('[[entry]]\nop = "o"\nprovider = "p"\nwhy = "w"\nstatus = "mismatch"\nexpires = "soon"', "soon"),
    ],
)
def test_a_broken_ledger_is_one_line(typed, tmp_path, text, said):
    (tmp_path / "ledger.toml").write_text(text)
    code, _, err = typed("run", "--ledger", "ledger.toml")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert said in err


def test_a_plugin_that_raises_is_one_line_and_can_be_mended(typed, tmp_path):
    (tmp_path / "odd.py").write_text("1 / 0")
    code, _, err = typed("list", "ops", "--plugin", "odd.py")
    assert (code, err) == (2, "kernel-parity: plugin 'odd.py' does not load: ZeroDivisionError: division by zero\n")
    (tmp_path / "odd.py").write_text("")
    assert typed("list", "ops", "--plugin", "odd.py")[0] == 0


@pytest.fixture
def own_registries(monkeypatch):
    """What a plugin declares in this process ends with the test."""
    ops(), providers()
    monkeypatch.setattr(contracts.registry, "_ops", dict(contracts.registry._ops))
    monkeypatch.setattr(registry, "_providers", dict(registry._providers))


PROVIDER = """
from harness.providers import implements

@implements("top_k_renorm", library="torch", name="{name}", platforms={{"cpu"}})
def renorm(x):
    return x.probs
"""


def test_plugins_with_one_file_name_are_two(typed, tmp_path, own_registries):
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ours.py").write_text(PROVIDER.format(name=name))
    # a second name of the same file declares nothing twice
    plugins = ["north/ours.py", "south/ours.py", str(tmp_path / "north/../north/ours.py")]
    code, out, err = typed("list", "providers", "--op", "top_k_renorm", "--json", *(word for plugin in plugins for word in ("--plugin", plugin)))
    assert code == 0, err
    assert {"north", "south"} <= {row["provider"] for row in json.loads(out)}


BROKEN = """
from harness.contracts import Inputs, contract, number
from harness.providers import implements

@contract("sampling")
class broken_{what}:
    \"\"\"Nothing.\"\"\"

    axes = (number("batch", "b", "rows"),)
    outputs = ("y",)
    presets = {{"smoke": ("b2",)}}

    def for_model(self, geometry, small):
        yield {{"batch": 1}}
        raise KeyError("rows")

    def inputs(self, case, draw):
        {inputs}

def never(case):
    return case.point["rows"]

@implements("broken_{what}", library="torch", name="broken", platforms={{"cpu"}}, accepts={accepts})
def f(x):
    return x.probs
"""


@pytest.mark.parametrize(
    ("what", "options", "said"),
    [
        ("accepts", (), "accepts of provider 'broken' fails on broken_accepts[b2]: KeyError: 'rows' (declared in kernel_parity_plugin_accepts"),
        (
            "for_model",
            ("--model", "kimi-k3"),
            "for_model of op 'broken_for_model' fails on kimi-k3: KeyError: 'rows' (declared in kernel_parity_plugin_for_model",
        ),
    ],
)
def test_a_plugins_own_mistake_in_choosing_cases_is_one_line(typed, tmp_path, own_registries, what, options, said):
    (tmp_path / f"{what}.py").write_text(BROKEN.format(what=what, inputs="return None", accepts="never" if what == "accepts" else "None"))
    code, _, err = typed("run", "--plugin", f"{what}.py", "--op", f"broken_{what}", *options)
    assert code == 2
    assert err.startswith(f"kernel-parity: {said}")
    assert len(err.splitlines()) == 1


def test_a_reference_that_hangs_or_dies_is_no_fault_of_the_provider(typed, tmp_path, own_registries):
    for what, inputs in (("hanging", "import time; time.sleep(60)"), ("dying", "import os; os.abort()")):
        (tmp_path / f"{what}.py").write_text(BROKEN.format(what=what, inputs=inputs, accepts="None"))
        code, out, _ = typed("run", "--plugin", f"{what}.py", "--cell", f"broken_{what}[broken-b2]", "--timeout", "0.5", "--ledger", "none", "--json")
        row = json.loads(out)
        assert code == 3
        assert (row["status"], row["reason"]) == ("error", {"hanging": "time limit", "dying": "signal SIGABRT"}[what])
        assert row["detail"].startswith("the contract or the harness failed, not the provider: in inputs and reference, ")


def test_installed_plugins_are_found(tmp_path):
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernel_parity.plugins]\nacme = acme_checks\n")
    (tmp_path / "acme_checks.py").write_text(
        "from harness.providers import implements\n\n\n@implements('top_k_renorm', library='acme', platforms={'cpu'})\ndef f(x):\n    return x.probs\n"
    )
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from harness.cli import main; main()"
    command = [sys.executable, "-c", code, str(tmp_path), "list", "providers", "--op", "top_k_renorm", "--platform", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = next(row for row in json.loads(done.stdout) if row["provider"] == "acme")
    assert row["usable here"] == "absent: acme is not installed"


def test_help_is_quick_and_imports_no_torch():
    command = [sys.executable, "-c", "import sys; from harness.cli import main\ntry: main()\nfinally: print([m for m in sys.modules if m in HEAVY])"]
    command[2] = command[2].replace("HEAVY", "('torch', 'numpy', 'scipy', 'triton', 'sglang', 'harness.contracts')")
    took = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        took.append(time.monotonic() - began)
    assert done.stdout.endswith("[]\n")
    assert min(took) < 0.3 * 5  # 0.3 s on a machine of its own


@pytest.mark.parametrize("command", cli.cli.commands.values(), ids=lambda command: command.name)
def test_every_option_states_its_default(command):
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert all(option.show_default or "(default: " in option.help for option in options)


def test_nothing_typed_shows_the_help(typed):
    code, _, err = typed()
    assert code == 2
    assert "Commands:" in err


def test_listings_are_tables_and_json(typed):
    rows = {what: json.loads(typed("list", what, "--json")[1]) for what in ("ops", "providers", "models", "presets")}
    assert [row["op"] for row in rows["ops"]] == list(ops())
    assert {"family", "what", "axes", "semantics", "outputs", "mutates", "providers"} <= rows["ops"][0].keys()
    assert [(row["op"], row["provider"]) for row in rows["providers"]] == list(providers())
    assert {"kimi-k3", "deepseek-v3"} <= {row["model"] for row in rows["models"]}
    assert [row["preset"] for row in rows["presets"]] == ["regressions", "smoke", "baseline", "pr", "nightly"]
    for what in rows:
        code, out, _ = typed("list", what)
        assert code == 0
        assert "-----" in out


def test_one_op_is_listed_in_full(typed):
    _, out, _ = typed("list", "ops", "--op", "merge_state")
    for said in (
        "merge_state (merging)",
        "two empty parts give o = 0, lse = -inf",
        "hN",
        "lse: natural, base-2",
        "torch_eager: yes, cpu",
        "flashinfer: unsupported",
    ):
        assert said in out


def test_cells_are_listed_with_why_a_provider_has_none(typed):
    chosen = ("list", "cases", "--op", "merge_state", "--provider", "torch_eager,flashinfer")
    rows = json.loads(typed(*chosen, "--json")[1])
    assert {"cell": "merge_state[flashinfer]", "platform": "cpu", "status": "unsupported", "why": "serves cuda; this machine is cpu"} in rows
    assert {"cell": "merge_state[torch_eager-t3-h1-fp32]", "platform": "cpu", "status": "", "why": ""} in rows
    assert typed(*chosen)[1].splitlines() == [row["cell"] for row in rows]


def test_run_prints_results_with_their_verdict_as_json(typed):
    code, out, _ = typed("run", "--json", "--ledger", "none", "--cell", "merge_state[torch_eager-t3-h2-fp16]")
    row = json.loads(out)
    assert code == 0
    assert (row["status"], row["verdict"], row["evidence"], row["case"]) == ("pass", "ok", "executed", "t3-h2-fp16")


@pytest.mark.parametrize(("arguments", "code"), [(["run", "--preset", "nope"], 2), (["run", "--op", "merge_state", "--provider", "torch_eager"], 3)])
def test_a_full_stderr_is_no_finding(tmp_path, arguments, code):
    with open("/dev/full", "w") as full:
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        ended = subprocess.run([sys.executable, "-m", "harness", *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=full, env=buffered)
    assert ended.returncode == code
