"""Results as JSON lines, baselines, and the ledger of what is known. Pure: no device, no provider library."""
