"""`python -m tests.standin [gfx942|gfx950] [new|old]`: builds the stand-in in a temporary folder and prints it, for PYTHONPATH."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.standin.build import VERSIONS, build

arch, version = [*sys.argv[1:3], *("gfx950", "new")[len(sys.argv) - 1 :]][:2]
if version not in VERSIONS or arch not in ("gfx942", "gfx950"):
    sys.exit("usage: python -m tests.standin [gfx942|gfx950] [new|old]")
print(build(Path(tempfile.mkdtemp(prefix="aiter-standin-")), version, arch))
