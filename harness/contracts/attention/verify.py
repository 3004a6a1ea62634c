"""verify_attention: a few draft tokens a request over its prefix and, by a tree, each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.attention.batch import HEADS_IN, HEADS_OUT, LAYOUT, SEMANTICS, SHAPE, VALUES, AttentionInputs, cache_dtype, draw_batch, v_dim
from harness.contracts.attention.extend import with_fresh
from harness.contracts.attention.golden import Attention, Grid, Visible
from harness.contracts.axes import Case, number, real, words
from harness.contracts.inputs import Draw, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.flags import attention_flags
from harness.contracts.relations.heads import padded
from harness.contracts.relations.lengths import LONGER
from harness.contracts.relations.pages import PAGED
from harness.contracts.relations.requests import RAGGED


def tree(draw: Draw, batch: int, nodes: int, shape: str) -> torch.Tensor:
    """bool [batch, nodes, nodes]: whether node i sees node j, its ancestor or itself. `chain`: every earlier node; `tree`: each node
    hangs from a hashed earlier one; `star`: all hang from the root."""
    number = torch.arange(nodes, device=draw.device)
    drawn = draw.bits(batch, nodes).abs() % number.clamp_min(1)
    parent = {"chain": (number - 1).expand(batch, nodes), "tree": drawn, "star": torch.zeros_like(drawn)}[shape].clamp_min(0)
    seen = torch.eye(nodes, dtype=torch.bool, device=draw.device).repeat(batch, 1, 1)
    for node in range(1, nodes):
        seen[:, node] |= seen[torch.arange(batch, device=draw.device), parent[:, node]]
    return seen


@contract("attention")
class verify_attention(Attention):
    """Attention of the draft tokens of speculative decoding: each sees its request's whole prefix and its ancestors in the tree.

    q [batch * nodes, heads, dim], `nodes` a request; tree bool [batch, nodes, nodes], row i what node i sees among the nodes; the
    pool holds prefix and nodes; k_new, v_new and everything else as in extend_attention -> o, lse.
    """

    axes = (
        *SHAPE,
        number("nodes", "n", "draft tokens (queries) of a request", search=(1, 65)),
        number("prefix", "p", "longest cached prefix in tokens", least=0, search=(0, 4097)),
        *LAYOUT,
        words("shape", ("chain", "tree", "star"), "how the draft tokens hang together", default="chain"),
        words("lengths", LENGTHS, "prefix lengths of the requests", default="uniform"),
        real("soft_cap", "cap", "soft cap of the logits; 0: none", default=0.0, least=0.0, search=(1.0, 5.0, 30.0, 50.0)),
        words("sinks", ("nosinks", "sinks"), "a learned logit a head that takes mass", default="nosinks"),
        words("scales", ("unit", "scaled"), "scales of the pool's keys and values, as in decode_attention", default="unit"),
        words("values", VALUES, "queries and pool as in decode_attention", default="random"),
    )
    semantics = SEMANTICS
    relations = {**RAGGED, **PAGED, **LONGER, **padded(HEADS_IN, HEADS_OUT), "strided": strided("q"), **attention_flags(window=False, remake=with_fresh)}

    def inputs(self, case: Case, draw: Draw) -> AttentionInputs:
        nodes = [case.nodes] * case.batch
        prefix = ragged(draw, case.batch, case.prefix, case.lengths)
        seen = tree(draw, case.batch, case.nodes, case.shape)
        x = with_fresh(draw_batch(case, draw, nodes, [n + case.nodes for n in prefix], causal=case.shape == "chain"))
        x.tree = seen
        return x

    def visible(self, x: AttentionInputs, semantics: Semantics) -> Visible:
        def seen(requests: list[int], at: Grid) -> torch.Tensor:
            node = at.key - (at.kv_len - at.q_len)
            inside = (node >= 0) & (node < at.q_len)
            allowed = x.tree[torch.tensor(requests, device=x.device)[:, None, None], at.query.clamp_max(x.case.nodes - 1), node.clamp(0, x.case.nodes - 1)]
            return (node < 0) | (inside & allowed)

        return seen

    def work(self, case: Case) -> Work:
        row = case.dim + v_dim(case)
        queries = case.batch * case.nodes * case.heads * row * dtype_of(case.dtype).itemsize
        keys = case.batch * (case.prefix + case.nodes) * case.kv_heads * row * cache_dtype(case).itemsize
        return Work(2 * case.batch * case.heads * case.nodes * (case.prefix + case.nodes) * row, queries + keys)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "gqa":
            return
        size = {"batch": 2, "prefix": 20, "dtype": "fp16"} if small else {"batch": 16, "prefix": 2048, "dtype": "bf16"}
        for shape in ("chain", "tree"):
            yield {"heads": g.heads, "kv_heads": g.kv_heads, "dim": g.model.head_dim, "nodes": 4, "shape": shape, **size}
