"""Device launches out of a trace of any size, in bounded memory.

reading   opens a file, plain or gzip, and finds out which format it is
pieces    the objects of a JSON array one by one, without the array
chrome    chrome traces, as torch's profiler (kineto) writes them
rocprof   rocprofv3's JSON
tables    rocprofv3's and nsys' tables: CSV, and nsys' JSON rows
tally     launches summed by kernel
"""

from harness.served.traces.observed import Observed, observe
from harness.served.traces.reading import launches
from harness.served.traces.tally import Launch, Tally, tally

__all__ = ["Launch", "Observed", "Tally", "launches", "observe", "tally"]
