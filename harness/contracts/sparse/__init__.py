"""Sparse latent attention (DeepSeek V3.2, GLM-5): the indexer's top-k and attention over its picks."""
