"""Facts of AITER read off its sources: signatures, gates, head lists, kernel tables. `python -m harness.offline.aiter AITER_TREE`."""
