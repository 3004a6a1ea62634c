"""An object of which only what was written down is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Undescribed(Exception):
    """SGLang reads something that the description lacks: the description has to grow, for the attribute may decide what runs."""


class Described:
    """Answers for `values`; what is in `absent` it is known not to have. Any other attribute raises Undescribed, which
    names it."""

    def __init__(self, name: str, values: Mapping[str, Any], absent: Iterable[str] = ()) -> None:
        self.__dict__.update(_name=name, _values=dict(values), _absent=frozenset(absent))

    def __getattr__(self, attribute: str) -> Any:
        if attribute in self._values:
            return self._values[attribute]
        if attribute.startswith("__") or attribute in self._absent:
            raise AttributeError(attribute)
        raise Undescribed(f"SGLang reads {self._name}.{attribute}, which is not described; add it in harness/served/attention/configuring.py")

    def __setattr__(self, attribute: str, value: Any) -> None:
        self._values[attribute] = value

    def __repr__(self) -> str:
        return self._name

    def known(self) -> frozenset[str]:
        """The attributes that are described, those that are known to be absent among them."""
        return frozenset(self._values) | self._absent
