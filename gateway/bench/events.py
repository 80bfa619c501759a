"""Parser of server-sent events, without I/O."""


class EventReader:
    """Incremental parser that returns the data of each event.

    Other fields are ignored, and so are comments, which servers send to keep a connection open. Follows
    https://html.spec.whatwg.org/multipage/server-sent-events.html, except for lines that end with a single CR.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Parse the next bytes and return the data of the events that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removesuffix(b"\r").removeprefix(b" "))
            elif self._data and (not line or line == b"\r"):
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events
