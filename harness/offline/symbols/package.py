"""A whole scan of a package: its scenarios side by side in two processes, kept by the content of what it was made from."""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.offline.sources import Source, cache_folder
from harness.offline.symbols import greedy, inventory
from harness.offline.symbols.facts import Config, Scenario, load_config, load_scenarios
from harness.offline.symbols.scan import Hit, Scan, merged
from harness.offline.symbols.tree import Tree
from harness.store.files import write_whole

_AFTERWARDS = ("__init__.py", "accepted.py", "showing.py")  # what a kept scan does not hang on


@dataclass(frozen=True)
class Report:
    """What a scan found: `hits` in order of file and line, the wall time it took when it was made, and whether it was kept from then."""

    label: str
    package: str
    version: str
    scenarios: tuple[str, ...]
    hits: list[Hit] = field(default_factory=list)
    seconds: float = 0.0
    kept: bool = False

    @property
    def functions(self) -> set[tuple[str, str]]:
        """The functions with a hit; operators without a kernel are no functions."""
        return {(hit.file, hit.function) for hit in self.hits if hit.failure != "no kernel"}


def scan_source(source: Source, config_path: Path, scenarios_path: Path, scenarios: list[Scenario], *, everything: bool = False, fresh: bool = False) -> Report:
    """Scans a package's sources in the scenarios; `everything`: outside its scope too; `fresh`: without a look at what is kept."""
    names = tuple(scenario.name for scenario in scenarios)
    place = cache_folder() / "symbols" / f"{_digest(source, config_path, scenarios_path, names, everything)}.json"
    if place.is_file() and not fresh:
        return _read(place, source, names)
    began = time.monotonic()
    jobs = [(source.root, str(config_path), str(scenarios_path), name, everything) for name in names]
    if len(jobs) == 1 or (os.cpu_count() or 1) == 1:
        lists = [_scan_one(*job) for job in jobs]
    else:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            lists = list(pool.map(_scan_one, *zip(*jobs, strict=True)))
    seconds = round(time.monotonic() - began, 1)
    report = Report(source.label, source.package, source.version, names, merged(lists), seconds)
    write_whole(place, json.dumps({"seconds": seconds, "hits": [asdict(hit) for hit in report.hits]}))
    return report


def _read(place: Path, source: Source, names: tuple[str, ...]) -> Report:
    data = json.loads(place.read_text())
    hits = []
    for raw in data["hits"]:
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
        hits.append(Hit(**plain))
    return Report(source.label, source.package, source.version, names, hits, data["seconds"], kept=True)


def _digest(source: Source, config_path: Path, scenarios_path: Path, names: tuple[str, ...], everything: bool) -> str:
    """Of all that a scan's outcome hangs on: the sources, this code, the facts, and what was asked."""
    digest = hashlib.blake2b(json.dumps([names, everything, source.package]).encode(), digest_size=16)
    code = [path for path in Path(__file__).parent.glob("*.py") if path.name not in _AFTERWARDS]
    for path in sorted([*code, config_path, scenarios_path]):
        digest.update(path.read_bytes())
    for path in sorted((source.root / source.package).rglob("*.py")):
        digest.update(str(path.relative_to(source.root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _scan_one(root: Path, config_path: str, scenarios_path: str, name: str, everything: bool) -> list[Hit]:
    """One scenario, in a process of its own: syntax trees are millions of objects, which the collector of cycles would walk again and again."""
    collected = gc.isenabled()
    gc.disable()
    try:
        config, scenarios = load_config(Path(config_path)), load_scenarios(Path(scenarios_path))
        scenario = scenarios[name]
        reference = scenarios.get(scenario.reference)
        tree = Tree(root, config.package, config.leave)
        return hits_of(tree, config, scenario, reference, everything)
    finally:
        if collected:
            gc.enable()


def hits_of(tree: Tree, config: Config, scenario: Scenario, reference: Scenario | None, everything: bool = False) -> list[Hit]:
    """Every hit of one scenario: uses that fail, choices that fall to the best token in silence, operators without a kernel."""
    scan = Scan(tree, scenario, reference, config)
    modules = tree.within(config.all if everything else config.scope)
    found = scan.hits(modules)
    if scan.other is not None:
        for module in modules:
            found += [_greedy_hit(scan, module, choice) for choice in greedy.choices(scan.world, scan.other, scan.callers, module)]
    if config.registry and reference is not None:
        lone = inventory.one_sided(inventory.specs(tree, config.registry), scenario.platform, reference.platform)
        groups = None if everything else {prefix.rpartition(".")[2] for prefix in config.scope}
        found += [_kernel_hit(tree, spec, scenario.name) for spec in lone if groups is None or spec.op.split(".")[0] in groups]
    return found


def _greedy_hit(scan: Scan, module: str, choice: greedy.Choice) -> Hit:
    note = "takes the best token in every case" if choice.when == greedy.ALWAYS else f"takes the best token when {choice.when}"
    symbol, needs = f"argmax when {choice.when}", tuple(sorted(choice.needs))
    return Hit(scan.tree.file(module), choice.place.qualname, symbol, "silently greedy", choice.line, needs, choice.chain, (scan.scenario.name,), note)


def _kernel_hit(tree: Tree, spec: inventory.Spec, scenario: str) -> Hit:
    note = f"registered for {', '.join(sorted(spec.devices)) or 'any device'} as {spec.backend}"
    return Hit(tree.file(spec.module), "<registry>", spec.op, "no kernel", spec.line, scenarios=(scenario,), note=note)


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    kept: dict[str, Any] = {"label": report.label, "package": report.package, "version": report.version, "scenarios": list(report.scenarios)}
    return {**kept, "functions": len(report.functions), "seconds": report.seconds, "hits": [{**asdict(hit), "tier": hit.tier} for hit in report.hits]}
