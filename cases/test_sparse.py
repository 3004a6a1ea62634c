"""Sparse latent attention and the indexer's selection."""


def test_indexer_topk(cell, judge):
    judge(cell)


def test_topk_page_table(cell, judge):
    judge(cell)


def test_valid_kv_indices(cell, judge):
    judge(cell)


def test_sparse_mla_prefill(cell, judge):
    judge(cell)


def test_sparse_mla_decode(cell, judge):
    judge(cell)
