"""Each planted fault gets exactly the verdict it declares, through a real worker, and no other cell is harmed."""

from __future__ import annotations

import pytest

from harness.faults import FAULTS, Fault
from harness.machine.platforms import machine_platform
from harness.machine.pool import Limits
from harness.providers import providers, registry
from harness.selection import Cell
from harness.session import Session
from harness.store.results import FINDINGS, ResultLog, read

MACHINE = machine_platform()
# the shelf is declared in the workers; here it would join the selections of other tests
for fault in FAULTS.values():
    registry._providers.pop((fault.op, fault.provider), None)
SMALL = Limits(run=3.0, build=8.0) if MACHINE == "cpu" else Limits(run=15.0, build=25.0)
# those that may harm what comes after them; `kernel-parity selftest` tries the whole shelf
ROOMS = tuple(f"harness.faults.{name}:" for name in ("answering", "dying", "raising", "waiting", "writing"))
HERE = [fault for fault in FAULTS.values() if MACHINE in fault.platforms and fault.source.startswith(ROOMS)]


def cell_of(fault: Fault) -> Cell:
    return Cell(fault.op, fault.made, fault.case, MACHINE)


GOOD = Cell("merge_state", providers()["merge_state", "torch_eager"], FAULTS["fault_aborts"].case, MACHINE)


@pytest.fixture(scope="module")
def session():
    with Session(MACHINE, plugins=("harness.faults",), limits=Limits(run=120.0)) as opened:
        yield opened


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("extensions")))
        with Session(MACHINE, plugins=("harness.faults",), limits=SMALL) as opened:
            yield opened


def judged(session: Session, fault: Fault) -> None:
    result = session.run(cell_of(fault))
    assert (result.status, result.reason) == (fault.status, fault.reason), result.detail
    assert fault.status == "pass" or result.detail
    assert len(result.detail) < 5000
    assert result.values == dict(fault.case.point)
    after = session.run(GOOD)
    assert (after.status, after.cell) == ("pass", GOOD.id), after.detail


@pytest.mark.parametrize("fault", [fault for fault in HERE if not fault.slow], ids=lambda fault: fault.provider)
def test_verdict(session, fault):
    judged(session, fault)


@pytest.mark.parametrize("fault", [fault for fault in HERE if fault.slow], ids=lambda fault: fault.provider)
def test_verdict_when_a_limit_passes(hasty, fault):
    judged(hasty, fault)


def test_earlier_results_are_on_disk_whatever_comes(session, tmp_path):
    deadly = [fault for fault in HERE if fault.status == "crash" and fault.reason.startswith(("signal", "exit"))]
    cells = [cell for fault in deadly for cell in (cell_of(fault), GOOD)]
    path, seen = tmp_path / "results.jsonl", []
    with ResultLog(path) as log:

        def done(cell, result):
            log.append(result)
            seen.append((cell.id, result.status))
            assert [(row.cell, row.status) for row in read(path)] == seen

        session.run_all(cells, done)
    assert sorted(seen) == sorted((cell.id, "pass" if cell is GOOD else "crash") for cell in cells)


def test_where_it_died_is_told(session):
    assert "in segfaults" in session.run(cell_of(FAULTS["fault_segfaults"])).detail
    flooded = session.run(cell_of(FAULTS["fault_floods_its_log"])).detail
    assert "the last line" in flooded
    assert "in floods_its_log" in flooded


def test_two_workers_give_each_cell_its_own_verdict(session):
    chosen = [fault for fault in HERE if not fault.slow]
    found = {}
    session.run_all([cell_of(fault) for fault in chosen], lambda cell, result: found.update({cell.id: (result.status, result.reason)}), workers=2)
    assert found == {cell_of(fault).id: (fault.status, fault.reason) for fault in chosen}


def test_the_shelf_has_every_verdict_that_can_be_planted():
    assert set(FINDINGS) <= {fault.status for fault in FAULTS.values()}


def test_the_shelf_is_not_loaded_by_default():
    assert not any("fault" in name for name in (*registry.PACKAGES, *(name for _, name in providers())))
