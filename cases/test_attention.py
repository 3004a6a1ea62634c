"""Attention over a paged cache, and what fills and indexes that cache."""


def test_decode_attention(cell, judge):
    judge(cell)


def test_extend_attention(cell, judge):
    judge(cell)


def test_kv_indices(cell, judge):
    judge(cell)


def test_kv_page_table(cell, judge):
    judge(cell)


def test_kv_write(cell, judge):
    judge(cell)


def test_positioned_attention(cell, judge):
    judge(cell)


def test_verify_attention(cell, judge):
    judge(cell)
