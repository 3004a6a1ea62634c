"""Sampling: filters, softmax, penalties, masks, draws."""


def test_top_k_renorm(cell, judge):
    judge(cell)


def test_top_p_renorm(cell, judge):
    judge(cell)


def test_top_k_top_p_filter(cell, judge):
    judge(cell)


def test_min_p_filter(cell, judge):
    judge(cell)


def test_sample(cell, judge):
    judge(cell)


def test_top_k_top_p_sample(cell, judge):
    judge(cell)


def test_min_p_sample(cell, judge):
    judge(cell)


def test_token_bitmask(cell, judge):
    judge(cell)


def test_penalties(cell, judge):
    judge(cell)


def test_temperature_softmax(cell, judge):
    judge(cell)


def test_greedy(cell, judge):
    judge(cell)


def test_seeded_sample(cell, judge):
    judge(cell)


def test_served_sample(cell, judge):
    judge(cell)
