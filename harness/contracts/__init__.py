"""What an op means: declared axes, semantics, fp64 references, input families. Knows torch alone.

Import from here; the modules beside it are one op family each (sampling, speculative, attention, mla, sparse, merging).
"""

from harness.contracts.axes import Axes, Axis, Case, number, real, words
from harness.contracts.expected import Close, Drawn, Exact, Expected, Filtered, Instead, Judged, OneOf
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of, fingerprint
from harness.contracts.registry import FAMILIES, Op, Semantics, Work, contract, make_inputs, op, ops
from harness.contracts.relations import Relation

__all__ = [
    "DTYPES",
    "FAMILIES",
    "Axes",
    "Axis",
    "Case",
    "Close",
    "Draw",
    "Drawn",
    "Exact",
    "Expected",
    "Filtered",
    "Inputs",
    "Instead",
    "Judged",
    "OneOf",
    "Op",
    "Relation",
    "Semantics",
    "Work",
    "contract",
    "dtype_of",
    "fingerprint",
    "make_inputs",
    "number",
    "op",
    "ops",
    "real",
    "words",
]
