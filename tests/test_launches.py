"""The launch capture in both forms, on a described device whose launcher only keeps a record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("launching.py")


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the script found, by check: it needs a process of its own, since a described device is not undone."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, cwd=SCRIPT.parent.parent)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("check", "wanted"),
    [
        ("both forms see the same launch", "True"),
        ("launched while compiling alone", "0"),
        ("launched while looking on", "[(3, 2, 1)]"),
        ("seen before it was launched", "True"),
        ("described", "(True, None, 'gfx942:sramecc+:xnack-', 64, (9, 4), 64)"),
        ("kernel", "scaled"),
        ("grid of a function", "(3, 2, 1)"),
        ("signature", "{'x': '*bf16', 'factor': 'fp32', 'count': 'i32', 'BLOCK': 'constexpr'}"),
        ("constants", "{'BLOCK': 64}"),
        ("aligned", "('x', 'count')"),
        ("options", "(2, 3, 1)"),
        ("place", "True"),
        ("target", "gfx942"),
        ("too large while compiling alone", "OutOfResources, seen with its error"),
        ("too large while looking on", "OutOfResources, seen"),
        ("broken", "CompilationError, seen with its error"),
        ("candidates of a search", "[True, True, False]"),
        ("a warm-up of the caller's own", "0"),
        ("after the block", "True"),
        ("after an exception", "True"),
        ("another target's artefact", "HarnessError"),
        ("another target's artefact, where the library catches everything", "HarnessError"),
    ],
)
def test_launches(said, check, wanted):
    assert said[check] == wanted


def test_every_check_of_the_script_is_looked_at(said):
    assert len(said) == 22


def test_the_interpreter_has_no_launches():
    code = "from harness.machine.launches import captured\nwith captured(print): pass"
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(SCRIPT.parent.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "HarnessError: Triton's interpreter is on" in done.stderr
