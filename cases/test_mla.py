"""Multi-head latent attention: decode, prefill, K assembly."""


def test_concat_mla_k(cell, judge):
    judge(cell)


def test_concat_mla_absorb_q(cell, judge):
    judge(cell)


def test_mla_decode(cell, judge):
    judge(cell)


def test_mla_prefill(cell, judge):
    judge(cell)


def test_mla_prefill_absorbed(cell, judge):
    judge(cell)
