"""Failures of `/generate`, in the envelope of its answers."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.apis.generate import PATH
from gateway.middleware.errors import Problem

FIRST_FAILURE = 400
JSON_TYPE = (b"content-type", b"application/json")


def failure(error: bytes) -> bytes:
    """The envelope of a failure, given the JSON object `{"error": {...}}`."""
    return b'{"success":false,' + error[1:]


def error_event(problem: Problem) -> bytes:
    """The event that ends a stream which failed."""
    return b"data: %b\n\n" % failure(problem.body())


class FailureEnvelope:
    """Puts the failures of this route into its envelope, wherever they come from. Belongs around `RequestScope`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == PATH:
            send = _FailureSender(send).send
        await self._app(scope, receive, send)


def is_failure(head: Message) -> bool:
    """Whether a response starts here whose body is a JSON object `{"error": {...}}`."""
    return head["status"] >= FIRST_FAILURE and JSON_TYPE in head["headers"]


class _FailureSender:
    """Holds a failure's head back until its one body message is there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start" and is_failure(message):
            self._head = message
            return
        if self._head is not None:
            body = failure(message["body"])
            length = (b"content-length", b"%d" % len(body))
            headers = [length if name == b"content-length" else (name, value) for name, value in self._head["headers"]]
            await self._send({**self._head, "headers": headers})
            self._head, message = None, {**message, "body": body}
        await self._send(message)
