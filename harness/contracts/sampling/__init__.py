"""Sampling ops: filters, softmax, penalties, masks and the draws themselves. Input families in distributions.py, support rules in filters.py."""
