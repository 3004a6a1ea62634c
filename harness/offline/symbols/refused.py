"""Values of server flags that the package's own start refuses: for a package that the platform does not have, or for another platform's device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from harness.offline.symbols.facts import Config, Scenario
from harness.offline.symbols.tree import Tree, statements


def with_refused(tree: Tree, scenario: Scenario, config: Config) -> Config:
    """The configuration with the refused values among the foreign ones of the scenario's platform."""
    found: dict[str, set[object]] = {}
    for word in config.words("version_checks"):
        for module in tree.mentions(word):
            syntax = tree.syntax(module)
            for node in _ifs(syntax, scenario) if syntax and f"{word}(" in tree.text(module) else ():
                if any(_asks_for_absent(statement, word, scenario) for statement in node.body):
                    for attribute, value in _compared(node.test):
                        flag = config.flag_of(attribute)
                        if flag:
                            found.setdefault(flag, set()).add(value)
    for name in _of_other_devices(tree, scenario, config):
        found.setdefault(name, set()).add(True)
    flags = dict(config.flags)
    for name, values in found.items():
        foreign = {**flags[name].foreign, scenario.platform: (*flags[name].foreign.get(scenario.platform, ()), *sorted(values, key=str))}
        flags[name] = replace(flags[name], foreign=foreign)
    return replace(config, flags=flags)


def _ifs(node: ast.AST, scenario: Scenario) -> Iterator[ast.If]:
    """The `if` statements in it, those inside a test of the platform apart."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If):
            if any(_word(part) in scenario.answers for part in ast.walk(child.test)):
                continue
            yield child
        if isinstance(child, (ast.stmt, ast.ExceptHandler)):
            yield from _ifs(child, scenario)


def _of_other_devices(tree: Tree, scenario: Scenario, config: Config) -> Iterator[str]:
    """The switches whose checks among the server's arguments raise here: `if arguments.switch and not is_other_device(): raise`."""
    for module in tree.within(config.words("arguments")):
        if not any(attribute in tree.text(module) for flag in config.flags.values() for attribute in flag.names if False in flag.values):
            continue
        for node in statements(getattr(tree.syntax(module), "body", [])):
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
                switch, *others = node.test.values
                flag = config.flag_of(switch.attr) if isinstance(switch, ast.Attribute) else None
                if flag and all(_answer(part, scenario) is True for part in others):
                    yield flag


def _answer(test: ast.expr, scenario: Scenario) -> bool | None:
    """What a test of the platform gives by the facts alone; None where they do not say."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        held = _answer(test.operand, scenario)
        return None if held is None else not held
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts = {_answer(part, scenario) for part in test.values}
        return True if True in parts else None if None in parts else False
    answer = scenario.answers.get(_word(test.func)) if isinstance(test, ast.Call) else None
    return answer if isinstance(answer, bool) else None


def _asks_for_absent(statement: ast.stmt, word: str, scenario: Scenario) -> bool:
    """Whether the statement is a call of `word` that names the distribution of an absent package first."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and _word(call.func) == word and call.args and isinstance(call.args[0], ast.Constant)):
        return False
    return str(call.args[0].value).replace("-", "_").removesuffix("_python") in scenario.absent


def _compared(test: ast.expr) -> Iterator[tuple[str, object]]:
    """Attributes with the value that alone makes the test hold."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]:
        if isinstance(part, ast.Compare) and isinstance(part.left, ast.Attribute) and [type(op) for op in part.ops] == [ast.Eq]:
            yield part.left.attr, ast.literal_eval(part.comparators[0]) if isinstance(part.comparators[0], ast.Constant) else None


def _word(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
