"""A folder of tiny wheels, to be installed from without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, version: str, text: str, name: str = "tinyparity") -> Path:
    """Writes the wheel of a package of one module with that text."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: no-such-package\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(place, content)
    return path
