"""What a server does: its own layers driven on any machine, and traces of live ones read, with no device.

sampling  SGLang's sampler and DSPARK's verification, driven with batches of requests that differ
story     two bugs of one bring-up, shown by running
traces    profiler traces: device launches out of any of the formats, summed by kernel
"""
