"""Writes an importable `aiter` whose functions have exactly the signatures of a facts file; calls go to tests/standin/kernels.py."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

FACTS = Path(__file__).resolve().parents[2] / "harness/providers/aiter/facts"
VERSIONS = {"old": "v0.1.9.post1.json", "new": "e4048607.json"}
# annotations that a torch.library schema needs, in its own words
_SCHEMA = {
    "torch.Tensor": "Tensor",
    "torch.Tensor | None": "Tensor?",
    "Optional[torch.Tensor]": "Tensor?",
    "int": "int",
    "float": "float",
    "bool": "bool",
}


def build(folder: Path, version: str, arch: str) -> Path:
    """The folder to put on the module path. `version` old or new; `arch` gfx942 or gfx950."""
    facts = json.loads((FACTS / VERSIONS[version]).read_text())
    modules: dict[str, list[str]] = defaultdict(list)
    for place, row in facts["functions"].items():
        module, name = place.split(":")
        modules[module].append(_function(place, name, row["parameters"]))
        if row["binding"] == "custom_op" and module.endswith("sampling"):
            modules[module].append(f"_register({name!r}, {name}, {_schema(name, row['parameters'])!r})\n")
    files = {
        "aiter/__init__.py": f"from standin import kernels\nkernels.begin({str(FACTS / VERSIONS[version])!r}, {arch!r})\n",
        "aiter/ops/__init__.py": "",
        "aiter/jit/__init__.py": "",
        "aiter/jit/utils/__init__.py": "",
        "aiter/jit/utils/chip_info.py": f"def get_gfx():\n    return {arch!r}\n",
    }
    head = "from standin.kernels import call as _call, register as _register\n\n"
    files |= {module.replace(".", "/") + ".py": head + "\n".join(functions) for module, functions in modules.items()}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "standin").symlink_to(Path(__file__).parent)
    return folder


def _default(row: dict) -> str:
    if "default_text" in row:
        return "=None"
    if "default" not in row:
        return ""
    value = row["default"]
    return f"={tuple(value) if isinstance(value, list) else value!r}"


def _function(place: str, name: str, parameters: list[dict]) -> str:
    written = ", ".join(row["name"] + _default(row) for row in parameters)
    return f"def {name}({written}):\n    return _call({place!r}, dict(locals()))\n"


def _schema(name: str, parameters: list[dict]) -> str:
    written = ", ".join(f"{_SCHEMA[row['type']]} {row['name']}" + (f"={row['default']}" if "default" in row else "") for row in parameters)
    return f"{name}({written}) -> Tensor"
