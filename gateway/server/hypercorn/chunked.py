"""Reader of a body in chunks (RFC 9112, 7.1) that joins them: a chunk costs a match, and not an event."""

import re

from gateway.server.hypercorn.head import LINE_END, check_line_ends, malformed, parse_fields

CHUNKS_PER_TURN = 512
"""Maximum number of chunks that one call reads, so that tiny chunks do not hold up the event loop."""
MAX_LINE = 1024
"""Maximum bytes of the line before a chunk: its size and its extensions."""
MAX_EXTENSIONS = 16 * 1024
"""Maximum bytes of all extensions of one body."""
MAX_TRAILERS = 16 * 1024
"""Maximum bytes of the trailer section."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_EXTENSION = rb"[ \t]*;[ \t]*%b(?:[ \t]*=[ \t]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})((?:%b)*)\r\n" % _EXTENSION)


class ChunkedReader:
    """Removes chunks from the received bytes. Extensions and trailers are checked and dropped."""

    def __init__(self) -> None:
        self.complete = False
        """True once the whole body, with its trailers, was read."""
        self._left = 0  # bytes of the current chunk
        self._in_chunk = False  # until the line end behind the chunk was read
        self._in_trailers = False
        self._extensions = 0  # bytes

    def read(self, data: bytearray) -> bytes:
        """Remove chunks from the start of `data`, at most `CHUNKS_PER_TURN`, and return their bytes joined.

        Raises:
            h11.RemoteProtocolError: The bytes are malformed.
        """
        parts: list[bytearray] = []
        position = 0
        for _ in range(CHUNKS_PER_TURN):
            if not self._in_chunk:
                start = position
                position = self._begin(data, start)
                if position == start or self._in_trailers:
                    break
            part = data[position : position + self._left]
            parts.append(part)
            position += len(part)
            self._left -= len(part)
            if self._left or not self._ends(data, position):
                break
            position += len(LINE_END)
        del data[:position]
        if self._in_trailers:
            self._read_trailers(data)
        return b"".join(parts)

    def _begin(self, data: bytearray, start: int) -> int:
        """Read the line before a chunk. Returns the position behind it, or `start` if the line is incomplete."""
        if self._in_trailers:
            return start
        line = _CHUNK_LINE.match(data, start, start + MAX_LINE)
        if line is None:
            _check_incomplete(data[start : start + MAX_LINE])
            return start
        self._extensions += len(line[2])
        if self._extensions > MAX_EXTENSIONS:
            raise malformed("too many chunk extensions")
        self._left = int(line[1], 16)
        self._in_trailers = not self._left
        self._in_chunk = not self._in_trailers
        return line.end()

    def _ends(self, data: bytearray, position: int) -> bool:
        """Return True if the chunk's data is followed by a line end, and False if that may still come."""
        end = data[position : position + len(LINE_END)]
        if not LINE_END.startswith(end):
            raise malformed("no line end behind a chunk")
        self._in_chunk = len(end) < len(LINE_END)
        return not self._in_chunk

    def _read_trailers(self, data: bytearray) -> None:
        if data.startswith(LINE_END):
            self.complete = True
            del data[: len(LINE_END)]
            return
        end = data.find(2 * LINE_END)
        size = len(data) if end < 0 else end
        if size > MAX_TRAILERS:
            raise malformed("the trailers are too large", status=431)
        check_line_ends(data, 0, size + len(LINE_END))
        if end >= 0:
            parse_fields(bytes(data[:end]).split(LINE_END))
            self.complete = True
            del data[: end + 2 * len(LINE_END)]


def _check_incomplete(line: bytearray) -> None:
    """Check that more bytes can complete the line before a chunk."""
    check_line_ends(line)
    if LINE_END in line or len(line) == MAX_LINE:
        raise malformed("an illegal chunk line")
