"""Routes: the command, its page, and what is typed wrong."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from surveys import CASES, source

from harness.cli import cli
from harness.errors import UsageError
from tests.test_docs import follow


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["routes", *arguments])


def test_command() -> None:
    source("0.5.23")
    done = run("sglang==0.5.23", "--model", "kimi-k3", "--tp", "8", "--target", "gfx950")
    assert done.exit_code == 0, done.output
    assert "nothing ran on a device" in done.output
    assert re.search(r"model_override_base\.py:\d+: head_num == 128 or head_num == 16 is False", done.output)
    assert "measured" not in done.output


def test_command_json_and_exit_code(tmp_path: Path) -> None:
    source("0.5.23")
    shutil.copytree(CASES, tmp_path / "cases", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "cases" / "routes.toml"
    file.write_text(file.read_text().split("[[known]]")[0])
    done = run("sglang==0.5.23", "--model", "kimi-k2", "--target", "gfx950", "--json", "--cases", str(tmp_path / "cases"))
    assert done.exit_code == 1
    data = json.loads(done.output)
    assert data["evidence"] == "routed"
    assert {row["tp"]: row["backend"] for row in data["routes"]} == {1: "triton", 2: "triton", 4: "aiter", 8: "triton", 16: "triton"}
    assert [finding["kind"] for finding in data["findings"]] == ["new"] * 4


def test_command_diff() -> None:
    source("0.5.23"), source("0.5.16")
    done = run("sglang==0.5.23", "--diff", "sglang==0.5.16", "--model", "kimi-k3,kimi-k2", "--target", "gfx950")
    assert done.exit_code == 0, done.output
    assert re.search(r"route of kimi-k3\s+TP 1, 2, 4, 8, 16\s+not in this version\s+triton", done.output)
    assert "kimi-k2" not in done.output


def test_command_diff_that_got_worse() -> None:
    source("0.5.23"), source("0.5.16")
    done = run("sglang==0.5.16", "--diff", "sglang==0.5.23", "--model", "kimi-k2", "--tp", "4", "--target", "gfx950", "--json")
    assert done.exit_code == 1
    data = json.loads(done.output)
    assert data["evidence"] == "routed"
    assert {"aiter decode, bf16 KV", "aiter fp8 prefill"} <= {row["what"] for row in data["changes"] if row["worse"]}


def test_the_page_is_true(tmp_path: Path) -> None:
    source("0.5.23"), source("0.5.16")
    follow("routes.md", tmp_path)


def test_sources_that_do_not_parse_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "sglang" / "srt" / "server_args.py"
    file.parent.mkdir(parents=True)
    for text in (b"x = (\n", b"\xff\xfe", b"x = 1\x00"):
        file.write_bytes(text)
        done = run(str(tmp_path))
        assert (done.exit_code, done.output) == (1, "")
        assert isinstance(done.exception, UsageError)
        assert "server_args.py" in str(done.exception)
        assert "\n" not in str(done.exception)


def test_a_repeated_option_is_one_row_and_no_version_is_a_mistake() -> None:
    source("0.5.23")
    twice = run("sglang==0.5.23", "--model", "kimi-k3,kimi-k3", "--model", "kimi-k3", "--tp", "8", "--tp", "8", "--target", "gfx950", "--json")
    assert len(json.loads(twice.output)["routes"]) == 1
    assert "sglang==VERSION" in str(run("").exception)
