"""tree_verify_greedy and tree_verify_sample: which path of a draft tree the target model accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real, words
from harness.contracts.expected import Drawn, Exact, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import Relation
from harness.contracts.relations.tables import backwards, each
from harness.contracts.sampling.drawing import AGAIN
from harness.contracts.speculative import chances, emitted, tree_laws, trees
from harness.contracts.speculative.chain import BATCH, VOCAB
from harness.contracts.speculative.chain_rules import inverse
from harness.contracts.speculative.walk import Walk, final_range, normalised

SLOTS = number("slots", "n", "tokens of the tree, the root included", search=(1, 65))
SHAPE = words("shape", trees.SHAPES, "a chain, all children of the root, or of mixed depth", default="mixed")
IDS = 163840


def _tree(draw: Draw, case: Case, vocab: int) -> dict[str, torch.Tensor]:
    """parent (of no library's interest), links, buffers and candidates, whose siblings differ."""
    parent = trees.parents(draw, case.batch, case.slots, case.shape)
    first = draw.integers(case.batch, case.slots, low=0, high=vocab)
    tokens = (first.gather(1, parent.clamp(min=0)) + trees.ranks(parent) * 7 + 1) % vocab
    steps = int(trees.depths(parent).max()) + 1
    return {
        "parent": parent,
        "candidates": tokens,
        **trees.links(parent),
        **trees.verify_buffers(case.batch, case.slots, steps, draw.device),
    }


@contract("speculative")
class tree_verify_greedy:
    """Follow the draft tree while a child holds the token the target predicts, the first of equal siblings.

    candidates, retrive_index (row numbers), retrive_next_token (first child), retrive_next_sibling, target_predict int64 [batch,
    slots] -> predicts int32 [batch * slots] (the target's token at each node of the path, undefined elsewhere), accept_index
    int32 [batch, steps] (rows of the path, -1 after it), accept_token_num int32 [batch], filled in place.
    """

    axes = (BATCH, SLOTS, SHAPE, words("values", ("random", "accepted", "rejected", "twins", "echo"), "input family", default="random"))
    outputs = ("accept_token_num", "accept_index", "predicts")
    mutates = outputs
    # accept_index numbers the rows of the batch
    relations = {
        "slots": backwards(
            "batch",
            "parent",
            "candidates",
            "retrive_next_token",
            "retrive_next_sibling",
            "target_predict",
            entries={"accept_token_num": each("batch"), "predicts": each("batch", "slots")},
        )
    }

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        """random: a child is predicted in three nodes of four; accepted: always; rejected: never; twins: siblings all alike;
        echo: as random, and where no child is predicted the root's own token is."""
        made = _tree(draw, case, IDS)
        parent, tokens = made["parent"], made["candidates"]
        if case.values == "twins":
            tokens = (parent * 13 + 5).clamp(min=0)
            made["candidates"] = tokens
        place = torch.arange(case.slots, device=draw.device)
        score = draw.integers(case.batch, case.slots, case.slots, low=1, high=1000)
        score = score * (parent[:, None, :] == place[:, None])  # [batch, node, child]
        chosen = tokens.gather(1, (score * case.slots + place).argmax(-1))
        hit = draw.integers(case.batch, case.slots, low=0, high=4) != 0
        if case.values in ("accepted", "rejected"):
            hit = torch.full_like(hit, case.values == "accepted")
        missed = tokens[:, :1] if case.values == "echo" else IDS + 1 + place
        return Inputs(case, draw.device, **made, target_predict=torch.where((score.amax(-1) > 0) & hit, chosen, missed))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        batch, slots = x.candidates.shape
        rows = torch.arange(batch, device=x.device)
        index = torch.full_like(x.accept_index, -1)
        predicts = torch.zeros(batch, slots, dtype=torch.int64, device=x.device)
        defined = torch.zeros(batch, slots, dtype=torch.bool, device=x.device)
        at, live, count = torch.zeros_like(rows), torch.ones_like(rows, dtype=torch.bool), torch.zeros_like(rows)
        for step in range(index.shape[1]):
            index[:, step] = torch.where(live, at + rows * slots, -1)
            wanted = x.target_predict[rows, at]
            predicts[rows, at] = wanted
            defined[rows, at] = True
            child = (x.parent == at[:, None]) & (x.candidates == wanted[:, None])
            live = live & child.any(1) & (step + 1 < index.shape[1])
            at = torch.where(live, child.int().argmax(1), at)
            count += live
        return {"accept_token_num": Exact(count), "accept_index": Exact(index), "predicts": Exact(predicts.flatten(), where=defined.flatten())}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Along the linked lists, in plain Python."""
        counts, paths, predicts = [], [], torch.zeros(x.candidates.numel(), dtype=torch.int64)
        batch, slots = x.candidates.shape
        for b in range(batch):
            child, sibling = x.retrive_next_token[b].tolist(), x.retrive_next_sibling[b].tolist()
            path, target = [0], x.target_predict[b].tolist()
            while len(path) < x.accept_index.shape[1]:
                node = child[path[-1]]
                while node != -1 and int(x.candidates[b, node]) != target[path[-1]]:
                    node = sibling[node]
                if node == -1:
                    break
                path.append(node)
            for node in path:
                predicts[b * slots + node] = target[node]
            counts.append(len(path) - 1)
            paths.append([b * slots + node for node in path] + [-1] * (x.accept_index.shape[1] - len(path)))
        return {"accept_token_num": torch.tensor(counts), "accept_index": torch.tensor(paths), "predicts": predicts}

    def work(self, case: Case) -> Work:
        return Work(case.batch * case.slots, case.batch * case.slots * 5 * 8)


@contract("speculative")
class tree_verify_sample:
    """Typical-acceptance sampling of a draft tree against the target alone: accept the first child whose cumulated p passes the coin.

    As tree_verify_greedy, with target_probs fp32 [batch, slots, vocab], uniform_samples [batch, slots] (the coin of the node whose
    children are tried), uniform_final [batch], threshold_single, threshold_acc. A child with p > 0 is accepted when coin <
    (p of it and the siblings before it) / threshold_acc, or p >= threshold_single. The final token comes from p without the
    rejected children. values `drawn` and `grid` (emitted.py): the token emitted after each node must follow its p, whatever the drafts.
    draft_probs [batch, slots, vocab], zero, is the kernels' scratch for them.
    """

    axes = (
        BATCH,
        SLOTS,
        VOCAB,
        SHAPE,
        words("values", ("random", "accepted", "rejected", "onehot", "edges", "float", "drawn", "grid"), "input family", default="random"),
        real("single", "ts", "threshold_single", default=1.0, search=(0.0, 0.1, 0.5, 0.9)),
        real("acc", "ta", "threshold_acc", default=1.0, search=(0.0, 0.1, 0.5, 0.9)),
    )
    outputs = ("accept_token_num", "accept_index", "predicts")
    mutates = (*outputs, "draft_probs")
    relations: dict[str, Relation] = {}

    def impossible(self, case: Case) -> str | None:
        return tree_laws.impossible(case)

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """Four times the requests, with the same tree and rows and fresh coins."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "batch": AGAIN * x.case.batch})
        return Inputs(case, x.device, **tree_laws.requests(case, draw, tree_laws.Rows(x.parent[:1], x.candidates[:1], x.target_probs[:1])))

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        if case.values in emitted.LAWS:
            return Inputs(case, draw.device, **tree_laws.requests(case, draw, tree_laws.rows(case, draw, _row)))
        made = _tree(draw, case, case.vocab)
        target = torch.empty(case.batch, case.slots, case.vocab, device=draw.device)
        for node in range(case.slots):
            target[:, node] = _row(draw, case, made, node)
        return Inputs(
            case,
            draw.device,
            **made,
            target_probs=target,
            draft_probs=torch.zeros_like(target),
            uniform_samples=chances.coins(draw, case.batch, case.slots, values=case.values),
            uniform_final=chances.coins(draw, case.batch, values=case.values),
            threshold_single=case.single,
            threshold_acc=case.acc,
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Judged | Drawn]:
        if x.case.values in emitted.LAWS:
            return tree_laws.reference(x)
        walk = _walk(x)
        return {"accept_token_num": Judged(walk.judge_count), "accept_index": Judged(walk.judge_index), "predicts": Judged(walk.judge_predicts)}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        return normalised(x, outputs)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Along the linked lists, in plain Python."""
        batch, slots = x.candidates.shape
        steps = x.accept_index.shape[1]
        index = torch.full((batch, steps), -1, dtype=torch.int64)
        pairs = torch.full((batch, steps, 2), -1, dtype=torch.int64)
        counts = []
        for b in range(batch):
            tokens, child, sibling = x.candidates[b].tolist(), x.retrive_next_token[b].tolist(), x.retrive_next_sibling[b].tolist()
            path = [0]
            while True:
                p = x.target_probs[b, path[-1]].double().tolist()
                coin, so_far = float(x.uniform_samples[b, path[-1]]), 0.0
                node = child[path[-1]]
                while node != -1:
                    chance = p[tokens[node]]
                    so_far += chance
                    if chance > 0 and (coin < so_far / x.threshold_acc or chance >= x.threshold_single):
                        break
                    p[tokens[node]] = 0.0
                    node = sibling[node]
                if node == -1:
                    break
                path.append(node)
            emitted = [*(tokens[node] for node in path[1:]), inverse(p, float(x.uniform_final[b]))]
            counts.append(len(path) - 1)
            index[b, : len(path)] = torch.tensor(path) + b * slots
            pairs[b, : len(path)] = torch.tensor(list(zip(path, emitted, strict=True)))
        return {"accept_token_num": torch.tensor(counts), "accept_index": index, "predicts": pairs}

    def work(self, case: Case) -> Work:
        row = case.batch * case.vocab
        return Work(4 * row, 4 * row + case.batch * case.slots * 40)

    def for_model(self, g: Any, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 1 if small else 32, "slots": 3 if small else 4, "vocab": g.model.vocab, "shape": "chain"}
        yield {"batch": 1 if small else 16, "slots": 4 if small else 8, "vocab": g.model.vocab}


def _row(draw: Draw, case: Case, made: dict[str, torch.Tensor], node: int) -> torch.Tensor:
    """Target probabilities [batch, vocab] at a node: random gives its children about half; accepted the first child alone;
    rejected nothing to any; onehot one token, a child's in every second request; edges tied weights; float not exact."""
    batch, vocab = case.batch, case.vocab
    if case.values == "float":
        return chances.step(draw, batch, vocab, "float").p
    mass = chances.masses(draw, batch, vocab, "ties" if case.values == "edges" else "random")
    child = made["parent"] == node
    count = child.sum(1, keepdim=True)
    spot = draw.integers(batch, 1, low=0, high=vocab)
    first = made["candidates"].gather(1, child.int().argmax(1, keepdim=True))
    if case.values in ("random", "edges"):
        share = torch.where(child, chances.UNIT // (2 * count + 2), 0)
        mass = (mass >> 1).scatter_add(1, made["candidates"], share)
    elif case.values == "rejected":
        keep = torch.ones_like(mass).scatter_reduce(1, made["candidates"], (~child).long(), "amin")
        mass = mass * keep
        spot = torch.where(keep.gather(1, spot) > 0, spot, keep.argmax(1, keepdim=True))
    elif case.values == "accepted":
        mass, spot = torch.zeros_like(mass), torch.where(count > 0, first, spot)
    else:
        mass = torch.zeros_like(mass)
        spot[::2] = torch.where(count > 0, first, spot)[::2]
    return chances.chances(chances.settle(mass, spot))


def _walk(x: Inputs) -> Walk:
    batch, slots, vocab = x.target_probs.shape
    band = chances.band(x.case.values != "float", vocab)
    above = x.parent.clamp(min=0)
    rows = torch.arange(batch, device=x.device)[:, None]
    p = x.target_probs[rows, above, x.candidates].double()
    same = trees.siblings(x.parent)
    passed = (torch.tril(same).double() @ p[:, :, None]).squeeze(2)
    coin = x.uniform_samples.double().gather(1, above) * x.threshold_acc
    single = p >= float(torch.tensor(x.threshold_single, dtype=torch.float32))
    accept = (p > 0) & (single | (coin < passed - band * passed))
    reject = (p <= 0) | (~single & (coin > passed + band * passed))
    taken_before = (torch.tril(same, -1) & accept[:, None, :]).any(-1)
    reach = torch.ones_like(accept)
    for node in range(1, slots):
        reach[:, node] = reach.gather(1, above[:, node : node + 1]).squeeze(1) & ~reject[:, node] & ~taken_before[:, node]
    place = torch.arange(slots, device=x.device)
    goes_on = ((x.parent[:, None, :] == place[:, None]) & accept[:, None, :]).any(-1)
    low, high = torch.empty_like(x.parent), torch.empty_like(x.parent)
    support = torch.empty(batch, slots, vocab, dtype=torch.bool, device=x.device)
    for node in range(slots):
        rejected = torch.zeros(batch, vocab, device=x.device).scatter_reduce(1, x.candidates, (x.parent == node).float(), "amax")
        left = x.target_probs[:, node].double() * (1 - rejected)
        support[:, node] = left > 0
        low[:, node], high[:, node] = final_range(left, x.uniform_final, band)
    return Walk(x.candidates, x.parent, reach & ~goes_on, trees.depths(x.parent), low, high, support, x.accept_index.shape[1])
