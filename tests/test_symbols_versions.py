"""The symbols scan on real versions from the package index: the known bugs, the accepted hits, mutants of the sources."""

from __future__ import annotations

import gc
import time

import pytest
import symbols_mutants
from symbols_packages import CONFIG, FOLDER, SCENARIOS

from harness.offline.sources import find_source
from harness.offline.symbols.accepted import judge, load_accepted
from harness.offline.symbols.facts import scenarios_of
from harness.offline.symbols.package import Report, scan_source
from harness.offline.symbols.scan import Scan
from harness.offline.symbols.tree import Tree


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The scans of two versions from the package index; kept ones are used."""
    wanted = scenarios_of([], SCENARIOS, CONFIG)
    return {v: scan_source(find_source(f"sglang=={v}"), FOLDER / "sglang.toml", FOLDER / "scenarios.toml", wanted) for v in ("0.5.16", "0.5.23")}


def _names(report: Report, part: str) -> set[tuple[str, str, str]]:
    return {(hit.symbol.rpartition(":")[2], hit.failure, hit.tier) for hit in report.hits if part in hit.file}


def test_0_5_16_has_the_renorm_ops_that_are_none(reports: dict[str, Report]) -> None:
    found = _names(reports["0.5.16"], "srt/speculative/dflash_utils.py")
    assert found == {("top_k_renorm_prob", "TypeError", "default"), ("top_p_renorm_prob", "TypeError", "default")}
    chains = [hit.chain for hit in reports["0.5.16"].hits if "dflash_utils" in hit.file]
    assert chains
    assert all(any("dspark_accept" in link for link in chain) for chain in chains)


def test_0_5_23_has_the_four_names_of_the_sampler(reports: dict[str, Report]) -> None:
    four = ("top_k_renorm_prob", "top_p_renorm_prob", "min_p_sampling_from_probs", "top_k_top_p_sampling_from_probs")
    assert _names(reports["0.5.23"], "srt/layers/sampler.py") == {(name, "NameError", "explicit-flag") for name in four}
    argmax = ("argmax when not use_rejection_sampling", "silently greedy", "default")
    uno = ("sglang.srt.speculative.uno_worker_v2", "ImportError", "explicit-flag")  # a worker that imports what ROCm does not have
    assert _names(reports["0.5.23"], "srt/speculative") == {argmax, uno}


def test_the_accepted_hits_are_those_found(reports: dict[str, Report]) -> None:
    entries = load_accepted(FOLDER / "accepted.toml")
    for version, report in reports.items():
        judged = judge(report, entries)
        assert not judged.new, version
        assert not judged.gone, version
        assert judged.precision >= 0.8, version
        assert len(report.functions) <= 12, version


def test_a_new_and_a_vanished_hit_both_fail(reports: dict[str, Report]) -> None:
    report, entries = reports["0.5.23"], load_accepted(FOLDER / "accepted.toml")
    fewer = [entry for entry in entries if entry.function != "Sampler._sample_from_probs"]
    assert {hit.function for hit in judge(report, fewer).new} == {"Sampler._sample_from_probs"}
    without = Report(report.label, report.package, report.version, report.scenarios, [h for h in report.hits if h.function != "Sampler._sample_from_probs"])
    assert {entry.function for entry, _ in judge(without, entries).gone} == {"Sampler._sample_from_probs"}
    assert not judge(without, entries, whole=False).gone


def test_a_kept_scan_is_quick(reports: dict[str, Report]) -> None:
    began = time.monotonic()
    again = scan_source(find_source("sglang==0.5.16"), FOLDER / "sglang.toml", FOLDER / "scenarios.toml", scenarios_of([], SCENARIOS, CONFIG))
    assert again.kept
    assert again.hits == reports["0.5.16"].hits
    assert time.monotonic() - began < 5


def caught(version: str, seed: int, number: int) -> list[tuple[symbols_mutants.Drawn, bool]]:
    """Mutants of one version's sources that break a name, and whether the scan reports something new in the modules that have the fault."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        tree = Tree(find_source(f"sglang=={version}").root, "sglang", CONFIG.leave)
        modules = [module for module in tree.within(CONFIG.scope) if "cutlass" not in tree.text(module)]
        outcome = []
        for drawn in symbols_mutants.drawn(tree, modules, {name: SCENARIOS[name] for name in ("hip", "hip-aiter")}, seed, number):
            if not drawn.excluded:
                before = _keys(tree, drawn)
                with tree.changed(drawn.mutant.module, drawn.text):
                    outcome.append((drawn, bool(_keys(tree, drawn) - before)))
        return outcome
    finally:
        if enabled:
            gc.enable()


def _keys(tree: Tree, drawn: symbols_mutants.Drawn) -> set[tuple[str, str, str, str]]:
    scan = Scan(tree, SCENARIOS[drawn.mutant.scenario], SCENARIOS["cuda"], CONFIG)
    return {hit.key for hit in scan.hits(drawn.modules)}


# no fault by reading, as docs/symbols.md says of each
SILENT = frozenset({"_flashinfer_softmax is None in softmax_temp_flashinfer"})


def test_mutants_drawn_without_the_scan_are_told() -> None:
    """One of each kind, those that the plainer reading takes for faults."""
    outcome = [(drawn, told) for drawn, told in caught("0.5.16", seed=1, number=1) if drawn.mutant.name not in SILENT]
    assert len(outcome) >= 3
    assert all(told for _, told in outcome), [drawn.mutant for drawn, told in outcome if not told]
