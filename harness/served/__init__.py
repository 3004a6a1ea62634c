"""What a server does: SGLang's own layers driven as it drives them, and traces of live ones read, with no device.

attention SGLang's attention back ends behind RadixAttention, on a described model runner
traces    profiler traces: device launches out of any of the formats, summed by kernel
"""
