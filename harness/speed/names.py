"""Kernel names as people know them: without mangling, templates, arguments and the hashes that a compiler adds."""

from __future__ import annotations

import re

_HASHES = re.compile(r"(?:_0d\d+d)+\w*$|_[0-9a-f]{16,}$|__kernel$")  # Triton's specialisation, a content hash
_SPACE = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_CARRIERS = {"device_kernel", "elementwise_kernel", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "reduce_kernel", "index_elementwise_kernel"}
# the first name in the template arguments that is a class of work: FlashAttnFwdSm90, GemmUniversal, FillFunctor, ArgMaxOps
_CARRIED = re.compile(r"(?:^|(?<=[^\w:]))(?:\w+::)*\w*(?:Fwd|Bwd|Gemm|Functor|Ops)(?:[A-Z]\w*)?(?=[<,> ]|$)")
_LEADING = re.compile(r"^(?:void|static|__global__)\s+")


def plain_name(name: str) -> str:
    """The function's own name with its namespaces: `flashinfer::BatchMLAPagedAttentionKernel` of a mangled or demangled C++ name with
    templates and arguments; names of Triton's and assembler kernels as they are, but for hashes at their end. A kernel that only
    carries another's code is named with it: `cutlass::device_kernel flash::FlashAttnFwdSm90`."""
    if name.startswith("_Z"):
        plain = _unmangled(name)
    elif "<" in name or "(" in name:
        plain = _without(_without(_SPACE.sub("anonymous", name), "(", ")"), "<", ">")
        plain = _LEADING.sub("", plain).strip()
    else:
        plain = name
    plain = _HASHES.sub("", plain) or name
    if plain.rpartition("::")[2] not in _CARRIERS:
        return plain
    carried = _CARRIED.search(" ".join(_identifiers(name)) if name.startswith("_Z") else name)
    return f"{plain} {carried[0]}" if carried else plain


def _without(name: str, opening: str, closing: str) -> str:
    """The text with everything between brackets left out, nested ones too; an opening bracket without its end takes the rest."""
    kept, depth = [], 0
    for letter in name:
        depth += letter == opening
        if not depth:
            kept.append(letter)
        depth -= letter == closing and depth > 0
    return "".join(kept)


def _unmangled(name: str) -> str:
    """The path of a name in the Itanium C++ ABI: `_ZN5aiter3fooE...` is `aiter::foo`. What does not read so is left as it is."""
    nested = name.startswith("_ZN")
    path = _identifiers(name[3:].lstrip("KVr") if nested else name[2:], adjoining=True)
    return "::".join("anonymous" if part.startswith("_GLOBAL__N") else part for part in path[: None if nested else 1]) or name


def _identifiers(text: str, *, adjoining: bool = False) -> list[str]:
    """The names in a mangled one, each written after its length; `adjoining`: those at its beginning, without anything between them."""
    found, place = [], 0
    while count := re.compile(r"\d+").search(text, place):
        if adjoining and count.start() != place:
            break
        place = count.end() + int(count[0])
        found.append(text[count.end() : place])
    return found


def family(name: str) -> str:
    """The last part of the plain name without tile shapes: kernels of one family do the same work in other tiles."""
    first, _, last = plain_name(name).rpartition("::")[2].rpartition(" ")
    last = last if not first or first in _CARRIERS else f"{first} {last}"
    return re.sub(r"_\d+(?:x\d+)+(?=_|$)", "", last) or plain_name(name)
