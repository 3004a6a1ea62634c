"""From presets or a model to cells: which cases, on which providers, and a row for every provider that cannot run here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import regressions
from harness.contracts import Case, op, ops
from harness.contracts.models import Model, find_model, load_models
from harness.errors import UsageError, unknown
from harness.machine.platforms import serves
from harness.providers import Provider, providers_of

DEFAULT_CASES = Path(__file__).resolve().parent.parent / "cases"

BASELINE = "baseline"  # the preset of what is timed
_PLAIN = ("torch_eager", "torch_sdpa_math")


@dataclass(frozen=True)
class Selection:
    """What the user asked for. Empty `ops`, `providers` mean all; a model replaces the preset."""

    preset: str = "smoke"
    ops: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    model: str | None = None
    tp: int = 1
    machine: str = "cpu"
    shard: str = ""
    cases_dir: Path = DEFAULT_CASES


@dataclass(frozen=True)
class Cell:
    """A case on a provider on this machine. With a `status` it is known without a run, and `why` says so; without a case it stands
    for all cases of a provider that cannot run here. `awaited`: somebody waits for its time, so that it is worth taking."""

    op: str
    provider: Provider
    case: Case | None
    platform: str
    status: str = ""
    why: str = ""
    awaited: bool = field(default=True, compare=False)

    @property
    def id(self) -> str:
        return f"{self.op}[{self.provider.name}-{self.case.id}]" if self.case else f"{self.op}[{self.provider.name}]"


def cases_folder(given: str | None = None) -> Path:
    """The folder with presets, models and ledger: given, else $KERNEL_PARITY_CASES, else beside the package. Raises UsageError."""
    folder = Path(given or os.environ.get("KERNEL_PARITY_CASES") or DEFAULT_CASES)
    if not (folder / "presets").is_dir():
        raise UsageError(f"{folder} has no presets; run from a checkout installed with pip install -e ., or give --cases DIR")
    return folder


def presets(folder: Path) -> list[str]:
    """The names of the presets, shortest first."""
    frozen = [name for name in ("smoke", BASELINE, "pr", "nightly") if (folder / "presets" / name).is_dir()]
    return ["regressions", *frozen] if (folder / "regressions").is_dir() else frozen


def preset_cases(folder: Path, preset: str, op_name: str) -> list[Case]:
    """The op's cases in a preset: the frozen list, what the contract itself declares, the regressions. Raises UsageError for a broken list."""
    path = folder / "presets" / preset / f"{op_name}.txt"
    try:
        listed = path.read_text().split() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    declared = getattr(op(op_name).impl, "presets", {}).get(preset, ())
    axes, public = op(op_name).axes, regressions.preset_of(folder, preset, op_name)
    if isinstance(declared, str):
        raise UsageError(f"op {op_name}: `presets` of its contract holds a list of case ids a preset, not the text {declared!r}")
    found: dict[str, Case] = {}
    for place, ids in ((str(path), listed), (f"`presets` of the contract of {op_name}", declared), (f"the regressions of {op_name}", public)):
        try:
            found |= {case_id: axes.parse(case_id) for case_id in ids if case_id not in found}
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
    return list(found.values())


def check_names(selection: Selection) -> None:
    """Raises UsageError for an op or a provider that nobody declared."""
    for name in selection.ops:
        op(name)
    known = {provider.name for op_name in ops() for provider in providers_of(op_name)}
    for name in selection.providers:
        if name not in known:
            raise unknown("provider", name, known)


def _cases(selection: Selection, op_name: str) -> list[Case]:
    if selection.model is None:
        return preset_cases(selection.cases_dir, selection.preset, op_name)
    model: Model = find_model(load_models(selection.cases_dir / "models.toml"), selection.model)
    declared = op(op_name)
    geometry = model.rank(selection.tp)
    try:
        points = list(getattr(declared.impl, "for_model", lambda geometry, small: ())(geometry, selection.machine == "cpu"))
        return list(dict.fromkeys(declared.axes.case(**point) for point in points))
    except UsageError:
        raise
    except Exception as error:
        where = type(declared.impl).__module__
        raise UsageError(f"for_model of op {op_name!r} fails on {model.name}: {type(error).__name__}: {error} (declared in {where})") from error


def select(selection: Selection) -> list[Cell]:
    """The cells, case by case, so that one case's providers share inputs and golden result.

    Raises UsageError for an unknown op, provider, preset or model, or when nothing is left.
    """
    if selection.cells:
        return [_named_cell(name, selection.machine) for name in dict.fromkeys(selection.cells)]
    if selection.model is None and selection.preset not in presets(selection.cases_dir):
        raise unknown("preset", selection.preset, presets(selection.cases_dir))
    check_names(selection)
    cells: list[Cell] = []
    for op_name in dict.fromkeys(selection.ops) or ops():
        chosen = [p for p in providers_of(op_name) if not selection.providers or p.name in selection.providers]
        cases = _cases(selection, op_name)
        able: list[tuple[Provider, str]] = []
        for provider in chosen if cases else []:
            platform, status, why = standing(provider, selection.machine)
            if not status and (why := left_out(provider, selection)):
                status = "unsupported"
            if status:
                cells.append(Cell(op_name, provider, None, platform, status, why))
            else:
                able.append((provider, platform))
        cells += [
            cell(provider, case, platform, awaited=awaited(provider.name, case, named=bool(selection.providers)))
            for case in cases
            for provider, platform in able
        ]
    if not cells:
        raise UsageError(f"nothing selected: {selection_words(selection)} has no case for the chosen ops and providers")
    return _shard(cells, selection.shard)


def left_out(provider: Provider, selection: Selection) -> str:
    """Why a provider that nobody named is not run in this preset, or an empty string."""
    if selection.model is not None or selection.providers or selection.preset not in ("smoke", "nightly", BASELINE):
        return ""
    if selection.preset == "nightly" and provider.name == "torch_sdpa_math":
        return "plain PyTorch once more, beside torch_eager: run in `smoke` and `pr`, or by name"
    if provider.variant:
        return "a variant of another provider's call: run by name, in `pr`, and under mutants"
    return "plain PyTorch, whose time nobody waits for: run by name" if selection.preset == BASELINE and provider.name in _PLAIN else ""


def awaited(provider: str, case: Case, *, named: bool = False) -> bool:
    """Whether somebody waits for the time of a case on a provider: not of plain PyTorch that nobody named, nor of more draws than a call
    takes by default, which are there for a judge to count."""
    draws = op(case.op).axes.by_name.get("draws")
    return (named or provider not in _PLAIN) and (draws is None or case.point["draws"] <= draws.default)


def cell(provider: Provider, case: Case, platform: str, *, awaited: bool = True) -> Cell:
    """The cell, already `unsupported` where the provider declines the case."""
    why = provider.declines(case, platform)
    return Cell(provider.op, provider, case, platform, "unsupported" if why else "", why or "", awaited)


def selection_words(selection: Selection) -> str:
    """The selection in a few words, for headers and errors."""
    return f"model {selection.model} at tp {selection.tp}" if selection.model else f"preset {selection.preset}"


def uncovered(selection: Selection) -> str:
    """What of the selected model this project's ops leave out, in words; an empty string for a preset or a model covered whole."""
    if selection.model is None:
        return ""
    return find_model(load_models(selection.cases_dir / "models.toml"), selection.model).rank(selection.tp).uncovered


def standing(provider: Provider, machine: str) -> tuple[str, str, str]:
    """(platform, status, why) of a provider here: an empty status when it can run."""
    platform = next((name for name in serves(machine) if name in provider.platforms), "")
    if not platform:
        return machine, "unsupported", f"serves {', '.join(sorted(provider.platforms))}; this machine is {machine}"
    if not provider.library.installed():
        return platform, "absent", f"{provider.library.distribution} is not installed"
    return platform, "", ""


def find_cell(name: str) -> tuple[Provider, Case]:
    """The provider and case of a cell's id such as `top_k_renorm[flashinfer-b4-v111-k10]`. Raises UsageError."""
    op_name, _, rest = name.partition("[")
    declared, known = op(op_name), providers_of(op_name)
    rest = rest.removesuffix("]")
    for provider in sorted(known, key=lambda p: -len(p.name)):
        if rest.startswith(provider.name + "-"):
            return provider, declared.axes.parse(rest[len(provider.name) + 1 :])
    if not rest or rest in [p.name for p in known]:
        raise UsageError(f"{name!r} names no case; a cell is OP[PROVIDER-CASE] (kernel-parity list cases --op {op_name})")
    raise unknown("provider", rest.partition("-")[0], [p.name for p in known])


def _named_cell(name: str, machine: str) -> Cell:
    provider, case = find_cell(name)
    platform, status, why = standing(provider, machine)
    return Cell(provider.op, provider, None, platform, status, why) if status else cell(provider, case, platform)


def _shard(cells: Sequence[Cell], shard: str) -> list[Cell]:
    """Part i of n (`i/n`), split by case so that a case's providers stay together."""
    if not shard:
        return list(cells)
    try:
        index, count = (int(part) for part in shard.split("/"))
        if not 1 <= index <= count:
            raise ValueError
    except ValueError:
        raise UsageError(f"--shard {shard!r} is not of the form 2/8") from None
    keys: dict[tuple[str, str], int] = {}
    return [cell for cell in cells if keys.setdefault((cell.op, cell.case.id if cell.case else ""), len(keys)) % count == index - 1]


def names(things: Iterable[str]) -> tuple[str, ...]:
    """Comma-separated option values, flattened."""
    return tuple(part for thing in things for part in thing.split(",") if part)
