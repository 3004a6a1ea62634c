"""`kernel-parity list`."""

from __future__ import annotations

import inspect
import json
from typing import Any

import click
from tabulate import tabulate

from harness.commands.run import selection_of
from harness.contracts import Op, ops
from harness.contracts.models import load_models
from harness.providers import providers, providers_of
from harness.selection import Selection, check_names, preset_cases, presets, select, standing

Rows = list[dict[str, Any]]


def list_them(what: str, **options: Any) -> None:
    """Prints the ops, providers, models, presets or cells. Raises UsageError for an unknown name."""
    selection = selection_of(options)
    check_names(selection)
    rows = {"ops": _ops, "providers": _providers, "models": _models, "presets": _presets, "cases": _cases}[what](selection)
    if options["as_json"]:
        click.echo(json.dumps(rows, indent=2))
    elif what == "cases":
        click.echo("\n".join(row["cell"] for row in rows))
    elif what == "ops" and selection.ops:
        click.echo("\n\n".join(_in_full(ops()[name], selection.machine) for name in selection.ops))
    elif what == "ops":
        click.echo(_table([{"op": row["op"], "family": row["family"], "what": row["what"]} for row in rows]))
    else:
        click.echo(_table(rows))


def _table(rows: Rows) -> str:
    flat = [{key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()} for row in rows]
    return tabulate(flat, headers="keys", tablefmt="simple", disable_numparse=True, maxcolwidths=70)


def _ops(selection: Selection) -> Rows:
    return [
        {
            "op": op.name,
            "family": op.family,
            "what": op.summary,
            "axes": _axes(op),
            "semantics": {name: list(words) for name, words in op.semantics.items()},
            "outputs": list(op.outputs),
            "mutates": list(op.mutates),
            "providers": [provider.name for provider in providers_of(op.name)],
        }
        for op in ops().values()
        if not selection.ops or op.name in selection.ops
    ]


def _axes(op: Op) -> Rows:
    """Axes as they are written in a case's id: a key before its number, or a word."""
    rows = []
    for axis in op.axes.axes:
        written = axis.key + "N" if axis.key else "|".join(axis.words)
        rows.append({"axis": axis.name, "in an id": written, "default": axis.default, "what": axis.doc})
    return rows


def _in_full(op: Op, machine: str) -> str:
    rows = [(p.name, *standing(p, machine)) for p in providers_of(op.name)]
    where = [f"  {name}: {f'{status}: {why}' if status else f'yes, {platform}'}" for name, platform, status, why in rows]
    axes = [{key: "" if value is None else value for key, value in row.items()} for row in _axes(op)]
    semantics = [f"  {name}: {', '.join(words)}" for name, words in op.semantics.items()] or ["  none"]
    text = inspect.getdoc(op.impl) or op.summary
    return "\n".join([f"{op.name} ({op.family})", text, "", _table(axes), "", "semantics, the default first", *semantics, "", "providers here", *where])


def _providers(selection: Selection) -> Rows:
    rows = []
    for provider in providers().values():
        if (selection.ops and provider.op not in selection.ops) or (selection.providers and provider.name not in selection.providers):
            continue
        platform, status, why = standing(provider, selection.machine)
        usable = f"{status}: {why}" if status else f"yes, {platform}"
        semantics = [f"{name}={word}" for name, word in provider.semantics.items()]
        rows.append({"op": provider.op, "provider": provider.name, "library": provider.library.name, "usable here": usable, "semantics": semantics})
    return rows


def _models(selection: Selection) -> Rows:
    models = load_models(selection.cases_dir / "models.toml")
    rows = []
    for model in models.values():
        ranks = {str(tp): model.heads // tp for tp in (1, 2, 4, 8, 16) if model.heads % tp == 0}
        per_tp = [f"tp{tp}: {heads}" for tp, heads in ranks.items()]
        rows.append(
            {"model": model.name, "kind": model.kind, "heads a rank": per_tp, "vocab": model.vocab, "not covered": model.uncovered, "source": model.source}
        )
    return rows


def _presets(selection: Selection) -> Rows:
    folder = selection.cases_dir
    return [{"preset": name, "cases": sum(len(preset_cases(folder, name, op_name)) for op_name in selection.ops or ops())} for name in presets(folder)]


def _cases(selection: Selection) -> Rows:
    return [{"cell": cell.id, "platform": cell.platform, "status": cell.status, "why": cell.why} for cell in select(selection)]
