"""The documentation is run: files are written, commands typed, and what is quoted must be what they print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, the file it is to be (if any), and its text."""

    language: str
    file: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(*(part or "" for part in match.groups())) for match in FENCE.finditer((DOCS / page).read_text())]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the lines quoted below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *quoted = part.splitlines()
        yield command, quoted


def matches(quoted: list[str], printed: str) -> bool:
    """Whether the output is as quoted: lines in order, `...` alone for any lines, within a line for any text; blanks do not count."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else _line(line) for line in quoted)
    squeezed = "".join(f"{' '.join(line.split())}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, squeezed) is not None


def _line(quoted: str) -> str:
    return ".*".join(re.escape(" ".join(part.split(" "))) for part in re.sub(r" +", " ", quoted.strip()).split("...")) + r"\n"


def follow(page: str, folder: Path) -> None:
    """Does what a page says, in a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "COLUMNS": "160"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    code = expected = 0
    for block in blocks(page):
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
        if block.language != "console":
            continue
        for command, quoted in commands(block.text):
            if command == "echo $?":
                assert code == int(quoted[0]), f"{page}: exit code {code}, quoted {quoted[0]}"
                expected = code
                continue
            assert code == expected, f"{page}: exit code {code} before {command!r}, which the page does not say"
            done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            code, expected = done.returncode, 0
            out = done.stdout or done.stderr
            assert not quoted or matches(quoted, out), f"{page}: {command}\n{out}{done.stderr}"
    assert code == expected, f"{page}: exit code {code} at the end, which the page does not say"


@pytest.mark.parametrize(
    "page",
    ["add-a-provider.md", "add-an-op.md", "bugs.md", "distribution.md", "fuzz.md", "relations.md", "selftest.md", "statuses.md", "tolerance.md"],
)
def test_a_page_is_true(page, tmp_path):
    follow(page, tmp_path)


def test_the_ledger_page_is_true(tmp_path):
    pytest.importorskip("sglang")
    follow("ledger.md", tmp_path)


def test_the_codegen_page_is_true(tmp_path):
    pytest.importorskip("triton")
    pytest.importorskip("sglang")
    follow("codegen.md", tmp_path)


def test_the_presets_page_is_true(tmp_path):
    pytest.importorskip("allpairspy")
    shutil.copytree(ROOT / "cases", tmp_path / "cases")
    follow("presets.md", tmp_path)


def test_a_simple_provider_costs_at_most_fifteen_lines_in_one_file():
    simple = next(block for block in blocks("add-a-provider.md") if block.language == "python")
    assert len([line for line in simple.text.splitlines() if line.strip()]) <= 15


def test_pages_link_to_pages_that_exist():
    for page in [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("quoted", "printed", "same"),
    [
        (["a  b", "...", "c"], "a b\nx\ny\nc\n", True),
        (["a ... c"], "a b c\n", True),
        (["a"], "a\nb\n", False),
        (["...", "b"], "b\n", True),
        (["(1.0)"], "(1x0)\n", False),
    ],
)
def test_quotes_are_compared(quoted, printed, same):
    assert matches(quoted, printed) == same
