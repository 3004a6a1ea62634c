"""Cases of the sampling family."""

from tools import line, pairwise, point, product, threewise

DTYPES = ["fp32", "fp16", "bf16"]
FORMS = ["scalar", "rows", "mixed"]
PROBS = ["random", "peaked", "flat", "ties", "onehot", "tail"]
LOGITS = ["random", "peaked", "flat", "ties", "masked", "allmasked", "nan", "onenan", "extreme"]
VOCABS = [9, 111, 1000, 57344, 57345, 65535, 65536, 129280, 151936, 163840, 248320]
SERVED = [129280, 151936, 163840, 248320]
TOP_K = [1, 2, 10, 20, 50, 51, 100, 256, 257, 500, 1024, 1 << 30]
TOP_P = [0, 1e-4, 0.1, 0.5, 0.9, 0.95, 0.9999999, 1]
MIN_P = [0, 0.02, 0.1, 0.5, 1]
OFF_K = [0, -1]
BITS = ["random", "sparse", "none", "every"]


def around(vocab):
    """The values of k that meet a vocabulary: inside it, at its edge, past it, off."""
    return [k for k in TOP_K if k < vocab or k == 1 << 30] + [vocab - 1, vocab, vocab + 1, *OFF_K]


def filters(vocab, batch, dtypes):
    """Both renormalisations: every k and p by row, the gates as scalars too, every input family in every dtype."""
    yield from product("top_k_renorm", batch=batch, vocab=vocab, k=around(vocab), form="rows")
    yield from product("top_k_renorm", batch=batch, vocab=vocab, k=[1, 50, vocab, vocab + 1, 1 << 30, *OFF_K])
    yield from product("top_p_renorm", batch=batch, vocab=vocab, p=TOP_P, form=["scalar", "rows"])
    yield from product("top_k_renorm", batch=batch + 5, vocab=vocab, k=[0, 3, 50], form="mixed", dtype=dtypes)
    yield from product("top_p_renorm", batch=batch + 5, vocab=vocab, p=[0, 0.9], form="mixed", dtype=dtypes)
    yield from product("top_k_renorm", batch=batch, vocab=vocab, k=vocab // 2, values=PROBS, dtype=dtypes)
    yield from product("top_k_renorm", batch=batch, vocab=vocab, k=2, values=PROBS)
    yield from product("top_p_renorm", batch=batch, vocab=vocab, p=0.95, values=PROBS, dtype=dtypes)


def together(vocabs, batch):
    """top-k and top-p together, filtered and drawn; min-p the same."""
    for name in ("top_k_top_p_filter", "top_k_top_p_sample"):
        for vocab in vocabs:
            yield from product(name, batch=batch, vocab=vocab, k=[1, 4, vocab], p=[0.1, 0.9, 1], form="rows")
            yield from product(name, batch=batch, vocab=vocab, k=[4, vocab], p=[0.1, 1])
        yield from product(name, batch=batch + 5, vocab=vocabs, k=[3, 1 << 30], p=[0, 0.82], form="mixed")
        yield from product(name, batch=batch, vocab=vocabs, k=4, p=0.82, values=PROBS)
    for name in ("min_p_filter", "min_p_sample"):
        yield from product(name, batch=batch, vocab=vocabs, min_p=MIN_P, form="rows")
        yield from product(name, batch=batch, vocab=vocabs, min_p=0.1)
        yield from product(name, batch=batch + 5, vocab=vocabs, min_p=0.1, form="mixed")
        yield from product(name, batch=batch, vocab=vocabs, min_p=0.1, values=PROBS)


def edges(off=OFF_K, spoilt=("nan", "zero")):
    """Rows with one token tell a k of 0 that keeps nothing, or draws the first id, from one that keeps all; spoilt rows.

    Each of those may cost a worker (SGLang's sampler trips a device assert), and a worker costs seconds of imports.
    """
    yield from product("top_k_top_p_filter", batch=3, vocab=9, k=OFF_K, p=1, form=["scalar", "rows"])
    yield from product("top_k_top_p_sample", batch=3, vocab=9, k=off, p=1, values="onehot")
    yield from product("top_k_top_p_sample", batch=1, vocab=32000, k=1 << 30, p=1, values="onehot", draws=64)
    yield from product("top_k_top_p_sample", batch=4, vocab=111, k=4, p=0.9, values=spoilt)
    yield from product("min_p_sample", batch=4, vocab=111, min_p=0.1, values="nan")
    yield from product("sample", batch=4, vocab=111, values=spoilt)
    yield from product("seeded_sample", batch=8, vocab=111, k=[0, 10], seeds="unlucky", values="onehot")
    yield from product("seeded_sample", batch=8, vocab=111, k=10, p=[0.9, 1], seeds=["plain", "unlucky"])
    yield from product("greedy", batch=4, vocab=111, cap=30, values=["random", "extreme"])
    yield from product("token_bitmask", batch=3, vocab=[96, 111], padding=[5, 64])
    yield from product("penalties", batch=1, vocab=111)  # no request without a penalty beside it
    yield from product("penalties", batch=4, vocab=111, length=[0, 64], frequency=[0, 2], presence=[0, -1.5], repetition=[1, 1.25])


def drawn(draws, vocab, batch):
    """Draws enough to see the distribution: where top-k is what binds, where top-p is, where both are off, by row, with ties, by min-p."""
    yield from product("sample", batch=batch, vocab=vocab, values=["random", "peaked", "flat"], draws=draws)
    yield from product("top_k_top_p_sample", batch=batch, vocab=vocab, k=10, p=[0.3, 0.95], draws=draws)
    yield from product("top_k_top_p_sample", batch=batch, vocab=vocab, k=1 << 30, p=1, draws=draws)
    yield from product("top_k_top_p_sample", batch=max(5, batch), vocab=vocab, k=10, p=0.8, form="mixed", draws=draws)
    yield from product("top_k_top_p_sample", batch=batch, vocab=vocab, k=5, p=0.82, values="ties", draws=draws)
    yield from product("min_p_sample", batch=batch, vocab=vocab, min_p=0.1, draws=draws)
    yield from product("min_p_sample", batch=max(5, batch), vocab=vocab, min_p=0.1, form="mixed", draws=draws)


def powers(draws):
    """One row, for the table of detectable biases."""
    for vocab, counts in ((1000, draws), (163840, [20_000, draws])):  # a library that takes a row a draw declines the last
        yield from product("sample", batch=1, vocab=vocab, draws=counts)
        yield from product("top_k_top_p_sample", batch=1, vocab=vocab, k=50, p=0.95, draws=counts)
        yield from product("min_p_sample", batch=1, vocab=vocab, min_p=0.05, draws=counts)


def smoke():
    yield from product("sample", batch=3, vocab=111, draws=4000)
    yield from product("top_k_top_p_sample", batch=2, vocab=111, k=10, p=[0.3, 0.95], draws=4000)
    yield from product("top_k_top_p_sample", batch=5, vocab=111, k=10, p=0.8, form="mixed", draws=2000)
    yield from product("min_p_sample", batch=5, vocab=111, min_p=0.1, form="mixed", draws=2000)
    yield from product("sample", batch=1, vocab=9, values="flat", draws=100_000)
    yield from product("seeded_sample", batch=128, vocab=111, seeds="fewseeds")
    yield from product("seeded_sample", batch=128, vocab=111, seeds="highseeds")
    yield from filters(111, 3, ["fp32", "fp16"])
    yield from product("top_k_renorm", batch=2, vocab=1025, k=[50, 51, 256, 257, 500])
    yield from product("top_p_renorm", batch=2, vocab=[9, 1025], p=[0.1, 0.9, 0.9999999])
    yield from product("top_k_renorm", batch=1, vocab=163840, k=[50, 51])
    yield from product("top_p_renorm", batch=1, vocab=163840, p=[0.95, 0.9999999, 1])
    yield from together([111], 3)
    yield from edges()
    yield from product("sample", batch=[1, 4], vocab=[9, 111], values=PROBS)
    yield from product("seeded_sample", batch=4, vocab=111, values=PROBS)
    yield from product("temperature_softmax", batch=3, vocab=[9, 4097], temperature=[0.05, 1, 2], form=FORMS)
    yield from product("temperature_softmax", batch=4, vocab=4097, temperature=0.7, form="rows", values=LOGITS)
    yield from product("temperature_softmax", batch=[1, 32, 33], vocab=[2048, 2049], temperature=0.7, form="rows", dtype=["fp32", "fp16"])
    yield from product("greedy", batch=2, vocab=[111, 4097], values=LOGITS)
    yield from product("greedy", batch=3, vocab=4097, values=LOGITS, dtype="fp16")
    yield from product("greedy", batch=1, vocab=163840)
    yield from product("greedy", batch=2, vocab=[111, 4097], values="ends")
    yield from product("greedy", batch=3, vocab=4097, values="next", dtype=["fp32", "fp16"])
    yield from product("greedy", batch=2, vocab=16385, values="next")
    yield from product("greedy", batch=2, vocab=[111, 4097], values="steep")
    yield from product("greedy", batch=2, vocab=8193, values=["random", "ends"])
    yield from product("greedy", batch=2, vocab=131136, values="next")  # the last tile of a part of 2,049 has one token
    yield from product("greedy", batch=3, vocab=111, values=["flat", "ties", "next"], dtype="fp16")
    yield from product("temperature_softmax", batch=4, vocab=4097, temperature=0.7, form="rows", values="steep")
    yield from product("temperature_softmax", batch=2, vocab=8193, form="mixed", values=["random", "steep"])
    yield from product("seeded_sample", batch=16, vocab=111, seeds=["fewseeds", "highseeds"])
    yield from product("seeded_sample", batch=2, vocab=16384, values="flat")  # many columns: the last bits of the hash decide
    yield from product("token_bitmask", batch=4, vocab=[9, 111, 4097], bits=BITS, rows=["all", "some"])
    yield from product("token_bitmask", batch=4, vocab=111, rows=["all", "some"], dtype="fp16")
    yield from product("penalties", batch=4, vocab=111, values=["random", "masked", "ties"], dtype=["fp32", "fp16"])
    for alone in ((1, 0, 1), (0, 1, 1), (0, 0, 2)):
        yield from product("penalties", batch=1, vocab=111, **dict(zip(("frequency", "presence", "repetition"), alone, strict=True)))
    yield from served(111, 1000)
    yield point("served_sample", batch=3, vocab=9, mix="greedy")


def served(vocab, draws):
    """Batches of requests that differ, by seed too; what a seed asks for costs a call for each draw twice."""
    yield from product("served_sample", batch=15, vocab=vocab, values=["random", "ties", "peaked"], draws=draws)
    yield from product("served_sample", batch=[7, 14], vocab=vocab, mix=["nominp", "narrow", "simple"], draws=draws)
    yield from product("served_sample", batch=14, vocab=vocab, mix=["nominp", "simple"], mode="seeded", draws=200)


def pr():
    yield from drawn(200_000, 1000, 3)
    yield from served(1000, 10_000)
    yield from product("served_sample", batch=30, vocab=[129280, 163840], draws=16)
    yield from product("served_sample", batch=28, vocab=163840, mix="nominp", mode="seeded", draws=4)
    yield from powers(5_000_000)
    yield from product("seeded_sample", batch=4000, vocab=111, seeds=["fewseeds", "fewpositions"], values=["random", "flat"])
    yield from product("seeded_sample", batch=512, vocab=163840, seeds="fewseeds")
    yield from product("top_k_renorm", batch=3, vocab=1000, k=around(1000), form="rows")
    yield from product("top_k_renorm", batch=3, vocab=1000, k=[1, 50, 1000, 1001, 1 << 30, *OFF_K])
    yield from product("top_p_renorm", batch=3, vocab=1000, p=TOP_P, form="rows")
    yield from product("top_p_renorm", batch=3, vocab=1000, p=[0, 0.9, 1])
    yield from product("top_k_renorm", batch=8, vocab=1000, k=[0, 50], form="mixed", dtype=DTYPES)
    yield from product("top_p_renorm", batch=8, vocab=1000, p=0.9, form="mixed", dtype=DTYPES)
    yield from product("top_k_renorm", batch=3, vocab=1000, k=500, values=PROBS, dtype=["fp32", "bf16"])
    yield from product("top_p_renorm", batch=3, vocab=1000, p=0.95, values=PROBS)
    yield from product("top_p_renorm", batch=3, vocab=1000, p=0.95, values="ties", dtype=["fp16", "bf16"])
    yield from product("top_k_renorm", batch=16, vocab=[57344, 57345, 65535, 65536], k=[50, 51, 256, 257], form="rows")
    yield from product("top_k_renorm", batch=8, vocab=[114688, 114689], k=50, dtype=["fp16", "bf16"])
    yield from product("top_k_renorm", batch=200, vocab=[57344, 57345], k=20, form="mixed", dtype="bf16")
    yield from product("top_p_renorm", batch=8, vocab=[2047, 2048, 57344, 57345, 65535, 65536], p=0.9, form="rows")
    for name in ("top_k_top_p_filter", "top_k_top_p_sample"):
        yield from product(name, batch=8, vocab=[65535, 65536], k=[50, 51, 256, 257], p=0.9)
    for vocab in SERVED:
        yield from product("top_k_renorm", batch=16, vocab=vocab, k=[20, 0], form="rows")
        yield from product("top_p_renorm", batch=16, vocab=vocab, p=0.95, form="rows")
        for name in ("top_k_top_p_filter", "top_k_top_p_sample"):
            yield from product(name, batch=8, vocab=vocab, k=20, p=0.95, form="rows")
        yield from product("min_p_sample", batch=8, vocab=vocab, min_p=0.05, form="rows")
        yield from product("sample", batch=8, vocab=vocab)
        yield from product("seeded_sample", batch=4, vocab=vocab)
        yield from product("temperature_softmax", batch=33, vocab=vocab, temperature=0.6, form="rows")
        yield from product("greedy", batch=65, vocab=vocab)
        yield from product("token_bitmask", batch=32, vocab=vocab, dtype="bf16")
        yield from product("penalties", batch=16, vocab=vocab)
    yield from together([1000], 3)
    yield from edges(off=[0], spoilt=["nan"])
    yield from product("sample", batch=4, vocab=1000, values=PROBS)
    yield from product("sample", batch=4, vocab=1000, values=["random", "tail"], dtype="bf16")
    yield from product("seeded_sample", batch=8, vocab=1000, values=["random", "ties", "onehot", "tail"])
    yield from product("temperature_softmax", batch=4, vocab=[2048, 2049, 24575, 24576], temperature=[0.05, 2], form="mixed")
    yield from product("temperature_softmax", batch=[32, 33, 128, 129], vocab=24576, temperature=0.7)
    yield from product("temperature_softmax", batch=4, vocab=32768, temperature=0.7, form="rows", values=LOGITS)
    yield from product("temperature_softmax", batch=4, vocab=32768, temperature=0.7, form="rows", values=["random", "masked"], dtype=["fp16", "bf16"])
    yield from product("greedy", batch=4, vocab=32768, values=LOGITS)
    yield from product("greedy", batch=4, vocab=32768, values=["ties", "nan"], dtype=["fp16", "bf16"])
    yield from product("greedy", batch=4, vocab=[9, 4097], values=["random", "ties"])
    yield from product("greedy", batch=[64, 65], vocab=111, values=["random", "allmasked"])
    yield from product("greedy", batch=[256, 257], vocab=4097)
    yield from product("token_bitmask", batch=4, vocab=4097, bits=BITS, rows=["all", "some"])
    yield from product("token_bitmask", batch=4, vocab=111, rows="some", dtype=DTYPES)
    yield from product("penalties", batch=8, vocab=1000, values=["random", "masked", "ties"], dtype=["fp32", "bf16"])


def arrays():
    """Strength three over few values an axis; strength two over the long axes, so that every k, p and vocabulary meets every other."""
    vocabs, values, batches = [111, 57345, 151936], ["random", "ties", "onehot", "tail"], [1, 17]
    few_k, few_p = [1, 50, 257, 1 << 30, 0], [0, 0.1, 0.95, 1]
    yield from threewise("top_k_renorm", batch=batches, vocab=vocabs, k=few_k, form=FORMS, dtype=DTYPES, values=values)
    yield from threewise("top_p_renorm", batch=batches, vocab=vocabs, p=few_p, form=FORMS, dtype=DTYPES, values=values)
    yield from product("top_k_renorm", batch=3, vocab=VOCABS, k=[20, 1 << 30], form="rows")
    yield from product("top_p_renorm", batch=3, vocab=VOCABS, p=[1e-4, 0.9], form="rows")
    for vocab in (57344, 163840):
        yield from product("top_k_renorm", batch=3, vocab=vocab, k=around(vocab), form="mixed")
    yield from product("top_p_renorm", batch=3, vocab=[57345, 163840], p=TOP_P, form="mixed")
    for name in ("top_k_top_p_filter", "top_k_top_p_sample"):
        yield from threewise(name, batch=batches, vocab=vocabs, k=[1, 257, 1 << 30], p=[0, 0.1, 1], form=FORMS, values=values)
        yield from pairwise(name, batch=[3], vocab=[9, *VOCABS[2:]], k=[50, 1024, 1 << 30], p=TOP_P, values=["random", "flat"])
        yield from product(name, batch=3, vocab=163840, k=around(163840), p=0.9, form="rows")
        yield from product(name, batch=5, vocab=1000, k=20, p=0.9, dtype=["fp16", "bf16"], values=["random", "ties"])
    for name in ("min_p_filter", "min_p_sample"):
        yield from threewise(name, batch=batches, vocab=[9, 1000, 65536], min_p=MIN_P, form=FORMS, dtype=DTYPES, values=values)
        yield from product(name, batch=3, vocab=VOCABS, min_p=0.05, form="rows")
    yield from threewise("sample", batch=[1, 128], vocab=vocabs, draws=[1, 64], dtype=DTYPES, values=values)
    yield from product("sample", batch=3, vocab=VOCABS, values=["random", "onehot"])
    yield from threewise("seeded_sample", batch=[1, 16], vocab=[9, 1000, 65536], k=[0, 50], p=[0.1, 1], values=values)
    yield from product("seeded_sample", batch=4, vocab=VOCABS, k=20, p=0.95)
    yield from product("seeded_sample", batch=4, vocab=1025, k=around(1025), p=0.9)
    yield from product("seeded_sample", batch=4, vocab=1000, k=0, p=TOP_P)
    spoilt = ["random", "ties", "masked", "nan", "extreme"]
    yield from threewise("temperature_softmax", batch=[1, 33], vocab=vocabs, temperature=[0.05, 1, 2], form=FORMS, dtype=DTYPES, values=spoilt)
    yield from product("temperature_softmax", batch=3, vocab=VOCABS, temperature=0.6, form="rows", dtype=["fp32", "bf16"])
    yield from threewise("greedy", batch=[1, 64, 257], vocab=vocabs, dtype=DTYPES, values=spoilt)
    yield from pairwise("greedy", batch=[3], vocab=VOCABS, dtype=["fp32", "bf16"], values=["random", "flat", "allmasked"])
    yield from threewise("token_bitmask", batch=[1, 129], vocab=[9, 1000, 151936], bits=BITS, rows=["all", "some"], dtype=DTYPES)
    yield from product("token_bitmask", batch=3, vocab=VOCABS)
    yield from threewise("penalties", batch=[1, 33], vocab=vocabs, length=[1, 256], values=["random", "masked", "ties"], dtype=DTYPES)
    yield from product("penalties", batch=3, vocab=VOCABS)


def nightly():
    yield from pr()
    yield from drawn(1_000_000, 111, 3)
    yield from served(4097, 10_000)
    yield from product("served_sample", batch=[1, 64], vocab=[111, 151936], mix=["every", "narrow", "simple", "greedy"], values=["random", "flat"])
    for values in ("flat", "onehot", "tail"):  # tokens of probability 0 watched, and denormals beside real ones
        yield from product("sample", batch=1, vocab=9, values=values, draws=100_000_000)
    yield from product("top_k_top_p_sample", batch=1, vocab=9, k=3, p=0.9, draws=100_000_000)
    yield from product("min_p_sample", batch=1, vocab=9, min_p=0.3, draws=100_000_000)
    yield from product("sample", batch=1, vocab=[57345, 248320], draws=50_000)
    yield from product("seeded_sample", batch=20000, vocab=111, k=[0, 10], p=[0.5, 1], seeds=["fewseeds", "fewpositions"])
    yield from edges()
    yield from arrays()
    for vocab in SERVED:
        yield from line("top_k_renorm", "batch", [1, 4, 16, 64, 256], vocab=vocab, k=50, form="rows")
        yield from line("top_p_renorm", "batch", [1, 4, 16, 64, 256], vocab=vocab, p=0.95, form="rows")
        yield from line("top_k_top_p_sample", "batch", [1, 8, 64], vocab=vocab, k=50, p=0.95, form="rows", draws=1)
        yield from line("temperature_softmax", "batch", [1, 8, 32, 33, 128, 129], vocab=vocab, temperature=0.6, form="rows")
        yield from line("greedy", "batch", [1, 8, 64, 65, 256, 257], vocab=vocab)
        yield from line("token_bitmask", "batch", [1, 16, 256], vocab=vocab, dtype="bf16")
    for vocab in (129280, 163840):
        yield from line("top_k_renorm", "k", [1, 2, 10, 20, 49, 50, 51, 52, 100, 255, 256, 257, 500, 1024], batch=64, vocab=vocab)
    yield from line("top_k_renorm", "vocab", [32000, 57343, 57344, 57345, 57346, 65535, 65536, 65537, 128256, 131072], batch=64, k=50)
    for batch in (65535, 65536, 65537):
        yield from product("top_k_renorm", batch=batch, vocab=[111, 1000], k=10, form="mixed")
        yield from product("top_p_renorm", batch=batch, vocab=[111, 2048], p=0.9, form="mixed")
        yield from product("top_k_top_p_sample", batch=batch, vocab=111, k=10, p=0.9, form="mixed", draws=1)
        yield from product("min_p_sample", batch=batch, vocab=111, min_p=0.1, form="mixed", draws=1)
        yield from product("sample", batch=batch, vocab=111, draws=1)
        yield from product("temperature_softmax", batch=batch, vocab=[111, 2049], temperature=0.7, form="mixed")
        yield from product("greedy", batch=batch, vocab=[111, 4097])
        yield from product("token_bitmask", batch=batch, vocab=[111, 4096], dtype="bf16")
        yield from product("penalties", batch=batch, vocab=111)
    yield from product("greedy", batch=16385, vocab=131072, dtype="bf16", values="flat")  # more than 2^31 logits
    yield from product("token_bitmask", batch=16385, vocab=131072, dtype="bf16", bits="none")
