"""SGLang's own sampler and verification driven as its server drives them, on any machine.

layer       the sampling layer linked out of the installed sources, with what it asks of the server described
driving     a batch of requests made of a case, and one pass of `ModelRunner.sample` over it
samplers    the providers of served_sample, a sampling back end each
verifying   the provider of served_verify: DSPARK's accept with the names that ROCm binds
plain       what the verification calls kernels for, in plain PyTorch, for a CPU
"""
