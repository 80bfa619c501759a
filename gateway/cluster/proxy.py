"""Middleware of Ray's proxies, which runs before they read a request."""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import EngineFault
from gateway.middleware.errors import problem_for, response_for
from gateway.middleware.request_id import HEADER, request_id_from

_FOR_RAY = frozenset(
    {
        b"serve_multiplexed_model_id",
        b"x_request_disconnect_disabled",
        b"x_request_timeout_seconds",
        b"x_session_id",
    }
)
"""Headers that are orders for the proxy, with `_` for each `-`, as it reads some of them."""


class ValidHeaders:
    """Gives each request one valid id, and no header that is an order for the proxy.

    The proxy adds the id that it gets to the response, however long it is, and fails if one of these is no UTF-8.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one lifespan."""
        if "headers" in scope:
            kept = [(name, value) for name, value in scope["headers"] if not _is_replaced(name.lower())]
            scope = {**scope, "headers": [*kept, (HEADER, request_id_from(scope["headers"]).encode())]}
        await self._app(scope, receive, send)


def _is_replaced(name: bytes) -> bool:
    return name == HEADER or name.replace(b"-", b"_") in _FOR_RAY


class LostRequests:
    """Answers the requests that the proxy leaves without a response: their ingress has died."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one lifespan."""
        begun = False

        async def send_message(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        await self._app(scope, receive, send_message)
        if scope["type"] == "http" and not begun:
            fault = EngineFault("The ingress that had this request has died.", code="engine_died")
            response = response_for(problem_for(fault))
            response.headers[HEADER.decode()] = request_id_from(scope["headers"])
            await response(scope, receive, send)


def middlewares() -> list[Middleware]:
    """Return the middlewares, the outer one last: see `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`."""
    return [Middleware(LostRequests), Middleware(ValidHeaders)]
