"""Laws between calls (docs/relations.md): each op's relations on one shape, larger ones at night."""

from tools import line, point

from harness.contracts import op

# what needs a flag in its case is listed where the flag is
# a fresh process costs seconds: listed for a few ops
ELSEWHERE = ["process"]
FLAGS = ["uncapped", "unsunk", "unscaled", "unwindowed", "untempered"]
HIGH = ["highpages", "edgepages"]  # large pools: small rows only
DEVICE = ["stream", "replay", "longer"]  # what only a device shows: on one shape
DECODE = {"batch": 3, "heads": 12, "kv_heads": 4, "length": 40, "lengths": "ragged"}
EXTEND = {"batch": 3, "heads": 12, "kv_heads": 4, "new": 7, "prefix": 40, "lengths": "ragged"}
VERIFY = {"batch": 3, "heads": 12, "kv_heads": 4, "nodes": 4, "prefix": 40, "lengths": "ragged"}
FILTER = {"batch": 4, "vocab": 1000, "form": "rows"}
TABLES = {
    "dspark_cap_len": {"batch": 7},
    "dspark_finalize_lens": {"batch": 7},
    "dspark_select_mixed": {"batch": 7},
    "tree_build": {"batch": 3, "slots": 6, "topk": 3, "steps": 3, "length": 9},
    "tree_verify_greedy": {"batch": 5, "slots": 6},
    "kv_indices": {"batch": 5, "length": 40, "lengths": "ragged"},
    "kv_page_table": {"batch": 5, "length": 40, "page": 4, "lengths": "ragged"},
    "topk_page_table": {"rows": 5, "length": 40, "k": 64, "selection": "holes"},
    "valid_kv_indices": {"rows": 5, "k": 64, "selection": "holes"},
}
ROWS = {
    "top_k_renorm": {**FILTER, "k": 50},
    "top_p_renorm": {**FILTER, "p": 0.9},
    "top_k_top_p_filter": {**FILTER, "k": 50, "p": 0.9},
    "min_p_filter": {**FILTER, "min_p": 0.1},
    "sample": {"batch": 4, "vocab": 1000},
    "top_k_top_p_sample": {**FILTER, "k": 50, "p": 0.9},
    "min_p_sample": {**FILTER, "min_p": 0.1},
    "seeded_sample": {"batch": 4, "vocab": 1000},
    "temperature_softmax": {**FILTER, "vocab": 4097, "temperature": 0.7},
    "greedy": {"batch": 4, "vocab": 4097},
    "token_bitmask": {"batch": 4, "vocab": 1000},
    "penalties": {"batch": 4, "vocab": 1000},
    "verify_target_probs": {"batch": 3, "slots": 2, "vocab": 1000, "k": 50, "p": 0.9},
    "softmax_temp": {"batch": 3, "slots": 2, "vocab": 4097, "temperature": 0.7},
    "chain_verify": {"batch": 5, "slots": 4, "vocab": 1000},
    "tree_verify_sample": {"batch": 5, "slots": 6, "vocab": 1000},
    "dflash_accept": {"batch": 5, "slots": 4},
    "dflash_commit": {"batch": 5, "slots": 4},
    "dspark_accept_greedy": {"batch": 5, "slots": 4, "vocab": 1000},
    **TABLES,
    "indexer_topk": {"rows": 4, "length": 3000},
}


def every(name, but=(), **base):
    """Every relation of the op that needs nothing of its case; `but` those."""
    for word in op(name).relations:
        if word not in (*FLAGS, *HIGH, *ELSEWHERE, *but):
            yield point(name, **base, relation=word)


def flags(name, keys, window=True, **base):
    """Each flag turned off; `keys` names the axis of the keys: sinks want few, or they have no weight."""
    yield point(name, **base, soft_cap=5.0, relation="uncapped")
    yield point(name, **{**base, keys: 20}, sinks="sinks", relation="unsunk")
    yield point(name, **base, scales="scaled", relation="unscaled")
    if window:
        yield point(name, **base, window=6, relation="unwindowed")


def attention(dtype, **dim):
    """Decode, extend and verify: laws in one dtype, flags too."""
    yield from every("decode_attention", **DECODE, dtype=dtype, **dim)
    yield from every("extend_attention", **EXTEND, dtype=dtype, **dim)
    yield from every("verify_attention", **VERIFY, dtype=dtype, shape="chain", **dim)
    yield from flags("decode_attention", "length", **DECODE, dtype=dtype, **dim)
    yield from flags("extend_attention", "prefix", **EXTEND, dtype=dtype, **dim)
    yield from flags("verify_attention", "prefix", window=False, **VERIFY, dtype=dtype, **dim)


def latent(dtype, heads):
    """MLA, dense and sparse, and what goes before and after it."""
    ragged = {"heads": heads, "dtype": dtype, "lengths": "ragged"}
    yield from every("mla_decode", batch=3, length=40, **ragged)
    yield from every("mla_prefill", batch=3, new=7, prefix=20, chunk=8, **ragged)
    yield from every("mla_prefill_absorbed", batch=3, new=7, prefix=20, **ragged)
    yield from every("concat_mla_k", tokens=4, heads=heads, dtype=dtype)
    yield from every("concat_mla_absorb_q", tokens=4, heads=heads, dtype=dtype)
    for name in ("sparse_mla_prefill", "sparse_mla_decode"):
        yield from every(name, tokens=4, heads=heads, k=64, length=100, selection="ragged", dtype=dtype)
    yield from every("merge_state", tokens=4, heads=heads, dtype=dtype)
    yield from every("merge_states", parts=4, tokens=4, heads=heads, dtype=dtype)
    yield from every("suffix_merge", tokens=4, heads=heads, suffix=3, dtype=dtype)
    yield from every("kv_write", tokens=5, kv_heads=2, dtype=dtype)


def served(**base):
    """A batch of requests: to the bit where each has its seed, and the whole vocabulary of laws where it has none."""
    yield from every("served_sample", but=["slots", "alone"], **base)
    for mix in ("nominp", "simple"):
        yield from line("served_sample", "relation", ["slots", "alone", "repeat"], **{**base, "mix": mix, "mode": "seeded"})


def sampling():
    yield from served(batch=8, vocab=1000, draws=64)
    for name, base in ROWS.items():
        yield from every(name, but=["storage"] if name in TABLES else [], **base)
    yield point("temperature_softmax", **ROWS["temperature_softmax"], relation="untempered")
    for name in ("top_k_renorm", "top_k_top_p_sample", "seeded_sample"):
        yield point(name, **ROWS[name], relation="process")


def smoke():
    yield from line("decode_attention", "relation", ["slots", "repaged", "repheads"], batch=2, heads=3, kv_heads=1, length=20, dim=16, dtype="fp16")
    yield point("decode_attention", batch=2, heads=2, kv_heads=1, length=20, dim=16, dtype="fp32", soft_cap=5.0, relation="uncapped")
    yield from line("extend_attention", "relation", ["slots", "strided"], batch=2, heads=2, kv_heads=1, new=3, prefix=5, dim=16, dtype="fp16")
    yield from line("mla_decode", "relation", ["slots", "padheads", "storage", "split"], batch=2, heads=12, length=9, dtype="fp16")
    yield from line("merge_state", "relation", ["repeat", "commuted", "strided"], tokens=3, heads=3, dtype="fp16")
    laws = ["slots", "storage", "strided", "permuted", "neighbours", "twice"]
    yield from line("top_k_renorm", "relation", laws, batch=4, vocab=111, k=10, form="rows")
    yield from line("top_p_renorm", "relation", ["alone", "permuted", "neighbours"], batch=4, vocab=111, p=0.9, form="rows")
    yield point("top_k_top_p_sample", batch=3, vocab=111, k=10, p=0.9, form="rows", relation="repeat")
    yield from line("served_sample", "relation", ["slots", "alone"], batch=5, vocab=111, mix="simple", mode="seeded")
    yield point("served_sample", batch=5, vocab=111, mix="nominp", mode="seeded", relation="alone")
    yield point("served_sample", batch=15, vocab=111, draws=1000, relation="solo")
    for name, base in TABLES.items():
        yield point(name, **base, relation="slots")
    yield from line("temperature_softmax", "relation", ["shifted", "untempered"], batch=2, vocab=4097, temperature=0.7)


def pr():
    yield from attention("bf16")
    yield from latent("bf16", 12)
    yield from sampling()
    yield point("decode_attention", **{**DECODE, "kv_heads": 1}, dim=64, dtype="bf16", relation="highpages")
    yield point("mla_decode", batch=3, heads=12, length=40, dtype="bf16", lengths="ragged", relation="process")
    yield point("decode_attention", **{**DECODE, "length": 2000}, page=16, dtype="bf16", relation="longer")
    yield from line("mla_decode", "page", [1, 64], batch=3, heads=16, length=2000, dtype="bf16", lengths="ragged", relation="longer")
    small = {"batch": 2, "heads": 3, "kv_heads": 1, "dim": 16}
    yield from every("decode_attention", but=DEVICE, **small, length=20, dtype="fp32")
    yield point("decode_attention", **small, length=20, dtype="fp16", relation="highpages")
    yield from flags("decode_attention", "length", **small, length=20, dtype="fp32")
    yield from every("extend_attention", but=DEVICE, **small, new=3, prefix=9, dtype="fp16")
    yield from flags("extend_attention", "prefix", **small, new=3, prefix=9, dtype="fp16")
    yield from every("mla_decode", but=DEVICE, batch=2, heads=12, length=9, dtype="fp32")


def nightly():
    yield from pr()
    for name, base in TABLES.items():
        yield point(name, **base, relation="storage")
    yield from attention("fp16")
    yield from latent("fp16", 20)
    for name, base in (("decode_attention", {**DECODE, "kv_heads": 1}), ("extend_attention", {**EXTEND, "kv_heads": 1})):
        yield from line(name, "relation", HIGH, **base, dim=64, dtype="bf16")
    yield from line("mla_decode", "relation", HIGH, batch=3, heads=12, length=40, dtype="bf16")
    yield from line("mla_prefill_absorbed", "relation", HIGH, batch=3, heads=12, new=7, prefix=40, dtype="bf16")
    laws = ["repeat", "slots", "alone", "stream", "replay", "repaged", "padheads", "split", "longer"]
    for heads, kv_heads in ((64, 8), (12, 1), (24, 24)):
        yield from line("decode_attention", "relation", laws, batch=8, heads=heads, kv_heads=kv_heads, length=2000, dtype="bf16", lengths="ragged")
    for heads in (8, 12, 16, 128):
        yield from line("mla_decode", "relation", laws, batch=8, heads=heads, length=2000, dtype="bf16", lengths="ragged")
    for vocab in (129280, 163840):
        for name in ("top_k_renorm", "top_p_renorm", "top_k_top_p_filter", "min_p_filter"):
            yield from every(name, **{**ROWS[name], "batch": 8, "vocab": vocab})
        yield from every("greedy", batch=8, vocab=vocab)
        yield from line("top_k_top_p_sample", "relation", ["repeat", "replay", "process"], batch=8, vocab=vocab, k=50, p=0.9, form="rows")
