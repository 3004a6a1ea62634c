"""Merging partial attention states (chunked prefill, split KV, decode context parallelism)."""
