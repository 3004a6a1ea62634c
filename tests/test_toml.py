"""TOML files of facts: what is wrong with one is a line that names file, table and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import toml
from harness.errors import UsageError, unknown

KNOWN: dict[str, Any] = {
    "name": str,
    "on": bool,
    "size": int,
    "words": list[str],
    "more": dict[str, list[str]],
    "any": dict[str, Any],
    "each": list[dict[str, Any]],
}


def test_what_fits_is_silent() -> None:
    table = {"name": "x", "on": False, "size": 0, "words": [], "more": {"a": ["b"]}, "any": {"a": 1}, "each": [{}]}
    toml.check("f.toml", table, KNOWN, ("name", "on", "size", "more"))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (3, "f.toml is not a table"),
        ({"nmae": "x"}, "f.toml: unknown field 'nmae'; nearest: name"),
        ({"name": 1}, "f.toml: name is text, not 1"),
        ({"name": ""}, "f.toml: needs name"),
        ({"name": "x", "on": 1}, "f.toml: on is true or false, not 1"),
        ({"name": "x", "size": True}, "f.toml: size is a whole number, not True"),
        ({"name": "x", "words": ["a", 1]}, r"f.toml: words is a list of words, not \['a', 1\]"),
        ({"name": "x", "more": {"a": "b"}}, "f.toml: more.a is a list of words, not 'b'"),
        ({"name": "x", "more": []}, r"f.toml: more is a table, not \[\]"),
        ({"name": "x", "each": {}}, "f.toml: each is a list of tables"),
    ],
)
def test_what_does_not_fit_is_named(table: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        toml.check("f.toml", table, KNOWN, ("name",))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[x")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name in ("broken", "binary", "absent"):
        with pytest.raises(UsageError, match=f"cannot read the facts .*{name}.toml"):
            toml.read(tmp_path / f"{name}.toml", "the facts")


def test_the_hint_of_an_unknown_name_is_a_command_that_exists() -> None:
    for kind in ("op", "provider", "model", "preset", "case"):
        assert f"(kernel-parity list {kind}s)" in str(unknown(kind, "x", ["y"]))
    assert str(unknown("scenario", "hpi", ["hip"])) == "unknown scenario 'hpi'; nearest: hip"
