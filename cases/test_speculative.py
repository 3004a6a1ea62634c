"""Speculative decoding: target probabilities, verification, acceptance, trees."""


def test_chain_verify(cell, judge):
    judge(cell)


def test_dflash_accept(cell, judge):
    judge(cell)


def test_dflash_commit(cell, judge):
    judge(cell)


def test_dspark_accept_greedy(cell, judge):
    judge(cell)


def test_dspark_accept_sampling(cell, judge):
    judge(cell)


def test_dspark_cap_len(cell, judge):
    judge(cell)


def test_dspark_finalize_lens(cell, judge):
    judge(cell)


def test_dspark_select_mixed(cell, judge):
    judge(cell)


def test_verify_target_probs(cell, judge):
    judge(cell)


def test_softmax_temp(cell, judge):
    judge(cell)


def test_tree_build(cell, judge):
    judge(cell)


def test_tree_verify_greedy(cell, judge):
    judge(cell)


def test_tree_verify_sample(cell, judge):
    judge(cell)


def test_served_verify(cell, judge):
    judge(cell)
