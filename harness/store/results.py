"""One result a line, self-contained: everything after the run can be recomputed from it without a device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from harness.errors import HarnessError, UsageError
from harness.store.timing import MODES, Remedy, Timing

SCHEMA = 1
Figure = float | int | str
# `error`: the contract or the harness failed, not the provider; the run goes on and ends with exit code 3
FINDINGS = ("mismatch", "nondeterministic", "missing", "crash", "hang", "out-of-memory", "build-failed")
QUIET = ("refused", "unsupported", "absent")
STATUSES = ("pass", *FINDINGS, *QUIET, "error")
# how a kernel can be compiled badly for a target that is not here; words of the ledger alone, no cell that ran ends so
COMPILED = ("spill", "scratch", "no-matrix", "over-limit", "foreign-fp8", "jump", "timeout")


class Result(msgspec.Struct, omit_defaults=True):
    """A cell's verdict with its evidence.

    cell       `op[provider-case]`, or `op[provider]` for a provider that cannot run here at all
    evidence   measured (on a device), interpreted (Triton's interpreter), executed (plain PyTorch on a CPU), none (did not run)
    errors     by output: the greatest error as a share of its tolerance
    figures    by output: counts, greatest differences and their index
    rivals     by rule of another project: passes, fails or cannot judge; of a selftest alone
    seconds    by share: harness, check, inputs, reference, prepare, kernel, compile, import; `run` for a cell that did not return
    timings    one for each run with the clock, of a cell that passed; the row is then written anew, and the last one counts
    chosen     of a served cell: what was chosen between the server's flag and the kernels, by step
    remedy     what was tried where neighbours say that it is too slow
    """

    cell: str
    op: str
    provider: str
    case: str
    status: str
    platform: str
    evidence: str = "none"
    reason: str = ""
    detail: str = ""
    errors: dict[str, Figure] = {}
    figures: dict[str, dict[str, Figure]] = {}
    seconds: dict[str, float] = {}
    inputs: dict[str, str] = {}
    rivals: dict[str, str] = {}
    input_hash: str = ""
    values: dict[str, Figure] = {}
    device: dict[str, str] = {}
    versions: dict[str, str] = {}
    notes: list[str] = []
    seed: int = 0
    at: str = ""
    timings: list[Timing] = []
    chosen: dict[str, str] = {}
    remedy: Remedy | None = None
    schema: int = SCHEMA


def plain(value: Figure) -> Figure:
    """A figure as JSON can hold it: `inf` and `nan` as words, floats to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Result)
_BEGINS = b'{"cell":'  # every line


def encode(result: Result) -> bytes:
    """The result as one JSON line, without the newline."""
    return _encoder.encode(result)


def decode(line: bytes) -> Result:
    """A result from its line. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(line)


class ResultLog:
    """Appends result lines to a file, each written and flushed whole, so that a kill loses at most the cell in flight."""

    def __init__(self, path: Path, *, resume: bool = False, alone: bool = True) -> None:
        """Opens the log; `resume` keeps its whole lines, else it starts empty. While it is open no other run may write to the file
        (a lock, which ends with the process); not `alone`: as a helper of a run that holds it. Raises UsageError when the path is
        not writable, or another run has it.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # unbuffered appends: a line is one write, so the processes of one run can share the file
            self._file = open(path, "ab", buffering=0)
            if not path.is_file():
                return
            if alone and not _locked(self._file.fileno()):
                self._file.close()
                raise UsageError(f"another run is writing to {path}; wait for it, or give another file with --results")
            if alone:
                kept = path.read_bytes() if resume else b""
                whole = _end_of_whole_lines(kept)
                if kept and not whole and not kept.startswith(_BEGINS[: len(kept)]):
                    self._file.close()
                    raise UsageError(f"{path} holds no results to go on from; give another file, or leave out --resume, which starts it afresh")
                self._file.truncate(whole)
        except OSError as error:
            raise UsageError(f"cannot write results to {path}: {error.strerror}; give a writable path with --results") from error

    def append(self, result: Result) -> None:
        """Writes one line. Raises HarnessError when it cannot be written whole: the disk is full."""
        line = encode(result) + b"\n"
        try:
            written = self._file.write(line)
            if written != len(line):  # a disk that fills up takes a part; reading passes over it, and resuming removes it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise HarnessError(f"cannot append to {self.path}: {error.strerror}; the results so far are kept") from error

    def close(self) -> None:
        """Forces the file to disk, where it is on one, and closes it."""
        with contextlib.closing(self._file), contextlib.suppress(OSError):  # EINVAL: a pipe or a device such as /dev/stdout
            os.fsync(self._file.fileno())

    def __enter__(self) -> ResultLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _locked(handle: int) -> bool:
    """Whether this process now holds the file's lock; also where the file system has none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _end_of_whole_lines(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def read(path: Path) -> Iterator[Result]:
    """The results of a log, in order; a torn last line is passed over.

    Raises UsageError for an unreadable file, a broken line before the last, and a line that no run of this version writes.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read results {path}: {error.strerror}") from error
    lines = data[: _end_of_whole_lines(data)].splitlines()
    for number, line in enumerate(lines, 1):
        try:
            result = decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{path}:{number} is not a result line ({error}); remove the line or the file") from error
        if wrong := _mistake(result):
            raise UsageError(f"{path}:{number} is not a result line ({wrong}); remove the line or the file")
        yield result


def _mistake(result: Result) -> str:
    """What no run writes, in words, or an empty string: a baseline would take it, and nobody could read that baseline."""
    if result.schema != SCHEMA:
        return f"schema {result.schema}, and this version reads {SCHEMA}"
    if result.status not in STATUSES:
        return f"unknown status {result.status!r}"
    for timing in result.timings:
        if timing.mode not in MODES:
            return f"timed by {timing.mode!r}, and there are {' and '.join(MODES)}"
        times = {"median": timing.median, **({"control_us": timing.control_us} if timing.control else {})}
        if wrong := [f"{name} {us}" for name, us in times.items() if not (math.isfinite(us) and us > 0)]:
            return f"a time that is none: {wrong[0]}"
    return ""
