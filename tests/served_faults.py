"""Served layers with a fault planted between the runner and the kernel: a plugin, for test_served_cells.py."""

from __future__ import annotations

from harness.providers import implements
from harness.served.attention.backends import BACKENDS
from harness.served.attention.providers import Decode, Extend, MlaDecode, Verify


def _unscaled(made):
    made.served.layer.scaling = 1.0


def _other_page(made):
    table, rows = made.served.pools.requests.req_to_token, made.served.pools.rows
    table[rows[0], 0] = table[rows[1], 0]


def _swapped_heads(made):
    key, value = made.given[1:]
    made.given = (made.given[0], key.flip(1), value.flip(1))


def _unwritten(made):
    forward = made.served.forward
    made.served.forward = lambda *given, **flags: forward(*given, **{**flags, "save": False})


def _short(made):
    made.served.batch.seq_lens -= 1


def _unsunk(made):
    made.flags = {}


def _uncausal(made):
    made.served.engine.forward_metadata.custom_mask.fill_(True)


def _undescribed(made):
    made.served.engine.decode_attention_fwd = lambda *args, **named: made.served.described.a_name_of_next_year


FAULTS = {
    "unscaled": ("torch_native", "decode_attention", Decode, _unscaled),
    "other_page": ("torch_native", "decode_attention", Decode, _other_page),
    "swapped_heads": ("torch_native", "extend_attention", Extend, _swapped_heads),
    "unwritten": ("torch_native", "decode_attention", Decode, _unwritten),
    "short": ("torch_native", "mla_decode", MlaDecode, _short),
    "unsunk": ("triton", "decode_attention", Decode, _unsunk),
    "uncausal": ("triton", "verify_attention", Verify, _uncausal),
    "undescribed": ("triton", "decode_attention", Decode, _undescribed),
}


def _plant(name, backend, op, base, fault):
    class Planted(base):
        def prepare(self, x, scratch):
            super().prepare(x, scratch)
            fault(self)

    Planted.backend, Planted.__qualname__ = BACKENDS[backend], f"Planted_{name}"
    implements(op, library="sglang", name=f"planted_{name}", platforms={"cpu", "interpret"}, semantics={"fp32_dot": "tf32"})(Planted)


for _name, _fault in FAULTS.items():
    _plant(_name, *_fault)
