"""One request's scope: its body, its id, its deadline, and its end when the client goes away."""

import logging
import math

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.middleware import errors as problems
from gateway.middleware import request_id as ids
from gateway.middleware.body import ClientGoneError, body_once, read_body
from gateway.middleware.closing import Closing, read_disconnect
from gateway.middleware.errors import DEADLINE_PASSED, RefusedError
from gateway.middleware.limits import RequestLimits

logger = logging.getLogger(__name__)


class RequestScope:
    """Runs each request of `app` in a task group that ends when nobody waits for the response any more.

    The outermost layer. It reads the whole body first, then is the only owner of the server's `receive`: a disconnect
    before the response's last byte cancels the request, one after it cancels nothing. `app` receives its body once
    and then waits; a hang-up reaches it as cancellation.

    It gives `app` in `scope["state"]`:

    - `request_id`: also a context variable, and a header of every response;
    - `closing`: a `Closing`, which says why the request is being cancelled;
    - `reply_headers`: a list, to which it may add headers that every response to this request is to carry.

    An exception of `app` before the response's head becomes the response that `problems` has for it. A later one goes
    out as it is: the server logs it and closes the connection.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Waits until it is over and everything it held is released."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        timeout = self._limits.request_timeout
        deadline = math.inf if timeout is None else anyio.current_time() + timeout
        request_id = ids.of(scope["headers"])
        ids.request_id.set(request_id)
        reply = Reply(send, request_id)
        try:
            body = await read_body(scope["headers"], receive, self._limits, deadline)
            await self._run(scope, body, receive, reply, deadline)
        except ClientGoneError as gone:
            log_cancel(request_id, gone.reason)
        except Exception as error:
            if reply.begun:
                raise
            await problems.report(error).response()(scope, receive, reply.send)

    async def _run(self, scope: Scope, body: bytes, receive: Receive, reply: "Reply", deadline: float) -> None:
        closing = Closing()
        own = {"request_id": reply.request_id, "closing": closing, "reply_headers": reply.headers}
        scope["state"] = {**scope.get("state", {}), **own}
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                reason, error = await end_of_waiting(receive, deadline)
                if not reply.complete:
                    closing.reason, closing.error = reason, error
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                await self._app(scope, body_once(body), reply.send)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error  # leaves the task group bare, so that whoever handles it finds it by its type
            tasks.cancel_scope.cancel()
        if failure is None and not reply.begun:
            failure = closing.error if closing.reason else RuntimeError("the application ended without a response")
        if failure is not None:
            raise failure


async def end_of_waiting(receive: Receive, deadline: float) -> tuple[str, Exception | None]:
    """Wait until nobody waits for the response: say who ended it, and what the client is told if it still listens."""
    with anyio.CancelScope(deadline=deadline):
        while (message := await receive())["type"] != "http.disconnect":
            pass
        return read_disconnect(message)
    return "the request's deadline passed", RefusedError(DEADLINE_PASSED)


def log_cancel(request_id: str, reason: str) -> None:
    """The line of a request that ended before the engine had it: it held its body, and that is gone already."""
    fields = {"request_id": request_id, "reason": reason, "phase": "body", "tokens": 0, "freed": 0, "ms": 0.0}
    logger.info("request cancelled", extra=fields)


class Reply:
    """The response as far as it went.

    Attributes:
        headers: what its head carries besides its own headers: the request's id, and more if somebody adds it.
        begun: whether its head was sent, and with it the status.
        complete: whether its last byte was handed to the server.
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.headers: list[tuple[bytes, bytes]] = [(ids.HEADER, request_id.encode())]
        self.begun = False
        self.complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        """ASGI's `send`; adds to the headers."""
        if message["type"] == "http.response.start":
            self.begun = True
            logger.debug("response begins", extra={"status": message["status"]})
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
        await self._send(message)
