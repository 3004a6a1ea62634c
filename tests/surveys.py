"""Surveys of SGLang sources as the tests of routes take them; a version that cannot be had is skipped outside CI."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pytest

from harness.contracts.models import load_models
from harness.errors import UsageError
from harness.offline.routes.dispatch import Dispatch
from harness.offline.routes.facts import load_facts
from harness.offline.routes.judge import Route
from harness.offline.routes.parsing import Tree
from harness.offline.routes.survey import Survey, survey
from harness.offline.routes.tables import facts_routers
from harness.offline.sources import Source, find_source
from harness.offline.targets import load_targets

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "cases"
TARGETS, MODELS, FACTS = load_targets(CASES / "targets.toml"), load_models(CASES / "models.toml"), load_facts(CASES / "routes.toml")
ROUTERS = facts_routers(ROOT / "harness" / "providers" / "aiter" / "facts")
GATE = "head_num == 128 or head_num == 16"


@lru_cache
def source(version: str) -> Source:
    try:
        return find_source(f"sglang=={version}")
    except UsageError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@lru_cache
def surveyed(version: str, *targets: str) -> Survey:
    return survey(source(version), [TARGETS[name] for name in targets], list(MODELS.values()), (), FACTS, ROUTERS)


@lru_cache
def dispatch(version: str, target: str = "gfx950") -> Dispatch:
    vendor = TARGETS[target].vendor
    return Dispatch(Tree(source(version).root), TARGETS[target], FACTS.installed[vendor], dict.fromkeys(FACTS.none, lambda *args: None))


def rows(found: Survey, target: str, model: str) -> dict[int, Route]:
    return {row.tp: row for row in found.routes if (row.target, row.model) == (target, model)}


def one(found: Source, model: str, *tps: int, target: str = "gfx950") -> Survey:
    return survey(found, [TARGETS[target]], [MODELS[model]], tps, FACTS, ROUTERS)
