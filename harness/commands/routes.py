"""`kernel-parity routes`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from harness.contracts.models import find_model, load_models
from harness.errors import UsageError
from harness.offline.routes import showing
from harness.offline.routes.facts import load_facts
from harness.offline.routes.known import hold, unknowns
from harness.offline.routes.survey import compare, plain, survey
from harness.offline.routes.tables import facts_routers, tree_router
from harness.offline.sources import find_source
from harness.offline.targets import choose, load_targets
from harness.selection import cases_folder

_AITER_FACTS = Path(__file__).resolve().parent.parent / "providers" / "aiter" / "facts"


def route(**options: Any) -> int:
    """Prints the routes of a version, or what changed since another; returns 1 for a finding, 0 otherwise."""
    if not options["spec"]:
        raise UsageError("which SGLang? Give sglang (installed), sglang==VERSION, or a path")
    folder = cases_folder(options["cases_dir"])
    known_models, facts = load_models(folder / "models.toml"), load_facts(folder / "routes.toml")
    targets = choose(load_targets(folder / "targets.toml"), options["targets"])
    names = [part.strip() for name in options["models"] for part in name.split(",") if part.strip()]
    models = [find_model(known_models, name) for name in dict.fromkeys(names)] or list(known_models.values())
    tps = tuple(dict.fromkeys(options["tps"]))
    routers = [tree_router(Path(options["aiter"]))] if options["aiter"] else facts_routers(_AITER_FACTS)
    surveys = [survey(find_source(spec), targets, models, tps, facts, routers) for spec in (options["diff"], options["spec"]) if spec]
    new = surveys[-1]
    if options["diff"]:
        rows = compare(surveys[0], new)
        both = {"was": surveys[0].sglang, "now": new.sglang, "evidence": "routed", "changes": rows}
        click.echo(json.dumps(both, indent=2) if options["as_json"] else showing.changes(surveys[0], new, rows))
        return int(any(row["worse"] for row in rows))
    findings = [*hold(new.routes, facts.known, new.version), *unknowns(new)]
    if options["as_json"]:
        click.echo(json.dumps({**plain(new), "findings": [dataclasses.asdict(finding) for finding in findings]}, indent=2))
    else:
        counts = {row.heads for row in new.routes} if names and not options["every"] else None
        click.echo(showing.report(new, findings, every=options["every"] or bool(names), counts=counts))
    return int(bool(findings))
