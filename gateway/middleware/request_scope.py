"""One request's scope: its body, its caller, its deadline, and its end when the client goes away."""

import logging
import math
from collections.abc import Callable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.middleware import errors
from gateway.middleware.body import ClientGoneError, body_once, read_body
from gateway.middleware.caller import Caller, digest_of_credentials, with_caller
from gateway.middleware.disconnect import read_disconnect
from gateway.middleware.errors import DEADLINE_PASSED, EncodeError, RefusedError, encode_error
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_id import HEADER, current_request_id, request_id_from

logger = logging.getLogger(__name__)


def _openai_shape(_path: str) -> EncodeError:
    return encode_error


class RequestScope:
    """Runs each request of `app` in a task group that ends when the client no longer waits for the response.

    The outermost layer. It makes the request's `Caller`, reads the whole body, then is the only owner of the server's
    `receive`: a disconnect before the response's last byte cancels the request, one after it cancels nothing. `app`
    receives its body once and then waits; a hang-up reaches it as cancellation.

    An exception of `app` before the response's head becomes the response that `errors` has for it. A later one is
    raised: the server logs it and closes the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: RequestLimits,
        *,
        encoder_for: Callable[[str], EncodeError] = _openai_shape,
        partition_cache: bool = False,
    ) -> None:
        """Wrap an application.

        Args:
            app: serves the requests.
            limits: of each request.
            encoder_for: the error shape of the API that a path belongs to.
            partition_cache: whether only callers with the same credentials share cached prompts.
        """
        self._app = app
        self._limits = limits
        self._encoder_for = encoder_for
        self._partition_cache = partition_cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Waits until it is over and everything it held is released."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = self._caller(scope)
        current_request_id.set(caller.request_id)
        reply = Reply(send, caller)
        try:
            body = await read_body(scope["headers"], receive, self._limits, caller.deadline)
            await self._run(with_caller(scope, caller), body, receive, reply)
        except ClientGoneError as gone:
            log_cancel(caller.request_id, gone.reason)
        except Exception as error:
            if reply.begun:
                raise
            response = errors.response_for(errors.report(error), caller.encode_error)
            await response(scope, receive, reply.send)

    def _caller(self, scope: Scope) -> Caller:
        timeout = self._limits.request_timeout
        request_id = request_id_from(scope["headers"])
        credentials = digest_of_credentials(scope["headers"])
        return Caller(
            request_id=request_id,
            credentials=credentials,
            cache_partition=credentials if self._partition_cache else "",
            deadline=math.inf if timeout is None else anyio.current_time() + timeout,
            encode_error=self._encoder_for(scope["path"]),
            reply_headers=[(HEADER, request_id.encode())],
        )

    async def _run(self, scope: Scope, body: bytes, receive: Receive, reply: "Reply") -> None:
        closing = reply.caller.closing
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                reason, error = await wait_for_closing(receive, reply.caller.deadline)
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


async def wait_for_closing(receive: Receive, deadline: float) -> tuple[str, Exception | None]:
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
    """The response as far as it went."""

    def __init__(self, send: Send, caller: Caller) -> None:
        self.caller = caller
        """Whose `reply_headers` the head carries."""
        self.begun = False
        """Whether the head was sent, and with it the status."""
        self.complete = False
        """Whether the last byte was handed to the server."""
        self._send = send

    async def send(self, message: Message) -> None:
        """Send as ASGI's `send`, and add the caller's headers to the head."""
        if message["type"] == "http.response.start":
            self.begun = True
            logger.debug("response begins", extra={"status": message["status"]})
            message = {**message, "headers": [*message.get("headers", ()), *self.caller.reply_headers]}
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
        await self._send(message)
