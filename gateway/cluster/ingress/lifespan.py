"""An ASGI application that is open between the lifespan events of its server."""

from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.cluster.health import UnhealthyError


class WithLifespan:
    """Opens an application at the start of its server, and closes it at the end. What the start raises is raised."""

    def __init__(self, opening: AbstractAsyncContextManager[ASGIApp]) -> None:
        self._opening = opening
        self._app: ASGIApp
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open and close the application, or serve one request."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        try:
            async with self._opening as self._app:
                await send({"type": "lifespan.startup.complete"})
                await receive()
        finally:
            self._ended = True
        await send({"type": "lifespan.shutdown.complete"})

    def check(self) -> None:
        """Check that the application has not ended. The server does not, and would go on to send it requests.

        Raises:
            UnhealthyError: it has ended, because it failed or was closed.
        """
        if self._ended:
            raise UnhealthyError("The application of this ingress has ended.")
