"""Attention as the server runs it: SGLang's own back ends through `RadixAttention`, on a described model runner.

absent         SGLang's modules imported where packages that attention never touches are not installed
described      an object of which only what was written down is known: any other attribute raises, naming it
configuring    server arguments, model configuration and the runner, as the back ends read them
batching       KV pool, request-to-token map and forward batch, from a case's inputs
backends       which back end is which class of SGLang, and what it needs
driving        one forward through the layer: planning in `prepare`, the layer in `run`, what was chosen
sizes          what a case takes of memory, at the least
providers      the back ends as providers `served_*` of the op contracts; loaded only where asked for
choosing       the back end that SGLang's own default picks, and the gate that sent it there
reading        attributes that a back end's source reads of the runner and the batch
"""
