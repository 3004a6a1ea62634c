"""AITER on ROCm: not yet run on ROCm hardware. Signatures and gates are held against facts read off its sources (`facts/`)."""
