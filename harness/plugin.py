"""The pytest face: turns `test_<op>(cell, judge)` into one test a cell. Loaded by conftest.py, or with `-p harness.plugin`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cli_options import SEEDS
from harness.errors import HarnessError, UsageError
from harness.selection import Cell

if TYPE_CHECKING:
    from harness.plugin_desk import DeskMode
    from harness.plugin_timing import TimedCells

_STATE = pytest.StashKey["_State"]()
_BROKEN = pytest.StashKey[bool]()
_DESK: pytest.StashKey[DeskMode] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `kernel-parity run`, where pytest has none of its own."""
    group = parser.getgroup("kernel-parity")
    group.addoption("--preset", default=None, help="Frozen list of cases (default: smoke on a CPU, pr on a GPU).")
    group.addoption("--op", action="append", default=[], help="Only these ops (default: all).")
    group.addoption("--provider", action="append", default=[], help="Only these providers (default: all).")
    group.addoption("--model", default=None, help="Exactly the shapes of this model instead of a preset (default: none).")
    group.addoption("--tp", type=int, default=1, help="Tensor parallelism for --model (default: 1).")
    group.addoption("--platform", default=None, help="cuda, rocm or cpu (default: what the device files show).")
    group.addoption("--shard", default="", help="Part I/N of the cells (default: all).")
    group.addoption("--results", default=None, metavar="FILE", help="Append result lines here (default: none).")
    group.addoption("--ledger", default=None, help="Ledger file, or 'none' (default: cases/ledger.toml).")
    group.addoption("--plugin", action="append", default=[], metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed ones).")
    group.addoption("--input-seed", type=int, default=0, help="Seed of the inputs (default: 0).")
    group.addoption("--build-timeout", type=float, default=900.0, help="Seconds a just-in-time build may take (default: 900).")
    group.addoption("--cell-timeout", type=float, default=60.0, help="Seconds a cell may take, compilers apart (default: 60).")
    group.addoption("--timing", action="store_true", help="Then time on the device what is right, and print the times (default: off).")
    group.addoption("--runs", type=int, default=3, help="With --timing: runs over the cells, each in a fresh process (default: 3).")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses a seed that no generator takes and what --timing does not go with, and turns desk mode on with pytest-benchmark's own --benchmark-only."""
    try:
        if not 0 <= config.getoption("--input-seed") <= SEEDS:
            raise UsageError(f"--input-seed is a number from 0 to {SEEDS}, not {config.getoption('--input-seed')}")
        if config.getoption("--timing"):
            from harness.plugin_timing import refuse

            refuse(config)
        elif config.getoption("benchmark_only", False):
            from harness.plugin_desk import DeskMode

            config.stash[_DESK] = DeskMode(config)
            config.pluginmanager.register(config.stash[_DESK], "kernel-parity-desk")
    except UsageError as error:
        pytest.exit(str(error), returncode=error.exit_code)


class _State:
    """The cells by op, the ledger, the log and the lazily started session of one pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        from harness.commands.run import ledger_of, selection_of
        from harness.machine.platforms import machine_platform
        from harness.machine.pool import Limits
        from harness.selection import select, uncovered
        from harness.session import Session
        from harness.store.results import ResultLog

        get = config.getoption
        machine = machine_platform(get("--platform"))
        self.desk = config.stash.get(_DESK, None)
        options = {
            "preset": get("--preset") or ("smoke" if machine == "cpu" else "pr"),
            "ops": get("--op"),
            "providers": get("--provider"),
            "model": get("--model"),
            "tp": get("--tp"),
            "platform": machine,
            "shard": get("--shard"),
            "cases_dir": None,
            "plugins": get("--plugin"),
        }
        selection = selection_of(options)
        self.folder = selection.cases_dir
        self.uncovered = uncovered(selection)
        self.ledger = ledger_of(get("--ledger"), selection.cases_dir)
        self.cells: dict[str, list[Cell]] = {}
        for cell in select(selection):
            self.cells.setdefault(cell.op, []).append(cell)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self.session = Session(
            machine,
            plugins=tuple(get("--plugin")),
            limits=Limits(get("--cell-timeout"), get("--build-timeout")),
            seed=get("--input-seed"),
            first_device=int(worker.removeprefix("gw")) if worker else 0,
        )
        results = get("--results")
        # of pytest-xdist the controller holds the file for its workers
        self.log = ResultLog(Path(results), resume=bool(worker), alone=not worker) if results and not config.option.collectonly else None
        self.broken = False
        self.timed = self._timed(config)

    def _timed(self, config: pytest.Config) -> TimedCells | None:
        if not config.getoption("--timing"):
            return None
        from harness.plugin_timing import TimedCells

        timed = TimedCells(self.session, self.ledger, self.log, config.getoption("--runs"))
        config.pluginmanager.register(timed, "kernel-parity-timing")
        return timed

    def close(self) -> None:
        self.session.close()
        if self.log:
            self.log.close()


def _state(config: pytest.Config) -> _State:
    if _STATE not in config.stash:
        try:
            config.stash[_STATE] = _State(config)
        except (UsageError, HarnessError) as error:
            pytest.exit(str(error), returncode=error.exit_code)
    return config.stash[_STATE]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Selects the cells before anything under cases/ is collected, so that a wrong option is one line and not an error a module."""
    from harness.selection import DEFAULT_CASES

    paths = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    if any(path == DEFAULT_CASES or DEFAULT_CASES in path.parents for path in paths):
        _state(session.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a cell for every function with a `cell` argument; `test_other_ops` takes the ops without a function of their own."""
    if "cell" not in metafunc.fixturenames:
        return
    cells = _state(metafunc.config).cells
    name = metafunc.function.__name__.removeprefix("test_")
    if name == "plugin_ops":
        from harness.contracts import ops

        chosen = [cell for op, group in cells.items() if not type(ops()[op].impl).__module__.startswith("harness.") for cell in group]
        metafunc.parametrize("cell", chosen, ids=[cell.id for cell in chosen])
        return
    group = cells.get(name, [])
    metafunc.parametrize("cell", group, ids=[cell.id[len(name) + 1 : -1] for cell in group])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drops the placeholder that pytest makes of an op without a selected cell."""

    def empty(item: pytest.Item) -> bool:
        parameters = getattr(item, "callspec", None)
        return parameters is not None and "cell" in parameters.params and not isinstance(parameters.params["cell"], Cell)

    dropped = [item for item in items if empty(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if not empty(item)]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what of a model was not looked at."""
    state = config.stash.get(_STATE, None)
    if state is not None and state.uncovered:
        terminalreporter.write_line(state.uncovered)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Callable[[Cell], None]:
    """Runs a cell in the worker and turns its verdict into an outcome: pass, skip (with the reason), xfail (in the ledger), fail."""
    state = _state(request.config)
    get = request.config.getoption

    def run(cell: Cell) -> None:
        from harness import regressions, report

        try:
            result = state.desk.run(cell) if state.desk else state.session.run(cell)
            result.notes += regressions.notes(state.folder, result.op, result.case)
            if state.log:
                state.log.append(result)
        except HarnessError as error:
            pytest.exit(str(error), returncode=error.exit_code)
        if state.timed:
            state.timed.judged(request.node, cell, result)
        verdict = state.ledger.judge(result)
        if verdict.bad or verdict.kind == "error":
            state.broken |= verdict.kind == "error"
            pytest.fail(report.explain(result, verdict, plugins=get("--plugin"), ledger=get("--ledger")), pytrace=False)
        if verdict.kind == "known":
            pytest.xfail(f"{result.status} {result.reason}: {verdict.why}")
        if result.status != "pass":
            pytest.skip(f"{result.status}: {result.detail.splitlines()[0] if result.detail else result.reason}")
        if state.desk:
            state.desk.measure(cell, result, request.getfixturevalue("benchmark"))

    return run


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The libraries under test and their versions."""
    from harness.providers import versions

    return ["kernel-parity: " + ", ".join(f"{name} {version}" for name, version in versions().items())]


def pytest_sessionfinish(session: pytest.Session, exitstatus: Any) -> None:
    """Ends the worker; exit code 3 when the harness itself failed on a cell."""
    state = session.config.stash.get(_STATE, None)
    broken = session.config.stash.get(_BROKEN, False)
    if state is not None:
        state.close()
        broken |= state.broken
    if hasattr(session.config, "workeroutput"):  # of pytest-xdist: the controller must hear of it
        session.config.workeroutput["kernel_parity_broken"] = broken
    if broken:
        session.exitstatus = 3


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Hears from a worker of pytest-xdist whether the harness failed there."""
    if getattr(node, "workeroutput", {}).get("kernel_parity_broken"):
        node.config.stash[_BROKEN] = True
