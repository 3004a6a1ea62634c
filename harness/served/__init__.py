"""What a server does: traces of live ones read, with no device.

traces    profiler traces: device launches out of any of the formats, summed by kernel
"""
