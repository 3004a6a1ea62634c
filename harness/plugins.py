"""Third-party ops and providers: from the entry-point group `kernel_parity.plugins`, or a file or module named with --plugin."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from harness.errors import UsageError
from harness.machine.classify import words_of

GROUP = "kernel_parity.plugins"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(words_of(error).split())}"


def load_plugins(named: Iterable[str]) -> None:
    """Imports every installed plugin and those named. Raises UsageError naming the plugin and what its import said."""
    from harness.providers import providers

    providers()  # built-in ops and providers first, so that a plugin can refer to them
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also a plugin that calls sys.exit
            raise UsageError(f"plugin {entry.name!r} ({entry.value}) does not load: {_line(error)}") from error
    for name in named:
        _load(name)


def _load(name: str) -> None:
    path = Path(name)
    # two files may share their name, and one file be named in two ways
    module_name = f"kernel_parity_plugin_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}" if name.endswith(".py") else name
    if module_name in sys.modules:
        return
    try:
        if not name.endswith(".py"):
            importlib.import_module(name)
            return
        if not path.is_file():
            raise UsageError(f"plugin {name!r} is not a file; give a path to a .py file or an importable module")
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"plugin {name!r} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    except UsageError:
        sys.modules.pop(module_name, None)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a plugin that calls sys.exit
        sys.modules.pop(module_name, None)
        raise UsageError(f"plugin {name!r} does not load: {_line(error)}") from error
