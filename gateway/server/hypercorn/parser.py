"""h11's parser, tolerant where RFC 9112 asks for it."""

import h11
from typing_extensions import override


class Parser(h11.Connection):
    """Parser that treats bytes behind a client's last request as pipelined bytes, which it never parses.

    h11 treats them as an error of the previous request. But some clients write a line end behind the body of a POST
    (RFC 9112, 2.2), even where no request can follow: on HTTP/1.0, or after `Connection: close`.
    """

    @override
    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return `PAUSED` once the last request is complete, even if bytes follow it. Otherwise return h11's event."""
        return h11.PAUSED if self.their_state is h11.MUST_CLOSE else super().next_event()
