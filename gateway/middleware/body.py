"""Reader of a request's body, with limits on its size and its time."""

import math
from collections.abc import Iterable
from dataclasses import replace

import anyio
from starlette.types import Message, Receive

from gateway.middleware.disconnect import read_disconnect
from gateway.middleware.errors import CLOSE, DEADLINE_PASSED, Problem, RefusedError
from gateway.middleware.limits import RequestLimits

DEADLINE_PASSED_IN_BODY = replace(DEADLINE_PASSED, headers={**DEADLINE_PASSED.headers, **CLOSE})


class ClientGoneError(Exception):
    """The client hung up before its body was complete."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """Side that closed the connection, and the reason, for the log."""


async def read_body(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, limits: RequestLimits, deadline: float = math.inf
) -> bytes:
    """Wait for the whole body, at most until the request's own deadline, and return it.

    Raises:
        RefusedError: A limit was passed (413, 408 or 504).
        ClientGoneError: The client hung up.
        engine.errors.Unavailable: The server shut down first.
    """
    if declared_length(headers) > limits.body:
        raise too_large(limits)
    with anyio.CancelScope(deadline=deadline), anyio.move_on_after(limits.body_timeout) as timeout:
        return await collect(receive, limits)
    raise too_slow(limits) if timeout.cancelled_caught else RefusedError(DEADLINE_PASSED_IN_BODY)


async def collect(receive: Receive, limits: RequestLimits) -> bytes:
    """Wait for all parts of the body and return them joined. Raises as `read_body` does, except for timeouts."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            reason, error = read_disconnect(message)
            raise error or ClientGoneError(reason)
        body += message.get("body", b"")
        if len(body) > limits.body:
            raise too_large(limits)
        more = message.get("more_body", False)
    return bytes(body)


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the value of `content-length`, or 0 without one. The HTTP parser has checked that it is a number."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)


def too_large(limits: RequestLimits) -> RefusedError:
    """Return the refusal of a body over its limit."""
    message = f"The body is larger than {limits.body} bytes."
    return RefusedError(Problem(status=413, message=message, code="request_too_large", headers=CLOSE))


def too_slow(limits: RequestLimits) -> RefusedError:
    """Return the refusal of a body that does not arrive in time."""
    message = f"The body did not arrive within {limits.body_timeout:g} seconds."
    return RefusedError(Problem(status=408, message=message, code="request_timeout", headers=CLOSE))


def body_once(body: bytes) -> Receive:
    """Return a `receive` for the application that returns the body once and then waits until it is cancelled.

    A hang-up reaches the application as this cancellation.
    """
    unread = [body]

    async def receive() -> Message:
        if not unread:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    return receive
