"""Two bugs of one bring-up, shown by running: SGLang's own code on a described ROCm, and the cure held against the contracts.

renorm    0.5.16: the DSPARK accept calls a filter that is None on ROCm
heads     0.5.23: 12 heads a rank go to Triton, and what brings them back
"""
