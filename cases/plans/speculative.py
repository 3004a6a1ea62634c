"""Cases of the speculative family.

Gates: tiles of 4,096 tokens (chain kernel) and up to 32,768 (its block mode), 2,048 and 8,192 (argmax, blockwise rejection);
1,024 and 256 requests a program in the length kernels; vectors of 4, 2 or 1 tokens by the vocabulary; 8, 16 and 32 slots in bit-packed
masks; the sparse builder below max_top_k = vocab; FlashInfer's top-k filter at vocab 57,344 and 65,535; 2^31 elements of target_probs.
"""

from tools import line, pairwise, product, threewise

FAMILIES = ["random", "onehot", "matching", "rejected", "edges", "zerodraft", "nandraft", "decided", "float"]
BLOCK = [family for family in FAMILIES if family != "nandraft"]  # undefined there: the joint probability meets NaN
TREES = ["random", "accepted", "rejected", "onehot", "edges", "float"]
DRAFTS = ["random", "accepted", "rejected"]
SHAPES = ["chain", "wide", "mixed"]
LOGITS = ["random", "peaked", "flat", "ties", "masked"]
ALL = ["fp32", "fp16", "bf16"]
REAL = [129280, 151936, 163840]
OFF = 1 << 30


def served(vocab, draws):
    """Verified batches of requests that differ: what every server is asked for, and what few requests ask for."""
    yield from product("served_verify", batch=8, vocab=vocab, values=["random", "peaked"], draws=draws)
    yield from product("served_verify", batch=4, vocab=vocab, mix=["penalties", "shares", "greedy"], draws=draws)
    yield from product("served_verify", batch=13, vocab=vocab, mix="nominp", draws=draws)


def smoke():
    yield from served(64, 1000)
    yield from product("chain_verify", batch=512, slots=2, vocab=4, values="grid")
    yield from product("tree_verify_sample", batch=192, slots=3, vocab=4, shape="wide", values="grid")
    yield from product("tree_verify_sample", batch=1536, slots=3, vocab=8, shape="chain", values="grid")
    yield from product("tree_verify_sample", batch=4000, slots=6, vocab=111, values="drawn")
    yield from product("dspark_accept_sampling", batch=64, slots=4, vocab=111, values="drawn", spread=5, temperature=2)
    yield from product("dspark_accept_sampling", batch=2, slots=2, vocab=8193, values=["random", "rejected"], spread=0)
    yield from product("dspark_accept_sampling", batch=2, slots=2, vocab=8193, values="accepted")
    yield from product("dspark_accept_sampling", batch=6, slots=4, vocab=111, values="near", cut=["whole", "cut"])
    yield from product("dspark_accept_sampling", batch=2, slots=3, vocab=20000, values="near")
    yield from product("dspark_accept_sampling", batch=96, slots=2, vocab=6, values="drawn", spread=1, temperature=2)
    yield from product("dspark_accept_sampling", batch=12, slots=4, vocab=111, values="level", spread=[0, 3])
    yield from product("dspark_accept_sampling", batch=6, slots=3, vocab=1111, values="level", cut="cut")
    yield from product("dspark_accept_sampling", batch=3, slots=2, vocab=8195, values="level", spread=[0, 2])
    yield from product("softmax_temp", batch=4, slots=2, vocab=4097, temperature=0.7, form="mixed", values="steep")
    yield from product("verify_target_probs", batch=4, slots=2, vocab=111, k=[5, OFF], p=0.8, values="steep")
    yield from product("chain_verify", batch=12, slots=3, vocab=111, values=["random", "decided"], mode=["token", "block"])
    yield from product("chain_verify", batch=6, slots=4, vocab=111, values=FAMILIES)
    yield from product("chain_verify", batch=6, slots=4, vocab=111, values=BLOCK, mode="block")
    yield from product("chain_verify", batch=3, slots=[2, 3, 6, 9], vocab=9, mode=["token", "block"])
    yield from product("chain_verify", batch=2, slots=3, vocab=[4095, 4097], values=["random", "float"], mode=["token", "block"])
    yield from product("tree_verify_greedy", batch=3, slots=6, shape=SHAPES, values=["random", "accepted", "rejected", "twins"])
    yield from product("tree_verify_greedy", batch=2, slots=[1, 2, 4, 9, 16])
    yield from product("tree_verify_sample", batch=8, slots=6, vocab=111, shape=SHAPES, values=TREES)
    yield from product("tree_verify_sample", batch=8, slots=6, vocab=111, single=[0.1, 1.0], acc=[0.3, 1.0])
    yield from product("tree_build", batch=3, slots=[2, 5], topk=1, steps=4, length=9)
    yield from product("tree_build", batch=3, slots=6, topk=[2, 3], steps=3, length=9, mode=["full", "qlen", "packed"])
    yield from product("tree_build", batch=2, slots=[9, 12], topk=4, steps=2, length=7, lengths=["empty", "uniform"], mode=["full", "packed"])
    yield from product("tree_build", batch=2, slots=4, topk=8, steps=1, length=3)
    yield from product("verify_target_probs", batch=3, slots=2, vocab=111, k=[1, 2, 10, 50, 110, 111, 112, OFF], p=[0.9, 1.0])
    yield from product("verify_target_probs", batch=3, slots=2, vocab=111, k=[10, OFF], p=[0.0001, 0.5, 0.9999999], temperature=0.7)
    yield from product("verify_target_probs", batch=4, slots=2, vocab=111, k=[5, OFF], p=[0.8, 1.0], values=LOGITS[1:])
    yield from product("verify_target_probs", batch=4, slots=2, vocab=111, k=[5, 20], p=[0.8, 1.0], form="mixed", dtype=["fp32", "fp16"])
    yield from product("verify_target_probs", batch=1, slots=2, vocab=1000, k=[50, 51], p=0.95, dtype=["fp32", "fp16"])
    yield from product("softmax_temp", batch=2, slots=3, vocab=[9, 111, 4097], temperature=[0.3, 1.0], dtype=["fp32", "fp16"])
    yield from product("softmax_temp", batch=4, slots=2, vocab=111, temperature=0.7, form="mixed", values=LOGITS)
    yield from product("dflash_accept", batch=5, slots=[1, 2, 3, 5, 8, 16], values=DRAFTS)
    yield from product("dflash_commit", batch=5, slots=[1, 2, 3, 5, 8, 16], values=DRAFTS)
    yield from product("dspark_accept_greedy", batch=5, slots=5, vocab=111, values=DRAFTS, cut=["whole", "cut"], dtype=["fp32", "fp16"])
    yield from product("dspark_accept_greedy", batch=5, slots=5, vocab=111, cut="cut", scores=["ties", "masked"])
    yield from product("dspark_accept_greedy", batch=[3, 257], slots=4, vocab=9, cut="cut")
    yield from product(
        "dspark_accept_sampling", batch=6, slots=4, vocab=111, values=["random", "decided", "accepted", "rejected"], spread=[0, 3], cut=["whole", "cut"]
    )
    yield from product("dspark_cap_len", batch=[1, 1024, 1025], width=["i32", "i64"])
    yield from product("dspark_finalize_lens", batch=[1, 256, 257], width=["i32", "i64"])
    yield from product("dspark_select_mixed", batch=[1, 256, 257])


def laws(batch, vocab):
    """What is emitted follows the target: grids, and draws."""
    yield from product("chain_verify", batch=1536, slots=2, vocab=[3, 4, 8], values=["grid"])
    yield from product("chain_verify", batch=6720, slots=2, vocab=[3, 5], values="gridhot")
    yield from product("chain_verify", batch=98304, slots=3, vocab=[3, 4], values="grid")
    yield from product("chain_verify", batch=172032, slots=3, vocab=4, values="gridhot")
    yield from product("chain_verify", batch=batch, slots=4, vocab=vocab, values="drawn", mode=["token", "block"])
    yield from product("tree_verify_sample", batch=960, slots=3, vocab=[4, 6, 8], shape="wide", values="grid")
    yield from product("tree_verify_sample", batch=12288, slots=4, vocab=8, shape="chain", values="grid")
    yield from product("tree_verify_sample", batch=batch, slots=6, vocab=vocab, values="drawn", shape=SHAPES)
    yield from product("dspark_accept_sampling", batch=batch, slots=4, vocab=vocab, values="drawn", spread=5, temperature=[0.5, 1, 2])
    yield from product("dspark_accept_sampling", batch=batch, slots=4, vocab=vocab, values="drawn", spread=0)


def pr():
    yield from served(1000, 4000)
    yield from laws(20000, 111)
    yield from product("chain_verify", batch=16, slots=5, vocab=1000, values=FAMILIES)
    yield from product("chain_verify", batch=16, slots=5, vocab=1000, values=BLOCK, mode="block")
    yield from product("chain_verify", batch=4, slots=4, vocab=[4096, 4097, *REAL])
    yield from product("chain_verify", batch=4, slots=4, vocab=[32768, 32769, 163840], mode="block")
    yield from product("chain_verify", batch=4, slots=4, vocab=129280, values=["decided", "float"])
    yield from product("chain_verify", batch=4, slots=[2, 8, 16], vocab=1000, mode=["token", "block"])
    yield from product("tree_verify_greedy", batch=33, slots=[1, 2, 8, 31, 64], shape=SHAPES)
    yield from product("tree_verify_greedy", batch=16, slots=8, values=["accepted", "rejected", "twins"])
    yield from product("tree_verify_sample", batch=16, slots=6, vocab=[9, 1002], values=TREES)
    yield from product("tree_verify_sample", batch=16, slots=6, vocab=1000, values=["random", "float"], shape=["chain", "wide"])
    yield from product("tree_verify_sample", batch=16, slots=8, vocab=1000, single=[0.0, 0.1, 1.0], acc=[0.3, 1.0])
    yield from product("tree_verify_sample", batch=4, slots=8, vocab=REAL, shape=["chain", "mixed"])
    yield from product("tree_build", batch=5, slots=[2, 8], topk=1, steps=7, length=100)
    yield from product("tree_build", batch=5, slots=[8, 9, 16, 17, 32], topk=4, steps=4, length=100, mode=["full", "qlen", "packed"])
    yield from product("tree_build", batch=9, slots=[33, 64], topk=10, steps=5, length=300, mode=["full", "qlen"])
    yield from product("tree_build", batch=4, slots=8, topk=8, steps=1, length=9, lengths=["empty", "uniform"])
    yield from product("verify_target_probs", batch=4, slots=3, vocab=111, k=[1, 50, 51, 110, 111, 112, OFF], p=0.9)
    yield from product("verify_target_probs", batch=4, slots=3, vocab=111, k=[50, OFF], p=[0.0001, 1.0])
    yield from product("verify_target_probs", batch=4, slots=3, vocab=1000, k=20, p=0.9, values=LOGITS)
    yield from product("verify_target_probs", batch=4, slots=3, vocab=1000, k=20, p=0.9, dtype=["fp16", "bf16"])
    yield from product("verify_target_probs", batch=4, slots=3, vocab=1000, k=[20, 300], p=[0.8, 1.0], form="mixed", temperature=0.7)
    yield from product("verify_target_probs", batch=2, slots=2, vocab=[57344, 57345, 65535, 65536], k=50, p=0.95)
    yield from product("verify_target_probs", batch=2, slots=2, vocab=REAL, k=[50, OFF], p=0.95)
    yield from product("softmax_temp", batch=4, slots=3, vocab=[9, 4096, 4097, *REAL], temperature=0.3, dtype=["fp32", "bf16"])
    yield from product("softmax_temp", batch=4, slots=3, vocab=1000, form="mixed", values=LOGITS)
    yield from product("dflash_accept", batch=300, slots=[1, 2, 5, 16], values=DRAFTS)
    yield from product("dflash_commit", batch=300, slots=[1, 2, 5, 8, 16, 17, 33])
    yield from product("dflash_commit", batch=3, slots=8, values=DRAFTS)
    yield from product("dspark_accept_greedy", batch=[4, 20], slots=5, vocab=[111, 4096, 163840], cut="cut", dtype=ALL)
    yield from product("dspark_accept_greedy", batch=4, slots=5, vocab=129280, scores=["ties", "masked"], dtype=ALL)
    yield from product("dspark_accept_sampling", batch=8, slots=5, vocab=[111, 8193, 163840], values="decided", spread=[0, 3], cut=["whole", "cut"])
    yield from product("dspark_accept_sampling", batch=8, slots=5, vocab=[111, 163840], spread=[0, 3])
    yield from product("dspark_cap_len", batch=[1, 1024, 1025], width=["i32", "i64"])
    yield from product("dspark_finalize_lens", batch=[1, 256, 257], width=["i32", "i64"])
    yield from product("dspark_select_mixed", batch=[1, 256, 257])


def nightly():
    yield from pr()
    yield from product("served_verify", batch=[1, 16], vocab=[64, 4096], mix=["chosen", "simple"], draws=4000)
    yield from laws(50000, 1000)
    yield from threewise("chain_verify", batch=[1, 64], slots=[2, 5, 16], vocab=[9, 1000, 4097, 129280], values=BLOCK, mode=["token", "block"])
    yield from product("chain_verify", batch=7, slots=[3, 4, 6, 7, 8], vocab=REAL, values="float")
    yield from line("chain_verify", "batch", [1, 2, 4, 8, 16, 32, 64, 128, 256], slots=4, vocab=163840)
    yield from line("chain_verify", "slots", range(2, 17), batch=32, vocab=129280)
    yield from product("chain_verify", batch=1640, slots=8, vocab=163840)
    yield from threewise("tree_verify_sample", batch=[1, 32], slots=[2, 8, 9], vocab=[9, 1002, 129280], shape=SHAPES, values=TREES, acc=[0.3, 1.0])
    yield from product("tree_verify_sample", batch=7, slots=4, vocab=[111, *REAL], shape="mixed", acc=0.5)
    yield from threewise("tree_verify_greedy", batch=[1, 300], slots=[1, 5, 33], shape=SHAPES, values=["random", "accepted", "rejected", "twins"])
    gates = [57344, 57345, 65535, 65536, 248320]
    yield from product("chain_verify", batch=3, slots=4, vocab=[111, *gates])
    yield from product("tree_verify_sample", batch=3, slots=6, vocab=gates)
    yield from product("softmax_temp", batch=3, slots=2, vocab=gates)
    yield from product("verify_target_probs", batch=3, slots=2, vocab=[9, 248320], k=5, p=0.9)
    yield from product("dspark_accept_greedy", batch=3, slots=5, vocab=[9, 1000, 151936, *gates])
    yield from product("dspark_accept_sampling", batch=3, slots=4, vocab=[9, 1000, 151936, *gates])
    yield from line("tree_verify_greedy", "batch", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], slots=8)
    yield from threewise(
        "tree_build", batch=[1, 7, 64], slots=[8, 9, 16, 17, 32], topk=[4, 8], steps=[3, 5, 8], length=[0, 1, 1000], mode=["full", "qlen", "packed"]
    )
    yield from line("tree_build", "batch", [1, 4, 16, 64, 256], slots=8, topk=4, steps=5, length=8192)
    vocabs, ks = [111, 57345, 151936], [1, 50, 257, OFF]
    yield from threewise("verify_target_probs", batch=[1, 8], slots=[1, 4], vocab=vocabs, k=ks, p=[0.0001, 0.9, 1.0], values=LOGITS, dtype=ALL)
    yield from threewise("verify_target_probs", batch=[5], slots=[1, 4], vocab=vocabs, k=ks, p=[0.5, 1.0], form=["mixed"], temperature=[0.3, 1.3])
    vocabs = [1000, 57344, 65535, 65536, *REAL]
    yield from pairwise("verify_target_probs", batch=[3], slots=[2], vocab=vocabs, k=[2, 10, 51, 100, 256, 500, 1024], p=[0.1, 0.5, 0.95, 0.9999999])
    yield from line("verify_target_probs", "batch", [1, 4, 16, 64], slots=4, vocab=163840, k=50, p=0.95)
    yield from threewise(
        "softmax_temp", batch=[1, 9], slots=[1, 4], vocab=[9, 111, 4097, *REAL], temperature=[0.3, 0.7, 1.0], form=["rows", "mixed"], dtype=ALL, values=LOGITS
    )
    yield from line("softmax_temp", "batch", [1, 4, 16, 64, 128], slots=4, vocab=163840)
    yield from threewise("dspark_accept_greedy", batch=[1, 12, 80], slots=[1, 3, 8], vocab=[111, 4096, 163840], values=DRAFTS, cut=["whole", "cut"], dtype=ALL)
    yield from threewise(
        "dspark_accept_sampling",
        batch=[1, 32],
        slots=[2, 5, 8],
        vocab=[111, 8192, 129280],
        values=["random", "decided"],
        spread=[0, 1, 3],
        cut=["whole", "cut"],
    )
    yield from product("dflash_accept", batch=[65535, 65536, 200000], slots=8)
    yield from product("dflash_commit", batch=[65535, 65536, 200000], slots=8)
    yield from product("tree_verify_greedy", batch=[65535, 65536], slots=4)
    yield from product("dspark_cap_len", batch=[65535, 70000000])
    yield from product("dspark_finalize_lens", batch=[65535, 20000000])
    yield from product("dspark_select_mixed", batch=[65535, 20000000])
