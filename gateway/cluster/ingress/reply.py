"""Response of the ingress, which knows whether a client would notice that it begins again."""

import orjson
from starlette.types import Message, Send

from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem
from gateway.middleware.request_id import HEADER
from gateway.middleware.streams.sse import EVENTS, LINES

_EVENTS, _LINES = b"text/event-stream", b"application/x-ndjson"
_PINGS = (b":", b"event: ping\n")
"""Beginnings of events that say nothing of the answer: comments, and the events of Anthropic's API instead of them."""


class ReplayableReply:
    """Holds the head back until there is something of the body, and counts what a client would miss or see twice.

    Pings of a stream are sent at once. They keep a connection open, and say nothing of the answer.
    """

    def __init__(self, send: Send, caller: Caller) -> None:
        self.shown = False
        """True once a part of the answer was sent. The request must not run again then."""
        self.begun = False
        """True once the head was sent."""
        self._send = send
        self._caller = caller
        self._head: Message = {}
        self._sent: Message = {}

    async def send(self, message: Message) -> None:
        """Send a message of a replica's response.

        Raises:
            ConflictError: the client has the head of another response already.
        """
        if message["type"] == "http.response.start":
            self._head = message
            if self.begun and _kind(message) != _kind(self._sent):
                raise ConflictError
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not body and more:
            return
        self.shown = self.shown or not more or not self._is_ping(body)
        await self._begin()
        await self._send(message)

    async def fail(self, problem: Problem) -> bool:
        """End a stream with an error event. Returns False if the response has no place for one."""
        media, error = _kind(self._sent)[1], self._caller.conventions.encode_error(problem)
        if media.startswith(_EVENTS):
            name = b"event: error\n" if orjson.loads(error).get("type") == "error" else b""  # for Anthropic's clients
            event = name + EVENTS.failure % error
        elif media.startswith(_LINES):
            event = LINES.failure % error
        else:
            return False
        await self._send({"type": "http.response.body", "body": event, "more_body": False})
        return True

    async def _begin(self) -> None:
        if not self.begun:
            self.begun, self._sent = True, self._head
            headers = [(name, value) for name, value in self._head.get("headers", ()) if name.lower() != HEADER]
            await self._send({**self._head, "headers": headers})

    def _is_ping(self, body: bytes) -> bool:
        media = _kind(self._head)[1]
        if media.startswith(_LINES):
            return body == LINES.ping
        one = body.endswith(b"\n\n") and body.count(b"\n\n") == 1
        return media.startswith(_EVENTS) and one and body.startswith(_PINGS)


class ConflictError(Exception):
    """A replayed request has another kind of response than the one whose head the client has."""


def _kind(head: Message) -> tuple[int, bytes]:
    """Return the status and the media type of a response."""
    headers = dict(head.get("headers", ()))
    return head.get("status", 0), headers.get(b"content-type", b"")
