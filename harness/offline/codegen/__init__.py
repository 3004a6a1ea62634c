"""What Triton's compiler makes of a library's kernels for a device that is not here: registers, spills, shared memory, matrix instructions.

Nothing of it is measured; every row says `compiled`.
"""
