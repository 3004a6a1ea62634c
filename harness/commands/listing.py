"""`kernel-parity list`."""

from __future__ import annotations

import json
from typing import Any

import click
from tabulate import tabulate

from harness.commands.run import selection_of
from harness.contracts import ops
from harness.contracts.models import load_models
from harness.providers import providers
from harness.selection import Selection, preset_cases, presets, select, standing


def list_them(what: str, **options: Any) -> None:
    """Prints the ops, providers, models, presets or cells."""
    selection = selection_of(options)
    rows = {"ops": _ops, "providers": _providers, "models": _models, "presets": _presets, "cases": _cases}[what](selection)
    if options["as_json"]:
        click.echo(json.dumps(rows, indent=2))
    elif what == "cases":
        click.echo("\n".join(row["cell"] for row in rows))
    else:
        table = [{key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()} for row in rows]
        click.echo(tabulate(table, headers="keys", tablefmt="simple", disable_numparse=True, maxcolwidths=70))


def _ops(selection: Selection) -> list[dict[str, Any]]:
    return [
        {
            "op": op.name,
            "family": op.family,
            "axes": [f"{axis.key or '|'.join(axis.words)}: {axis.name}" for axis in op.axes.axes],
            "semantics": [f"{name}: {'|'.join(words)}" for name, words in op.semantics.items()],
            "what": op.summary,
        }
        for op in ops().values()
        if not selection.ops or op.name in selection.ops
    ]


def _providers(selection: Selection) -> list[dict[str, Any]]:
    rows = []
    for provider in providers().values():
        if (selection.ops and provider.op not in selection.ops) or (selection.providers and provider.name not in selection.providers):
            continue
        platform, status, why = standing(provider, selection.machine)
        usable = f"{status}: {why}" if status else f"yes, {platform}"
        semantics = [f"{name}={word}" for name, word in provider.semantics.items()]
        rows.append({"op": provider.op, "provider": provider.name, "library": provider.library.name, "usable here": usable, "semantics": semantics})
    return rows


def _models(selection: Selection) -> list[dict[str, Any]]:
    models = load_models(selection.cases_dir / "models.toml")
    rows = []
    for model in models.values():
        ranks = {str(tp): model.heads // tp for tp in (1, 2, 4, 8, 16) if model.heads % tp == 0}
        per_tp = [f"tp{tp}: {heads}" for tp, heads in ranks.items()]
        rows.append({"model": model.name, "kind": model.kind, "heads a rank": per_tp, "vocab": model.vocab, "source": model.source})
    return rows


def _presets(selection: Selection) -> list[dict[str, Any]]:
    folder = selection.cases_dir
    return [{"preset": name, "cases": sum(len(preset_cases(folder, name, op_name)) for op_name in ops())} for name in presets(folder)]


def _cases(selection: Selection) -> list[dict[str, Any]]:
    return [{"cell": cell.id, "platform": cell.platform, "status": cell.status, "why": cell.why} for cell in select(selection)]
