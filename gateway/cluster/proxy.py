"""Middleware of Ray's proxies, which runs before they read a request."""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.middleware.request_id import HEADER, request_id_from


class ValidRequestIds:
    """Gives each request one valid id.

    The proxy adds the id that it gets to the response, however long it is, and fails if it is no UTF-8.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one lifespan."""
        if "headers" in scope:
            others = [(name, value) for name, value in scope["headers"] if name.lower() != HEADER]
            scope = {**scope, "headers": [*others, (HEADER, request_id_from(scope["headers"]).encode())]}
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """Return the middlewares: see `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`."""
    return [Middleware(ValidRequestIds)]
