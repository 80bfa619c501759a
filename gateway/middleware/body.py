"""A request's body: whole, in time, and within its limit, or refused."""

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
    """The client hung up before its body was complete.

    Attributes:
        reason: for the log: who closed it and why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def read_body(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, limits: RequestLimits, deadline: float = math.inf
) -> bytes:
    """Wait for the whole body, until the request's own deadline at most.

    Raises `RefusedError` (413, 408, 504) where a limit is passed, `ClientGoneError` where the client hung up, and
    `engine.errors.Unavailable` where the server ends first.
    """
    if declared_length(headers) > limits.body:
        raise too_large(limits)
    with anyio.CancelScope(deadline=deadline), anyio.move_on_after(limits.body_timeout) as timeout:
        return await collect(receive, limits)
    raise too_slow(limits) if timeout.cancelled_caught else RefusedError(DEADLINE_PASSED_IN_BODY)


async def collect(receive: Receive, limits: RequestLimits) -> bytes:
    """The body's parts, joined."""
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
    """What `content-length` says; 0 without one. The HTTP parser has checked that it is a number."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)


def too_large(limits: RequestLimits) -> RefusedError:
    """The refusal of a body over its limit."""
    message = f"The body is larger than {limits.body} bytes."
    return RefusedError(Problem(status=413, message=message, code="request_too_large", headers=CLOSE))


def too_slow(limits: RequestLimits) -> RefusedError:
    """The refusal of a body that does not arrive."""
    message = f"The body did not arrive within {limits.body_timeout:g} seconds."
    return RefusedError(Problem(status=408, message=message, code="request_timeout", headers=CLOSE))


def body_once(body: bytes) -> Receive:
    """ASGI's `receive` for the application: the body, then nothing for ever; a hang-up arrives as cancellation."""
    unread = [body]

    async def receive() -> Message:
        if not unread:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    return receive
