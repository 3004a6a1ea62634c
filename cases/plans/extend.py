"""Extends the frozen presets from the plans beside this file: `python cases/plans/extend.py`.

A preset is a list of case ids an op, in cases/presets/<preset>/<op>.txt. Ids already there keep their place for ever; what
a plan adds is appended. A plan module has functions named after the presets that it adds to; they yield (op, case id).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PRESETS = ("smoke", "pr", "nightly", "baseline")


def plans() -> Iterator[ModuleType]:
    """The plan modules, loaded by path."""
    sys.path.insert(0, str(HERE))
    for path in sorted(HERE.glob("*.py")):
        if path.stem in ("tools", "extend"):
            continue
        spec = importlib.util.spec_from_file_location(f"plan_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def planned() -> dict[tuple[str, str], list[str]]:
    """(preset, op) -> case ids in the plan's order, without repeats."""
    lists: dict[tuple[str, str], dict[str, None]] = {}
    for module in plans():
        for preset in PRESETS:
            for op_name, case_id in getattr(module, preset, lambda: ())():
                lists.setdefault((preset, op_name), {})[case_id] = None
    return {key: list(ids) for key, ids in lists.items()}


def record() -> dict[str, list[int | str]]:
    """The lists as they stand: file -> number of ids and a hash of them in order. tests/ holds later lists against it."""
    lists = {path: path.read_text().split() for path in sorted((HERE.parent / "presets").glob("*/*.txt"))}
    return {f"{path.parent.name}/{path.stem}": [len(ids), fingerprint(ids)] for path, ids in lists.items()}


def fingerprint(ids: list[str]) -> str:
    """A short hash of ids in their order."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


def main() -> int:
    """Appends what is new; prints a count a file; records the lists in presets/frozen.json."""
    for (preset, op_name), ids in planned().items():
        path = HERE.parent / "presets" / preset / f"{op_name}.txt"
        old = path.read_text().split() if path.exists() else []
        new = [case_id for case_id in ids if case_id not in set(old)]
        if new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([*old, *new]) + "\n")
        print(f"{preset}/{op_name}: {len(old)} kept, {len(new)} added")
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in record().items())
    (HERE.parent / "presets" / "frozen.json").write_text("{\n" + rows + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
