"""SGLang's sampling back end by default, and whether a speculative verify with temperature > 0 is decided by argmax in silence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.offline.routes.dispatch import ARGUMENTS, NO_SPECULATION, OVERRIDES, Dispatch
from harness.offline.routes.linking import Undescribed, told
from harness.offline.routes.parsing import Module
from harness.offline.routes.slicing import block
from harness.offline.routes.world import Described

_VERIFY = tuple(f"sglang.srt.speculative.{name}" for name in ("eagle_utils", "eagle_info_v2", "eagle_info"))
_HOOK = "sglang.srt.arg_groups.speculative_hook"
# label, algorithm, top-k of the draft tree, token map of a reduced draft vocabulary
DRAFTS = (
    ("EAGLE, a chain", "EAGLE", 1, None),
    ("EAGLE, a tree", "EAGLE", 4, None),
    ("EAGLE, token map", "EAGLE", 1, "map.pt"),
    ("EAGLE3, a chain", "EAGLE3", 1, None),
)


@dataclass(frozen=True)
class SamplingRow:
    """answer: the back end, or `argmax` / `samples` for a verify; empty where the code stopped (`stopped`). condition: the one that decided."""

    question: str
    target: str
    answer: str
    file: str
    line: int
    condition: str = ""
    stopped: str = ""


class Sampling:
    """Sampling decisions of one version of SGLang on one target."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch, self._linker = dispatch, dispatch.linker

    def rows(self) -> list[SamplingRow]:
        """The default back end, and the verify of each kind of draft at each place that decides it."""
        return [self.default(), *self.verify()]

    def default(self) -> SamplingRow:
        """The back end of a server without --sampling-backend."""
        tree, args = self._linker.tree, self._dispatch.server_args(None, 1, {})
        modern = tree.module(OVERRIDES)
        made = {"question": "sampling backend by default", "target": self._dispatch.target.id}
        self._linker.trace.seen.clear()
        try:
            if modern and (node := modern.function("_sampling_backend_default")):
                answer = self._linker.load(OVERRIDES, node.name)(args)["sampling_backend"]
                return SamplingRow(**made, answer=answer, file=modern.path, line=node.lineno, condition=self._last())
            module = self._linker.module(ARGUMENTS)
            found = module.function("_handle_sampling_backend", "ServerArgs")
            if found is None:
                return SamplingRow(**made, answer="", file=module.path, line=0, stopped="no function of a known form")
            args._handle_sampling_backend()
            return SamplingRow(**made, answer=args.sampling_backend, file=module.path, line=found.lineno, condition=self._last())
        except (Undescribed, Exception) as error:
            return SamplingRow(**made, answer="", file="", line=0, stopped=told(error))

    def verify(self) -> list[SamplingRow]:
        """Every place that may choose argmax for a request with temperature > 0, for every kind of draft that it tells apart."""
        places = [place for name in _VERIFY if (module := self._linker.tree.module(name)) for place in _tests(module)]
        if not places:
            stopped = "no test of `is_all_greedy` of a known form in srt/speculative"
            return [SamplingRow(f"speculative verify, {label}", self._dispatch.target.id, "", "", 0, stopped=stopped) for label, *_ in DRAFTS]
        return [self._verify(module, test, draft) for module, test in places for draft in DRAFTS]

    def _verify(self, module: Module, test: ast.If, draft: tuple[str, str, int, str | None]) -> SamplingRow:
        label, algorithm, topk, token_map = draft
        made: dict[str, Any] = {"question": f"speculative verify, {label}", "target": self._dispatch.target.id, "file": module.path, "line": test.lineno}
        spec = {"speculative_algorithm": algorithm, "speculative_eagle_topk": topk}
        try:
            spec["speculative_use_rejection_sampling"] = self._rejects(test, algorithm, topk, token_map)
            self._dispatch.speculation = {**NO_SPECULATION, **spec}
            names = sorted(
                {node.id for node in ast.walk(test.test) if isinstance(node, ast.Name)}
                & {"sampling_info", "is_all_greedy", "server_args", "use_rejection_sampling"}
            )
            given = {
                "sampling_info": Described("sampling_info", {"is_all_greedy": False}),
                "is_all_greedy": False,
                "server_args": Described("server_args", spec),
                "use_rejection_sampling": spec["speculative_use_rejection_sampling"],
            }
            self._linker.trace.seen.clear()
            greedy = self._linker.function(module, block(_returned(test), *names))(*(given[name] for name in names))
        except (Undescribed, Exception) as error:
            return SamplingRow(**made, answer="", stopped=told(error))
        finally:
            self._dispatch.speculation = dict(NO_SPECULATION)
        return SamplingRow(**made, answer="argmax" if greedy else "samples", condition=self._last(True) if greedy else "")

    def _rejects(self, test: ast.If, algorithm: str, topk: int, token_map: str | None) -> bool:
        """Whether the server turns rejection sampling on by itself, which HIP needs to sample."""
        module = self._linker.tree.module(_HOOK)
        node = module.function("_should_auto_enable_hip_rejection_sampling") if module else None
        if module is None or node is None:
            if "use_rejection_sampling" in ast.unparse(test.test):
                raise Undescribed(f"the verify asks for use_rejection_sampling, and {_HOOK} has no function of a known form that turns it on")
            return False
        given: dict[str, Any] = {"use_rejection_sampling": False, "algorithm": algorithm, "token_map": token_map, "eagle_topk": topk}
        given |= {"accept_threshold_single": 1.0, "accept_threshold_acc": 1.0, "enable_deterministic_inference": False, "simulate_acc_len": -1.0}
        given["is_hip"] = self._linker.load("sglang.srt.utils", "is_hip")()
        asked = {part.arg for part in node.args.kwonlyargs + node.args.args}
        if asked - given.keys():
            raise Undescribed(f"{module.path}:{node.lineno} asks for {sorted(asked - given.keys())[0]}, which is not described")
        return self._linker.function(module, node)(**{name: given[name] for name in asked})

    def _last(self, outcome: bool | None = None) -> str:
        seen = [place for place, was in self._linker.trace.seen if outcome is None or was is outcome]
        return seen[-1].text if seen else ""


def _tests(module: Module) -> Iterator[tuple[Module, ast.If]]:
    """The branches that a batch takes when it is all greedy, or for another reason: an `or`, or the function that SGLang made of it."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If) and (isinstance(node.test, ast.Call) or (isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or))):
            text = ast.unparse(node.test)
            if "is_all_greedy" in text and any(word in text for word in ("_is_hip", "TREE_SPEC_KERNEL_AVAILABLE", "_verify_uses_greedy")):
                yield module, node


_RETURNS: dict[int, tuple[ast.If, ast.Return]] = {}


def _returned(test: ast.If) -> ast.Return:
    """`return TEST`, the same node for the same test."""
    if id(test) not in _RETURNS:
        _RETURNS[id(test)] = test, ast.copy_location(ast.Return(test.test), test)
    return _RETURNS[id(test)][1]
