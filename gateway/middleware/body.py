"""Reader of a request's body, with limits on its size, its time, and the memory of all bodies."""

import math
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO

import anyio
from starlette.types import Message, Receive

from gateway.middleware.body_budget import FREE, Body
from gateway.middleware.caller import Closing
from gateway.middleware.disconnect import Arrivals, read_disconnect, wait_for_disconnect
from gateway.middleware.errors import CLOSE, DEADLINE_PASSED, SERVER, Problem, RefusedError, retry_after
from gateway.middleware.limits import RequestLimits
from gateway.middleware.patience import Clock, Patience, PatienceError

NO_MEMORY = Problem(
    status=503,
    message="Too many large requests are being read. Please try again.",
    type=SERVER,
    code="body_budget_exhausted",
    headers={**retry_after(2), **CLOSE},
)
DEADLINE_PASSED_IN_BODY = replace(DEADLINE_PASSED, headers={**DEADLINE_PASSED.headers, **CLOSE})


class ClientGoneError(Exception):
    """The client hung up before its body was complete."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """Side that closed the connection, and the reason, for the log."""


async def read_body(
    headers: Iterable[tuple[bytes, bytes]],
    receive: Receive,
    body: Body,
    limits: RequestLimits,
    *,
    deadline: float = math.inf,
    clock: Clock = anyio.current_time,
    arrivals: Arrivals | None = None,
) -> None:
    """Wait for the whole body, at most until the request's own deadline, and store it in `body`.

    With `arrivals`, a small body that has arrived as a whole is stored at once, and a hang-up also ends the wait for
    the budget, in which no message is received. Neither this wait nor a stall of the event loop counts as the client's
    time.

    Raises:
        RefusedError: The body is compressed (415), or a limit was passed (413, 408, 503 or 504).
        ClientGoneError: The client hung up.
        engine.errors.Unavailable: The server shut down first.
    """
    if encoding := content_encoding(headers):
        raise compressed(encoding)
    if declared_length(headers) > limits.body:
        raise too_large(limits)
    if arrivals is not None and (data := arrivals.take_body(min(FREE, limits.body))) is not None:
        body.store(data)
        return
    with anyio.CancelScope(deadline=deadline):
        try:
            await _collect(receive, body, limits, Patience(limits.body_timeout, clock), arrivals)
        except PatienceError:
            raise too_slow(limits) from None
        return
    raise RefusedError(DEADLINE_PASSED_IN_BODY)


async def _collect(
    receive: Receive, body: Body, limits: RequestLimits, client: Patience, arrivals: Arrivals | None
) -> None:
    """Receive all parts of the body. The buffer of `BytesIO` becomes the whole body without a copy."""
    data = BytesIO()
    more = True
    while more:
        message = await client.wait(receive)
        if message["type"] == "http.disconnect":
            raise _gone(read_disconnect(message))
        part = message.get("body", b"")
        if data.tell() + len(part) > limits.body:
            raise too_large(limits)
        if not await _grow(body, len(part), limits, client, arrivals):
            raise _gone(read_disconnect(await wait_for_disconnect(receive)))
        data.write(part)
        more = message.get("more_body", False)
    body.complete(data.getvalue())


def _gone(closing: Closing) -> Exception:
    return closing.error or ClientGoneError(closing.reason)


async def _grow(body: Body, size: int, limits: RequestLimits, client: Patience, arrivals: Arrivals | None) -> bool:
    """Wait until the budget has room for a part. The client gets this time in addition. Returns False at a hang-up."""
    begun = anyio.current_time()
    with anyio.CancelScope() as until_disconnect:
        if arrivals is not None:
            arrivals.on_disconnect(lambda _message: until_disconnect.cancel())
        with anyio.move_on_after(limits.memory_timeout):
            await body.grow(size)
            client.extend(anyio.current_time() - begun)
            return True
        raise RefusedError(NO_MEMORY)
    return False


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the value of `content-length`, or 0 without one. The HTTP parser has checked that it is a number."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)


def content_encoding(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the value of `content-encoding`, or "" without one."""
    value = next((value for name, value in headers if name.lower() == b"content-encoding"), b"").decode("latin-1")
    return "" if value.strip().lower() == "identity" else value


def compressed(encoding: str) -> RefusedError:
    """Return the refusal of a compressed body."""
    message = f"This server reads no compressed bodies; this one has the content-encoding {encoding[:64]!r}."
    headers = {"accept-encoding": "identity", **CLOSE}
    return RefusedError(Problem(status=415, message=message, code="unsupported_encoding", headers=headers))


def too_large(limits: RequestLimits) -> RefusedError:
    """Return the refusal of a body over its limit."""
    message = f"The body is larger than {limits.body} bytes."
    return RefusedError(Problem(status=413, message=message, code="request_too_large", headers=CLOSE))


def too_slow(limits: RequestLimits) -> RefusedError:
    """Return the refusal of a body that does not arrive in time."""
    message = f"The body did not arrive within {limits.body_timeout:g} seconds."
    return RefusedError(Problem(status=408, message=message, code="request_timeout", headers=CLOSE))


def body_once(body: Body) -> Receive:
    """Return a `receive` for the application that returns the body once and then waits until it is cancelled.

    A hang-up reaches the application as this cancellation. Once the application has received the body, only `body` and
    the application keep its bytes.
    """
    received = False

    async def receive() -> Message:
        nonlocal received
        if received:
            await anyio.sleep_forever()
        received = True
        return {"type": "http.request", "body": body.data, "more_body": False}

    return receive
