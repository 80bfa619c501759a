"""Tiny ASGI applications that record their events."""

from dataclasses import dataclass, field

import anyio
from starlette.types import Message, Receive, Scope, Send

from gateway.middleware.caller import Closing, caller_of
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope

OK: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


def chunk(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Echo the request's path and body."""
    body = (await receive())["body"]
    await send(OK)
    await send(chunk(scope["path"].encode() + b" " + body, more=False))


@dataclass
class Probe:
    """Waits for ever, streaming or not, until it is cancelled."""

    stream: bool = False
    entered: anyio.Event = field(default_factory=anyio.Event)
    """Set once a request has arrived."""
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    """Set once the task is cancelled; `closing` then has the reason."""
    closing: Closing = field(default_factory=Closing)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.closing = caller_of(scope).closing
        self.entered.set()
        try:
            if self.stream:
                await send(OK)
                await send(chunk(b"begun"))
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise


async def ticker(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Stream numbers until the client is gone."""
    await send(OK)
    number = 0
    while True:
        await send(chunk(b"%d\n" % number))
        number += 1
        await anyio.sleep(0.001)


def scoped(app: object, **limits: object) -> RequestScope:
    return RequestScope(app, RequestLimits(**limits))  # type: ignore[arg-type]


async def cut_short(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Fail inside the response."""
    await send(OK)
    await send(chunk(b"so far"))
    raise ValueError
