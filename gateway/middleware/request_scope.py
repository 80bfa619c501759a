"""Scope of one request: its body, its caller, its deadline, and its cancellation when the client hangs up."""

import logging
import math
import time
from collections.abc import Callable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.middleware import errors
from gateway.middleware.authentication import Authenticate, no_authentication
from gateway.middleware.body import ClientGoneError, body_once, read_body
from gateway.middleware.body_budget import Body, BodyBudget
from gateway.middleware.caller import (
    UNIQUE_ID,
    Caller,
    Cause,
    client_of,
    digest_of_credentials,
    new_unique_id,
    with_caller,
)
from gateway.middleware.conventions import OPENAI, Conventions
from gateway.middleware.disconnect import arrivals_of, calling_on_disconnect, read_disconnect
from gateway.middleware.exchange import MAX_CONTENT, MAX_NAME, Content, Exchange, ExchangeObserver
from gateway.middleware.limits import RequestLimits
from gateway.middleware.patience import Clock
from gateway.middleware.request_id import HEADER, current_request_id, request_id_from
from gateway.middleware.streams.direct import direct_send_of
from gateway.middleware.streams.silence import Silences

logger = logging.getLogger(__name__)


class RequestScope:
    """Middleware that runs each request in a task group, and cancels it when the client stops waiting.

    It creates the request's `Caller`, checks its API key, reads the whole body, and is then the only owner of the
    server's `receive`: a disconnect before the last byte of the response cancels the request, a later one is ignored.
    `app` receives its body once and then waits; a hang-up reaches it as cancellation.

    An exception of `app` before the head of the response becomes the error response from `errors`. A later one is
    raised: the server logs it and closes the connection.
    """

    def __init__(  # noqa: PLR0913 - parts that all requests share
        self,
        app: ASGIApp,
        limits: RequestLimits,
        *,
        conventions_for: Callable[[Scope], Conventions] = lambda _scope: OPENAI,
        authenticate: Authenticate = no_authentication,
        partition_cache: bool = False,
        budget: BodyBudget | None = None,
        clock: Clock = anyio.current_time,
        observer: ExchangeObserver | None = None,
        silences: Silences | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: Serves the requests.
            limits: Limits of each request.
            conventions_for: Returns the conventions of the API that a request belongs to.
            authenticate: Returns the API key of a request.
            partition_cache: Share cached prompts only among callers with the same credentials.
            budget: Memory of all bodies; None sets no limit.
            clock: Clock by which the time of a body is measured.
            observer: Follows every exchange; unset if nothing does.
            silences: Ends the silences of streams. Its owner opens it; None ends none.
        """
        self._app = app
        self._limits = limits
        self._conventions_for = conventions_for
        self._authenticate = authenticate
        self._partition_cache = partition_cache
        self._budget = budget or BodyBudget()
        self._clock = clock
        self._observer = observer
        self._silences = silences or Silences()
        self._keep_content = observer is not None and observer.keeps_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Waits until it has ended and has released all its resources."""
        caller = self._caller(scope)
        exchange = caller.exchange
        current_request_id.set(caller.request_id)
        if self._observer is not None:
            caller.reply_headers.extend(self._observer.begin(exchange, scope["headers"]))
        reply = Reply(send, caller)
        try:
            if (key := self._authenticate(scope)) is not None:
                caller = caller.identified(key)
            await self._read_body(scope, receive, caller)
            await self._run(with_caller(scope, caller), receive, reply)
        except ClientGoneError as gone:
            log_cancel(caller.request_id, gone.reason)
            exchange.cancelled, exchange.error = True, Cause.CLIENT_LEFT
        except Exception as error:
            if reply.begun:
                exchange.error = exchange.error or "internal_error"
                raise
            problem = caller.conventions.adapt(errors.report(error))
            exchange.error = problem.code or ""
            await errors.response_for(problem, caller.conventions.encode_error)(scope, receive, reply.send)
        finally:
            caller.release_body()
            caller.held.close()
            self._end(caller)

    def _end(self, caller: Caller) -> None:
        exchange, closing = caller.exchange, caller.closed()
        if closing.cause is not None:
            exchange.cancelled, exchange.error = True, exchange.error or closing.cause
        exchange.key = caller.key.id if caller.key is not None else ""
        exchange.received = caller.body.size
        exchange.ended_at = anyio.current_time()
        if self._observer is not None:
            self._observer.end(exchange)

    async def _read_body(self, scope: Scope, receive: Receive, caller: Caller) -> None:
        await read_body(
            scope["headers"],
            receive,
            caller.body,
            self._limits,
            deadline=caller.deadline,
            clock=self._clock,
            arrivals=arrivals_of(scope),
        )
        if (content := caller.exchange.content) is not None:
            content.request = caller.body.data[:MAX_CONTENT]

    def _caller(self, scope: Scope) -> Caller:
        timeout = self._limits.request_timeout
        request_id = request_id_from(scope["headers"])
        credentials = digest_of_credentials(scope["headers"])
        return Caller(
            request_id=request_id,
            credentials=credentials,
            client=client_of(scope, credentials),
            cache_partition=credentials if self._partition_cache else "",
            deadline=math.inf if timeout is None else anyio.current_time() + timeout,
            conventions=self._conventions_for(scope),
            exchange=_exchange(scope, request_id, Content() if self._keep_content else None),
            body=Body(self._budget),
            unique_id=scope.get(UNIQUE_ID) or new_unique_id(),
            reply_headers=[(HEADER, request_id.encode())],
            direct=direct_send_of(scope),
            silences=self._silences,
        )

    async def _run(self, scope: Scope, receive: Receive, reply: "Reply") -> None:
        caller, closing = reply.caller, reply.caller.closing
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            closing.work = work = tasks.cancel_scope
            closing.deadline = work.deadline = caller.deadline

            def leave(message: Message) -> None:
                if not (reply.complete or work.cancel_called):
                    closing.set(read_disconnect(message))
                    work.cancel()

            with calling_on_disconnect(scope, receive, leave, tasks):
                try:
                    await self._app(scope, body_once(caller.body), reply.send)
                except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                    failure = error
            work.cancel()
        if failure is None and not reply.begun:
            ended_early = caller.closed().reason
            failure = closing.error if ended_early else RuntimeError("the application ended without a response")
        if failure is not None:
            raise failure


def _exchange(scope: Scope, request_id: str, content: Content | None) -> Exchange:
    address = scope.get("client")
    return Exchange(
        request_id=request_id,
        method=scope["method"][:MAX_NAME],
        path=scope["path"][:MAX_NAME],
        scheme=scope.get("scheme", "http"),
        address=address[0] if address else "",
        began_at=anyio.current_time(),
        began_ns=time.time_ns(),
        content=content,
    )


def log_cancel(request_id: str, reason: str) -> None:
    """Log the end of a request that did not reach the engine. It held only its body, which is already released."""
    fields = {"request_id": request_id, "reason": reason, "phase": "body", "tokens": 0, "freed": 0, "ms": 0.0}
    logger.info("request cancelled", extra=fields)


class Reply:
    """Progress of the response to one request."""

    def __init__(self, send: Send, caller: Caller) -> None:
        self.caller = caller
        """Caller that provides the `reply_headers` of the head."""
        self.begun = False
        """True once the head, with the status, was sent."""
        self.complete = False
        """True once the last byte was passed to the server."""
        self._send = send

    async def send(self, message: Message) -> None:
        """Send a message as ASGI's `send` does, and add the caller's headers to the head."""
        if message["type"] == "http.response.start":
            self.begun = True
            self.caller.exchange.status = message["status"]
            logger.debug("response begins", extra={"status": message["status"]})
            headers = [*message.get("headers", ()), *self.caller.reply_headers]
            message = {**message, "headers": [*headers, *self.caller.conventions.headers(headers)]}
        elif message["type"] == "http.response.body":
            self.caller.exchange.count_sent(message.get("body", b""))
            if not message.get("more_body", False):
                self.complete = True
                self.caller.closing.lift_deadline()
        await self._send(message)
