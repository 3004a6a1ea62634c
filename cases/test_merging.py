"""Merging partial attention states."""


def test_merge_state(cell, judge):
    judge(cell)


def test_merge_states(cell, judge):
    judge(cell)


def test_suffix_merge(cell, judge):
    judge(cell)
