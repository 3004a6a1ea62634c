"""A gate on a described GPU: workers in this process, on the clock of `clockwork`, and providers whose times and kernels a table says.

Also a script, for tests that kill it: `python tests/gated.py WORLD.json gate ...` types the command on the world of the file.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import pytest
from clockwork import Clockwork

from harness import cli
from harness.contracts import op
from harness.machine import execute
from harness.machine.platforms import Device
from harness.machine.timed import Stopwatch
from harness.machine.worker import Hello
from harness.providers import implements, providers, registry
from harness.session import Session
from harness.store import baselines
from harness.store.baselines import Baseline, Cell, Start
from harness.store.timing import Kernel

FACTS = {"name": "Described", "arch": "sm_90", "memory_mib": "1000"}
FA3 = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(P)"
TRITON = "merge_state_kernel"
CASES = [f"t{tokens}-h{heads}-d16-fp32" for tokens in (3, 7, 12) for heads in (8, 12, 16)]
LEVELS = {"quick": 100.0, "plain": 400.0}
KERNELS = {"quick": [FA3], "plain": [TRITON]}
NOISE = 0.001


def eager(x):
    """The answer of plain PyTorch."""
    made = providers()["merge_state", "torch_eager"].make()
    made.prepare(x, None)
    return made.run()


class World:
    """The described device and what runs on it: `factor` slows cells down, `kernels` are others than usual, `wrong` cells give wrong numbers;
    `shift` moves all times, the controls' too."""

    def __init__(self, **told) -> None:
        self.factor: dict[str, float] = told.get("factor", {})
        self.kernels: dict[str, list[str]] = told.get("kernels", {})
        self.wrong: list[str] = told.get("wrong", [])
        self.eager: list[str] = told.get("eager", [])
        self.lost: list[str] = told.get("lost", [])  # providers that serve another platform now
        self.clock = Clockwork()
        self.clock.factor = 1 + told.get("shift", 0.0)
        self.deaf = told.get("deaf", False)  # its sleeping kernel returns at once
        self.run = told.get("night", 0) * 100
        self.answers: dict[tuple, tuple] = {}
        self.asked: list[tuple[str, str]] = []

    def us(self, cell: str) -> float:
        """The time of a cell in this run, with its noise."""
        level = LEVELS[cell.partition("[")[2].partition("-")[0]] * (1 + 0.01 * int(cell.split("-t")[1].split("-")[0]))
        noise = zlib.crc32(f"{cell} {self.run}".encode()) % 2001 / 1000 - 1
        return level * self.factor.get(cell, 1.0) * (1 + NOISE * noise)

    def names(self, cell: str) -> list[str]:
        return self.kernels.get(cell) or KERNELS[cell.partition("[")[2].partition("-")[0]]

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Makes the harness run on it."""
        self.clock.install(patch)
        if self.deaf:
            patch.setattr("torch.cuda._sleep", lambda cycles: None)
        patch.setattr(registry, "_providers", dict(providers()))
        for name in LEVELS:
            self._declare(name)
        patch.setattr(Session, "_worker", lambda session, slot: session._workers.setdefault(slot, _Here(self)))

    def _declare(self, name: str) -> None:
        world = self

        class Made:
            def prepare(self, x, scratch) -> None:
                self.cell = f"merge_state[{name}-{x.case.id}]"
                key = (x.case.id, *(tensor.shape for _, tensor in x.tensors()))  # a padded call is of the same case
                answers = world.answers[key] = world.answers.get(key) or eager(x)
                self.answers = (answers[0] + 1, *answers[1:]) if self.cell in world.wrong else answers

            def run(self):
                if self.cell in world.eager and world.clock.capturing is not None:
                    world.clock.capturing = None
                    raise RuntimeError("a sync inside")
                world.clock.launch(world.us(self.cell))
                return self.answers

        implements("merge_state", library="torch", name=name, platforms={"rocm" if name in world.lost else "cuda"})(Made)


class _Here:
    """A worker that is this process."""

    pid = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.bench = execute.Bench(Device("cuda", "cpu", FACTS))
        self.hello = Hello(FACTS, self.bench.versions)
        self.stopwatch = Stopwatch(self.bench)

    def run(self, request):
        case, provider = op(request.op).axes.parse(request.case), providers()[request.op, request.provider]
        self.world.asked.append((f"{request.op}[{request.provider}-{request.case}]", request.task))
        if request.task == "judge":
            return self.bench.run(case, provider, request.platform, request.seed)[0]
        result = self.stopwatch.run(case, provider, request.platform, request.seed, mode=request.task, why=request.why, delay=request.delay)[0]
        for timing in result.timings:
            timing.start = "tonight's boot"
        return result

    def kernels(self, requests):
        return [tuple(Kernel(name) for name in self.world.names(f"{one.op}[{one.provider}-{one.case}]")) for one in requests]

    def renew(self) -> None:
        self.world.run += 1

    def close(self) -> None:
        pass


def cases(folder: Path) -> Path:
    """A cases folder with one small preset."""
    place = folder / "cases" / "presets" / "smoke"
    place.mkdir(parents=True, exist_ok=True)
    (place / "merge_state.txt").write_text("\n".join(CASES))
    return folder / "cases"


def accept(folder: Path, world: World, starts: int = 3, names=tuple(LEVELS)) -> Path:
    """Writes the baselines of a device that runs as `world` does: three runs on each of so many machine starts."""
    described = {f"start{number}": Start(f"2026-11-0{number + 1}") for number in range(starts)}
    found = {}
    for name in names:
        for case in CASES:
            cell = f"merge_state[{name}-{case}]"
            runs = {}
            for number, start in enumerate(described):
                shift = 1 + 0.004 * (number - 1)
                runs[start] = []
                for turn in range(3):
                    world.run = 10 * number + turn + 1000
                    runs[start].append(round(shift * world.us(cell), 3))
            found[cell] = Cell("graph", runs, runs["start0"][0], [baselines.kernel_family(one) for one in world.names(cell)])
    world.run = 0
    control = {start: [round(70.0 * (1 + 0.004 * (number - 1)), 3)] * 3 for number, start in enumerate(described)}
    for family, held in (("merging", found), ("controls", {"control-copy": Cell("graph", control, 70.0)})):
        baselines.save(baselines.place_of(folder, FACTS, family), Baseline(family, baselines.device_key(FACTS), described, held))
    return folder


OPTIONS = ("gate", "--platform", "cuda", "--op", "merge_state", "--provider", ",".join(LEVELS))


def main() -> None:
    world, *arguments = sys.argv[1:]
    patch = pytest.MonkeyPatch()
    World(**json.loads(Path(world).read_text())).install(patch)
    sys.argv[1:] = arguments
    cli.main()


if __name__ == "__main__":
    main()
