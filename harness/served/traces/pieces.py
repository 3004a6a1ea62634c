"""The objects of a JSON array one by one, from a stream, without ever holding the array."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

_CHUNK = 1 << 22
_BOUNDARY = re.compile(rb"\}\s*(?:,\s*\{|\])")  # between two objects, or behind the last
_CLOSE = ord("]")
_value = msgspec.json.Decoder(msgspec.Raw)
_LONGEST = 1 << 26  # bytes of one object, above which the text is taken for no such array


class Broken(ValueError):
    """The text is not what it began as; the message says where."""


class Pieces:
    """A stream, by its `read` and what has been read of it already; `tail` is what was read past the last array."""

    def __init__(self, first: bytes, read: Callable[[int], bytes]) -> None:
        self._first, self._next = first, read
        self._read = len(first)
        self.tail = b""

    def more(self) -> bytes:
        """The next part of the stream; empty at its end. Raises Broken where compressed data ends early or is damaged."""
        if self._first:
            part, self._first = self._first, b""
            return part
        try:
            part = self._next(_CHUNK)
        except (OSError, EOFError) as error:
            raise Broken(f"after {self._read} bytes: {error or 'the compressed data ends early'}") from error
        except Exception as error:  # zlib.error is no OSError
            raise Broken(f"after {self._read} bytes: {error}") from error
        self._read += len(part)
        return part

    def objects(self, start: re.Pattern[bytes]) -> Iterator[bytes]:
        """The texts of the objects in the array that opens where `start` ends. An object within another is not taken apart: a text is
        given only once it is whole. Raises Broken for an array that does not end."""
        buffer = self.tail
        while (found := start.search(buffer)) is None:
            part = self.more()
            if not part:
                raise Broken("it holds no list of events")
            if len(buffer) > _LONGEST:
                raise Broken(f"no list of events in the first {_LONGEST >> 20} MiB")
            buffer += part
        yield from self._split(buffer[found.end() :])

    def _split(self, buffer: bytes) -> Iterator[bytes]:
        while not (buffer := buffer.lstrip()):
            if not (buffer := self.more()):
                raise Broken(f"the list of events is cut off at byte {self._read}")
        if buffer.startswith(b"]"):
            self.tail = buffer[1:]
            return
        begin = place = 0
        while True:
            found = _BOUNDARY.search(buffer, place)
            if found is None:
                if len(buffer) - begin > _LONGEST:
                    raise Broken(f"an event of more than {_LONGEST >> 20} MiB before byte {self._read}")
                part = self.more()
                if not part:
                    raise Broken(f"the list of events is cut off at byte {self._read}, or an event is no JSON")
                # a boundary may lie across the two parts: its bracket is looked for again
                place = max(0, max(place, buffer.rfind(b"}")) - begin)
                buffer, begin = buffer[begin:] + part, 0
                continue
            text, last = buffer[begin : found.start() + 1], buffer[found.end() - 1] == _CLOSE
            place = found.end() if last else found.end() - 1
            if _whole(text):
                yield text
                if last:
                    self.tail = buffer[place:]
                    return
                begin = place


def _whole(text: bytes) -> bool:
    """Whether the text is one JSON value: not where the boundary lies within an object, or within a string."""
    try:
        _value.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
