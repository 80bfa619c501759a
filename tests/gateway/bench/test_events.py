"""The parser of event streams."""

import pytest

from gateway.bench.events import EventReader

STREAM = (
    b": keep-alive\n\ndata: one\n\nevent: x\ndata:two\ndata: lines\nid: 7\n\n\n: again\n\ndata:  three\n\ndata: cut"
)
EVENTS = [b"one", b"two\nlines", b" three"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_events_are_the_same_at_any_cut(line_end: bytes, size: int) -> None:
    wire = STREAM.replace(b"\n", line_end)
    reader = EventReader()
    found = [event for at in range(0, len(wire), size) for event in reader.feed(wire[at : at + size])]
    assert found == EVENTS
