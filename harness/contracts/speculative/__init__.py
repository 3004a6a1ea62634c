"""Speculative decoding: target probabilities, verification of chains and trees, accept ops, tree building."""
