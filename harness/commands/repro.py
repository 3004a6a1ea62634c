"""`kernel-parity repro`: a script that shows a cell's failure with the library alone, without this package."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import torch

from harness.checks import tolerance
from harness.commands import embed
from harness.commands.inline import KIT, Bundle, bundle
from harness.commands.run import with_served
from harness.contracts import Case, Close, Drawn, Exact, Expected, Filtered, Inputs, Judged, OneOf, Op, Relation, make_inputs, op
from harness.errors import UsageError
from harness.machine.platforms import machine_platform, serves, worker_environment
from harness.plugins import load_plugins
from harness.providers import Provider, versions
from harness.selection import find_cell
from harness.store.files import write_whole

COMPRESSED = 16 << 20  # bytes of data that are worth trying to compress
FROM_RESULTS = ("twice",)  # laws whose varied inputs are results
_LAYERS = "harness.served."
PRINTED = 300_000  # characters of data that a script may carry; more go into a file beside it


def write_script(cell: str, plugins: tuple[str, ...], platform: str | None, seed: int, output: str | None) -> None:
    """Prints the script of a cell, or writes it to `output` (and big inputs to a .pt file beside it).

    The script ends with exit code 1 when the failure shows and 0 when not. Raises UsageError for an unknown cell, one that
    its library does not take, one whose source cannot be written out, and one too big to print.
    """
    load_plugins(with_served(plugins, (cell,)))
    provider, case = find_cell(cell)
    if provider.source.startswith(_LAYERS):
        raise UsageError(f"{provider.name} drives a whole layer of SGLang, which no script of a few lines holds: see it with kernel-parity run --cell '{cell}'")
    where = _platform(provider, machine_platform(platform))
    reason = provider.declines(case, where)
    if reason:
        raise UsageError(f"{cell} is unsupported, so there is no failure to show: {reason}")
    script = Script(op(case.op), provider, case, where, seed)  # raises UsageError where the cell is about two calls
    text = script.text(f"data = torch.load(__file__ + '.pt', map_location={script.device!r})" if script.is_big else "")
    if not output:
        if script.is_big:
            raise UsageError(f"{cell} has {len(script.blob) >> 20} MiB of inputs: give -o FILE.py (they go into FILE.py.pt beside it)")
        click.echo(text)
        return
    write_whole(Path(output), text + "\n")
    if script.is_big:
        write_whole(Path(f"{output}.pt"), script.blob)
    beside = f" and {output}.pt" if script.is_big else ""
    click.echo(f"wrote {output}{beside}: python {output} ends with 1 when the failure shows, 0 when not", err=True)


def _platform(provider: Provider, machine: str) -> str:
    for name in serves(machine):
        if name in provider.platforms:
            return name
    raise UsageError(f"{provider.name} serves {', '.join(sorted(provider.platforms))}, not {machine}: say for which the script is, with --platform")


def _call_of(law: Relation, x: Inputs, golden: dict[str, Expected], word: str) -> Inputs:
    """The one call that a script makes of a law's two: the plain one of a flag that may be ignored, the varied one of the others.

    Raises UsageError where no single call shows the failure.
    """
    if law.off:
        return x
    rights = {name: value.float() for name, expected in golden.items() if isinstance(value := getattr(expected, "value", None), torch.Tensor)}
    made = law.vary(x, rights) if law.how == "call" and (rights or word not in FROM_RESULTS) else []
    packed = all(not isinstance(t, torch.Tensor) or (t.is_contiguous() and not t.storage_offset()) for y in made for t in vars(y).values())
    if len(made) != 1 or made[0] is x or not packed:
        raise UsageError(f"a script makes one call, and {word!r} is about two, or about where inputs lie in memory: run the cell with kernel-parity run --cell")
    return made[0]


class Script:
    """One cell's script: the provider's source with what it uses, the inputs and golden values, and the checks."""

    def __init__(self, declared: Op, provider: Provider, case: Case, platform: str, seed: int) -> None:
        self.op, self.provider, self.case, self.platform, self.seed = declared, provider, case, platform, seed
        self.device = "cpu" if platform in ("cpu", "interpret") else "cuda"
        self.semantics = dict(provider.semantics_on(platform))
        try:
            self.x = make_inputs(case, "cpu", seed)  # bit-equal on every device, so no device is needed here
            self.golden = declared.impl.reference(self.x, self.semantics)
        except (RuntimeError, MemoryError) as error:
            raise UsageError(f"inputs and reference of {case.id} cannot be made here ({str(error).splitlines()[0][:200]}); take a smaller case") from error
        if law := declared.relation(case):
            self.x = _call_of(law, self.x, self.golden, case.relation)
            self.golden = declared.impl.reference(self.x, self.semantics)
            self.case = self.x.case
        made = provider.make if isinstance(provider.make, type) else provider.make().function
        self.entry = made.__module__, made.__qualname__
        self.data: dict[str, Any] = {}
        self.bundle = bundle(self._fill, self.entry)
        self.blob = b"" if embed.is_tiny(self.data) else embed.saved(self.data)
        self.packed = embed.packed(self.blob) if self.blob and len(self.blob) < COMPRESSED else ""
        self.is_big = len(self.packed) > PRINTED or len(self.blob) >= COMPRESSED

    def text(self, load: str = "") -> str:
        """The script; `load` is the statement that reads the data, where it is not in the script."""
        body = [ast.unparse(ast.fix_missing_locations(statement)) for statement in self.bundle.statements]
        head = [f'"""{self.op.name}[{self.provider.name}-{self.case.id}], as {self.platform}: ends with 1 when the failure shows, 0 when not.', ""]
        head += [f"Written by kernel-parity where {', '.join(f'{k} {v}' for k, v in versions().items())} are installed."]
        notes = [*self.provider.notes, *([f"the call with {law.doc}"] if (law := self.op.relation(self.case)) and not law.off else [])]
        head += [f"Note: {note}." for note in notes] + ['"""', ""]
        settings = {k: v for k, v in worker_environment("cpu").items() if k.startswith(("TRITON", "TORCHDYNAMO"))}
        environment = ["import os", f"os.environ.update({settings})  # before torch and triton are imported"] if self.platform == "interpret" else []
        imports = _sorted(self.bundle.imports.values())
        if not load:
            stored = f"unpack({self.packed!r}, {self.device!r})" if self.packed else embed.literal(self.data, self.device)
            load = f"data = {stored}"
            imports += [] if self.packed else ["from math import inf, nan"]
        return "\n".join([*head, *environment, *imports, "", "\n\n".join(body).replace(":\n\n", ":\n"), "", load, "sys.exit(main(data))"])

    def _fill(self, into: Bundle) -> None:
        data = embed.Data(into, self.x)
        entry = into.require(*self.entry)
        phased = isinstance(self.provider.make, type)
        guarded = phased or bool(self.op.mutates)
        lines = self._inputs(into, data)
        lines += [f"scratch = {into.require(KIT, 'Scratch')}({self.device!r})"] if guarded else []
        lines += [f"x.{name} = scratch.copy(x.{name})" for name in self.op.mutates]
        lines += [f"torch.manual_seed({2 * self.seed})"]
        call = [f"made = {entry}()", "made.prepare(x, scratch)", "returned = made.run()"] if phased else [f"returned = {entry}(x)"]
        lines += [f"with {into.require(KIT, 'Poisoned')}():", *(f"    {line}" for line in call)]
        lines += ["torch.cuda.synchronize()"] if self.device == "cuda" else []
        mutated = ", ".join([*(f"{name!r}: x.{name}" for name in self.op.mutates if name in self.op.outputs), *(["**scratch.outputs"] if guarded else [])])
        lines.append(f"outputs = {into.require(KIT, 'named')}(returned, {self.op.outputs}, {{{mutated}}})")
        lines += self._converted(data)
        lines.append(f"right = {into.require(KIT, 'unchanged')}(x, before)" + (" & scratch.intact()" if guarded else ""))
        for name, expected in self.golden.items():
            lines += self._judged(into, data, name, expected)
        lines += ["print('right: the failure does not show' if right else 'wrong: the failure shows')", "return 0 if right else 1"]
        if data.values and not embed.is_tiny(data.values):
            into.require(KIT, "unpack")
        into.add("", ast.parse("def main(data):\n" + "\n".join(f"    {line}" for line in lines)).body[0])
        self.data = data.values

    def _inputs(self, into: Bundle, data: embed.Data) -> list[str]:
        cls = into.require(type(self.x).__module__, type(self.x).__qualname__)
        into.imported("SimpleNamespace", "from types import SimpleNamespace")
        point = ", ".join(f"{name}={value!r}" for name, value in {**self.case.point, "id": self.case.id, "op": self.op.name}.items())
        every = not into.used.isdisjoint(("tensors", "__dict__"))
        fields = {k: v for k, v in vars(self.x).items() if k not in ("case", "device") and (every or k in into.used or k in self.op.mutates)}
        said = ", ".join(f"{name}={data.express(name, value)}" for name, value in fields.items())
        lines = [f"x = {cls}(case=SimpleNamespace({point}), device={self.device!r}{', ' if said else ''}{said})"]
        kept = [name for name, value in fields.items() if isinstance(value, torch.Tensor) and name not in self.op.mutates]
        lines.append(f"before = {{{', '.join(f'{name!r}: x.{name}.clone()' for name in kept)}}}")
        return lines

    def _converted(self, data: embed.Data) -> list[str]:
        convert = getattr(self.op.impl, "convert", None)
        if convert is None:
            return []
        return [f"outputs = {data.express('op', convert)}(x, outputs, {self.semantics!r})"]

    def _judged(self, into: Bundle, data: embed.Data, name: str, expected: Expected) -> list[str]:
        actual = f"outputs.get({name!r})"
        guard = "" if name == self.op.outputs[0] else f"{actual} is None or "
        told = into.require(KIT, "told")
        if isinstance(expected, Judged):
            rule = data.express(f"golden.{name}", expected.judge)
            return [f"right &= {guard}{told}({name!r}, ': '.join({rule}({actual}) or ()))"]
        if isinstance(expected, Drawn):
            return self._drawn(into, data, name, expected, actual, guard)
        shape, dtype = _form(expected)
        form = f"{into.require(KIT, 'shaped')}({name!r}, {actual}, {shape}, {dtype!r})"
        parts = {key: data.put(f"golden.{name}.{key}", value) for key, value in _fields(expected).items() if value is not None}
        if isinstance(expected, (Close, Exact)):
            said = ", ".join(f"{key}={text}" for key, text in parts.items())
            return [f"right &= {guard}({form} and {into.require(KIT, 'compared')}({name!r}, {actual}, {said}))"]
        built = into.require("harness.contracts.expected", type(expected).__name__)
        said = ", ".join(f"{key}={text}{'.double()' * (key in _WIDE)}" for key, text in parts.items())
        check = into.require("harness.checks.support", "one_of" if isinstance(expected, OneOf) else "filtered")
        return [f"right &= {guard}({form} and {told}({name!r}, {check}({actual}, {built}({said})).text))"]

    def _drawn(self, into: Bundle, data: embed.Data, name: str, expected: Drawn, actual: str, guard: str) -> list[str]:
        """Support, then how far the most deviating token is from its share: a rougher look than `checks.distribution` takes."""
        told, lines = into.require(KIT, "told"), []
        if expected.first is not None:
            lines.append(f"right &= {guard}{told}({name!r}, ': '.join({data.express(f'golden.{name}.first', expected.first.judge)}({actual}) or ()))")
        ids = f"{data.express(f'golden.{name}.ids', expected.ids)}({actual})" if expected.ids else actual
        part = {key: data.put(f"golden.{name}.{key}", value) for key, value in self._shares(expected).items()}
        if expected.ids is None:
            check, built = into.require("harness.checks.support", "one_of"), into.require("harness.contracts.expected", "OneOf")
            form = f"{into.require(KIT, 'shaped')}({name!r}, {actual}, None, 'an integer dtype')"
            lines.append(f"right &= {guard}{form} and {told}({name!r}, {check}({actual}, {built}({part['allowed']}, {part.get('valid')})).text)")
        shares = f"{part['weights']}.double() * {part['required']}"
        lines.append(f"right &= {guard}{told}({name!r}, {into.require(KIT, 'followed')}({ids}, {shares}, {part.get('valid')}))")
        return lines

    @staticmethod
    def _shares(expected: Drawn) -> dict[str, torch.Tensor]:
        fields = {"allowed": expected.allowed, "required": expected.required, "weights": embed.narrow(expected.weights)}
        return fields if expected.valid is None else {**fields, "valid": expected.valid}


_WIDE = ("weights",)  # fp64 where they are judged, narrower in the data


def _sorted(imports: Iterable[str]) -> list[str]:
    """Import statements, one line for all plain ones and one a module for the others; torch last."""
    plain = {line.removeprefix("import ") for line in imports if line.startswith("import ")} - {"torch"} | {"sys"}
    named: dict[str, list[str]] = {}
    for line in sorted(line for line in imports if line.startswith("from ")):
        module, _, names = line.removeprefix("from ").partition(" import ")
        named.setdefault(module, []).append(names)
    return [f"import {', '.join(sorted(plain))}", *(f"from {module} import {', '.join(names)}" for module, names in named.items()), "import torch"]


def _form(expected: Close | Exact | Filtered | OneOf) -> tuple[tuple[int, ...] | None, torch.dtype | str]:
    """The output's shape, and its dtype in full or by kind."""
    if isinstance(expected, OneOf):
        return None, "an integer dtype"
    if isinstance(expected, Filtered):
        return tuple(expected.weights.shape), "a floating dtype"
    kind: torch.dtype | str = "a floating dtype" if isinstance(expected, Close) else expected.value.dtype
    whole = isinstance(expected, Exact) and not expected.value.is_floating_point() and expected.value.dtype != torch.bool
    return tuple(expected.value.shape), expected.dtype or ("an integer dtype" if whole else kind)


def _fields(expected: Close | Exact | Filtered | OneOf) -> dict[str, Any]:
    """What to store of it. Of a budget only the sum is kept, and what rounding the golden values to fp32 adds."""
    if isinstance(expected, Exact):
        return {"golden": expected.value, "undefined": None if expected.where is None else ~expected.where}
    if isinstance(expected, Close):
        golden = embed.narrow(expected.value)
        if golden.dtype == torch.float64 and float(golden.abs().nan_to_num(0, 0).amax()) < torch.finfo(torch.float32).max:
            golden = golden.float()
        rest = tolerance(dataclasses.replace(expected, value=torch.zeros_like(expected.value)), torch.float64)
        slack = (rest + (golden.double() - expected.value).abs().nan_to_num(0)) * (1 + 2.0**-7)
        return {"golden": golden, "slack": slack.to(torch.bfloat16), "undefined": expected.undefined}
    fields = {field.name: getattr(expected, field.name) for field in dataclasses.fields(expected)}
    if isinstance(expected, Filtered):
        fields["weights"] = embed.narrow(expected.weights)
    return fields
