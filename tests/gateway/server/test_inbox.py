"""The messages that a request's application has not received yet."""

from starlette.types import Message

from gateway.server.hypercorn.inbox import Inbox

GONE = {"type": "http.disconnect", "reason": "client closed the connection"}


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_whole_body_is_taken_once() -> None:
    inbox = Inbox(1000)
    assert inbox.take_body(10) is None, "nothing has arrived"
    inbox.put(part(b"ab", more=True))
    assert inbox.take_body(10) is None, "a part is missing"
    inbox.put(part(b"cd", more=False))
    assert inbox.take_body(3) is None, "it is too large"
    assert inbox.take_body(4) == b"abcd"
    assert inbox.take_body(4) is None


def test_the_body_of_a_client_that_has_left_is_not_taken() -> None:
    inbox = Inbox(1000)
    inbox.put(part(b"ab", more=False))
    inbox.put(GONE)
    assert inbox.take_body(10) is None


def test_a_disconnect_is_called_with_its_message_also_if_it_came_before() -> None:
    inbox = Inbox(1000)
    early: list[Message] = []
    late: list[Message] = []
    inbox.on_disconnect(early.append)
    inbox.put(GONE)
    inbox.on_disconnect(late.append)
    inbox.put({"type": "http.disconnect"})
    assert early == [GONE]
    assert late == [GONE, {"type": "http.disconnect"}]
