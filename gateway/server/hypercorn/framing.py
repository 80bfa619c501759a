"""Strict reader of requests' limits in a connection's bytes (RFC 9112), in front of h11.

h11 accepts much that another server in front of this one may understand differently, and makes an event of each chunk.
It gets only bytes whose end is certain, and of a body in chunks at most one chunk for each turn.
"""

import re

from gateway.server.hypercorn.chunked import ChunkedReader
from gateway.server.hypercorn.head import CHUNKED, LINE_END, body_length, check_line_ends, malformed

LAST_CHUNK = b"0\r\n\r\n"
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_FIRST_OF_METHOD = 0x21
"""The lowest byte of a method. TLS begins with a lower one."""


class Framing:
    """Splits a connection's bytes into the head and the body of one request after the other.

    A request's bytes come from `next_part` only after `start_next`, which follows the response to the one before it.
    """

    def __init__(self, max_head: int) -> None:
        self._data = bytearray()
        self._max_head = max_head
        self._in_head = True
        self._checked = 0  # bytes of an incomplete head
        self._left = 0  # bytes of a body of known length
        self._chunks: ChunkedReader | None = None
        self._body_begun = False

    @property
    def in_body(self) -> bool:
        """True from the head of a request to the end of its body."""
        return bool(self._left) or (self._chunks is not None and not self._chunks.complete)

    @property
    def needs_turn(self) -> bool:
        """True if a part of a body was returned, and more of it can be."""
        return self.in_body and self._body_begun and bool(self._data)

    @property
    def is_between(self) -> bool:
        """True from the end of a request until `start_next`."""
        return not (self._in_head or self.in_body)

    @property
    def buffered(self) -> int:
        """Number of bytes that are not yet split."""
        return len(self._data)

    def receive(self, data: bytes) -> None:
        """Add bytes of the client."""
        self._data += data

    def start_next(self) -> None:
        """Expect the head of the next request."""
        self._in_head = True

    def next_part(self) -> bytes | None:
        """Return the next bytes for h11: a whole head, or a part of a body in one chunk. None without more bytes.

        Raises:
            h11.RemoteProtocolError: The bytes are malformed.
        """
        if self._in_head:
            return self._next_head()
        self._body_begun = True
        if self._chunks is not None:
            return self._next_chunks(self._chunks)
        return self._next_of_known_length()

    def _next_head(self) -> bytes | None:
        self._skip_empty_lines()
        end = self._data.find(2 * LINE_END, max(0, self._checked - 3))
        size = len(self._data) if end < 0 else end
        check_line_ends(self._data, self._checked, size + len(LINE_END))
        if size > self._max_head:
            raise malformed("the head is too large", status=431)
        if size and self._data[0] < _FIRST_OF_METHOD and self._data != LINE_END[:1]:
            raise malformed("no request line")
        if end < 0:
            self._checked = size
            return None
        length = body_length(bytes(self._data[:end]))
        self._in_head, self._body_begun, self._checked = False, False, 0
        self._left = max(0, length)
        self._chunks = ChunkedReader() if length == CHUNKED else None
        return self._take(end + 2 * len(LINE_END))

    def _skip_empty_lines(self) -> None:
        """Drop empty lines before a request: some clients write one behind the body of a POST (2.2)."""
        if empty := _EMPTY_LINES.match(self._data):
            del self._data[: empty.end()]

    def _next_chunks(self, chunks: ChunkedReader) -> bytes | None:
        part = b"" if chunks.complete else chunks.read(self._data)
        if part:
            return b"%x\r\n%b\r\n" % (len(part), part)
        if chunks.complete:
            self._chunks = None
            return LAST_CHUNK
        return None

    def _next_of_known_length(self) -> bytes | None:
        part = self._take(self._left)
        self._left -= len(part)
        return part or None

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken
