"""What a server does: SGLang's own layers driven as it drives them, and traces of live ones read, with no device.

attention  SGLang's attention back ends behind RadixAttention, on a described model runner
sampling   SGLang's sampler and DSPARK's verification, driven with batches of requests that differ
story      two bugs of one bring-up, shown by running
traces     profiler traces: device launches out of any of the formats, summed by kernel
"""
