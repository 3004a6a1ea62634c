"""The facts of one AITER tree: what `reading.toml` lists, with the commit, file and line of each."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.offline.aiter import cxx, python, tables

SCHEMA = 1
Row = dict[str, Any]


def read_tree(tree: Path, commit: str = "", version: str = "") -> Row:
    """The facts of the tree as plain data. `commit` default: that of the git checkout.

    Raises UsageError, one line, where the tree is not AITER's or lacks a required name.
    """
    reading = tomllib.loads((Path(__file__).parent / "reading.toml").read_text())
    for place in reading["required"]:
        file, name = place.split(":")
        if not (tree / file).is_file() or not re.search(rf"^def {name}\(", (tree / file).read_text(), re.M):
            raise UsageError(f"{tree} is not a tree of AITER's sources: it has no {name} in {file}")
    return {
        "schema": SCHEMA,
        "library": "aiter",
        "version": version,
        "commit": commit or _commit(tree),
        "functions": dict(_functions(tree, reading)),
        "constants": dict(_constants(tree, reading)),
        "native": dict(_natives(tree, reading)),
        "undefined": list(_undefined(tree, reading["attributes"]["files"])),
        "tables": {
            "mla_decode_fwd_persistent": tables.decode_wrapper(tree, persistent=True),
            "mla_decode_stage1": tables.stage1(tree),
            "mla_metadata": tables.metadata(tree),
            "mla_metadata_sizes": tables.metadata_sizes(tree),
            "mla_prefill": tables.prefill(tree, "mla_prefill_asm_fwd"),
            "mla_prefill_ps": tables.prefill(tree, "mla_prefill_ps_asm_fwd"),
            "mla_reduce": tables.reduce_router((tree / tables.REDUCE).read_text()),
            "varlen": tables.varlen(tree),
            "pa": _paged(tree),
        },
        "ambiguous_kernels": {arch: tables.ambiguous(tables.kernel_rows(tree, arch, "mla")) for arch in tables.ARCHES},
    }


def written(facts: Row) -> str:
    """The facts as JSON, one row of a table a line."""

    def text(value: Any, depth: int) -> str:
        pad = "  " * (depth + 1)
        if isinstance(value, dict) and depth < 3 and value:
            return "{\n" + ",\n".join(f"{pad}{json.dumps(key)}: {text(part, depth + 1)}" for key, part in value.items()) + "\n" + pad[2:] + "}"
        if isinstance(value, list) and depth < 3 and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(pad + json.dumps(part) for part in value) + "\n" + pad[2:] + "]"
        return json.dumps(value)

    return text(facts, 0) + "\n"


def _commit(tree: Path) -> str:
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{tree} is no git checkout; say which commit it is with --commit")
    return done.stdout.strip()


def _functions(tree: Path, reading: Row) -> Iterator[tuple[str, Row]]:
    for module, asked in reading["python"].items():
        parsed = ast.parse((tree / asked["file"]).read_text())
        for name in asked["functions"]:
            try:
                function = python.find_function(parsed, name)
            except LookupError:
                continue
            where = {"file": asked["file"], "line": function.lineno, "binding": python.binding(parsed, function)}
            yield f"{module}:{name}", {**where, "parameters": python.signature(function)}


def _constants(tree: Path, reading: Row) -> Iterator[tuple[str, Row]]:
    for asked in reading["constant"]:
        try:
            value, line = python.constant(ast.parse((tree / asked["file"]).read_text()), asked["name"])
        except LookupError:
            continue
        yield asked["name"], {"file": asked["file"], "line": line, "value": value}


def _natives(tree: Path, reading: Row) -> Iterator[tuple[str, Row]]:
    for asked in reading["native"]:
        source = (tree / asked["file"]).read_text()
        try:
            line, parameters, _ = cxx.function(cxx.stripped(source), asked["name"])
        except LookupError:
            continue
        throws = re.search(rf"AITER_CTYPES_DEFINE_ENTRYPOINT(?:_VOID)?\(\s*{asked['name']}\b", source) is not None
        aborts = "AITER_CHECK" in source and not throws
        yield asked["name"], {"file": asked["file"], "line": line, "parameters": parameters, "refusal": "abort" if aborts else "raise"}


def _undefined(tree: Path, files: list[str]) -> Iterator[Row]:
    """Uses of `aiter.NAME` of which no module of the tree defines the name."""
    defined: set[str] = set()
    for path in (tree / "aiter").rglob("*.py"):
        found = re.findall(r"^\s*(?:def|class)\s+(\w+)|^(\w+)\s*[:=]", path.read_text(errors="replace"), re.M)
        defined |= {name for pair in found for name in pair if name} | {path.stem, path.parent.name}
    for file in files:
        for node in ast.walk(ast.parse((tree / file).read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "aiter" and node.attr not in defined:
                yield {"name": f"aiter.{node.attr}", "file": file, "line": node.lineno}


def _paged(tree: Path) -> list[Row]:
    """The kernels of `pa_fwd_asm` for one query a request and 16-token pages, by architecture, dtypes and heads a KV head."""
    return [
        {"arch": arch, "q": row["qType"], "kv": row["kvType"], "group": int(row["Gqa"]), "precision": int(row["Hp"]), "kernel": row["knl_name"]}
        for arch in tables.ARCHES
        for row in tables.kernel_rows(tree, arch, "pa")
        if (row["Mtp"], row["Msk"], row["blkSz"], row.get("ps", "0")) == ("0", "0", "16", "0")
    ]
