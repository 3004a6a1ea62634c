"""SGLang's own sampler driven as its server drives it, on any machine.

layer       the sampling layer linked out of the installed sources, with what it asks of the server described
driving     a batch of requests made of a case, and one pass of `ModelRunner.sample` over it
samplers    the providers of served_sample, a sampling back end each
"""
