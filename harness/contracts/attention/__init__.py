"""Multi-head, grouped and multi-query attention over a paged cache, and what fills that cache."""
