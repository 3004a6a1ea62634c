"""Ops that came in by --plugin or an installed plugin."""


def test_plugin_ops(cell, judge):
    judge(cell)
