"""Recorded runs: a NumPy archive with one array of samples a cell and mode, each row one fresh process."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

MODES = ("graph", "eager")
CONTROL = "control-"
_KIND = "an archive of numpy.savez with arrays [runs, samples] under keys such as mla_decode-library-h12|graph"


def read(path: Path, *, runs: int) -> dict[str, np.ndarray]:
    """The samples of every cell by its key, `[runs, samples]`, float64, in the file's own unit.

    Raises UsageError, naming the file and the key, for what is no such archive, for a cell with fewer than `runs` runs or two
    samples, and for samples that are no times.
    """
    found = {key: _checked(path, key, samples, runs) for key, samples in _arrays(path).items()}
    if not any(not key.startswith(CONTROL) for key in found):
        raise UsageError(f"{path} has no traces; give {_KIND}")
    return found


def _arrays(path: Path) -> dict[str, Any]:
    import numpy as np

    try:
        with open(path, "rb") as file:
            first = file.read(2)
        if not first:
            raise UsageError(f"{path} is empty; record it again, or give {_KIND}")
        if first != b"PK":
            raise UsageError(f"{path} holds no traces (it is no archive); give {_KIND}")
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}; give {_KIND}") from error
    except zipfile.BadZipFile as error:
        raise UsageError(f"{path} is broken or cut short ({error}); copy or record it again") from error
    except UsageError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds for bytes that are none of theirs
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{path} holds no traces ({reason[:100]}); give {_KIND}") from error


def _checked(path: Path, key: str, samples: Any, runs: int) -> np.ndarray:
    import numpy as np

    name, _, mode = key.rpartition("|")
    if not name or mode not in MODES:
        raise UsageError(f"{path}: key {key!r} does not end with |graph or |eager; give {_KIND}")
    if not isinstance(samples, np.ndarray):
        raise UsageError(f"{path}: {key} is no array; give {_KIND}")
    if samples.ndim != 2 or samples.dtype.kind not in "fiu":
        raise UsageError(f"{path}: {key} is {samples.dtype}{list(samples.shape)}, not numbers [runs, samples]; record it again or leave it out")
    if samples.shape[0] < runs:
        raise UsageError(f"{path}: {key} has {samples.shape[0]} runs, and the replay needs {runs}; record more fresh processes or leave it out")
    if samples.shape[1] < 2:
        raise UsageError(f"{path}: {key} has {samples.shape[1]} samples a run, and a run's spread needs 2; record more or leave it out")
    values = samples.astype(np.float64)
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        run, place = np.argwhere(wrong)[0]
        raise UsageError(f"{path}: {key} has {wrong.sum()} samples that are no times, first {values[run, place]} in run {run}; leave those runs out")
    return values
