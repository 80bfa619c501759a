"""h11's parser, forgiving where RFC 9112 asks for it."""

import h11


class Parser(h11.Connection):
    """Takes bytes behind a client's last request for bytes ahead of a turn that never comes.

    To h11 they are an error of the request before. But there are clients that write a line end behind the body of a
    POST (RFC 9112, 2.2), also where no request can follow: on HTTP/1.0, or after `Connection: close`.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """As in h11. `PAUSED` once the last request is complete, whatever comes behind it."""
        return h11.PAUSED if self.their_state is h11.MUST_CLOSE else super().next_event()
