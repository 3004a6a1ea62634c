"""A source tree with one file changed: everything else is linked to what it was made of."""

from __future__ import annotations

from pathlib import Path


def edited(root: Path, into: Path, file: str, *changes: tuple[str, str]) -> Path:
    """The folder of a tree as `root`, in which `file` has each first text replaced by the second; every change must be one."""
    text = (root / file).read_text()
    for before, after in changes:
        assert before in text, f"{file} has no {before!r}"
        text = text.replace(before, after)
    at, below = into, root
    for part in Path(file).parts:
        at.mkdir(parents=True, exist_ok=True)
        for entry in below.iterdir():
            if entry.name != part and not (at / entry.name).exists() and entry.name != "__pycache__":
                (at / entry.name).symlink_to(entry)
        at, below = at / part, below / part
    at.write_text(text)
    return into
