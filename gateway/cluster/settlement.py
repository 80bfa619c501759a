"""Responses that are complete once their charges are stored."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class SettledResponses:
    """Middleware that holds back the last message of a response until its charges are stored.

    So a response that a client has seen whole is counted, whatever happens to this process. One that is not complete is
    lost with the process, and its request runs again elsewhere or fails. Only a POST can have charges.
    """

    def __init__(self, app: ASGIApp, settled: Callable[[], Awaitable[None]]) -> None:
        """Wrap an application.

        Args:
            app: serves the requests.
            settled: waits until the charges of the requests that have ended are stored.
        """
        self._app = app
        self._settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        last: Message | None = None

        async def send_before_last(message: Message) -> None:
            nonlocal last
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                last = message
            else:
                await send(message)

        await self._app(scope, receive, send_before_last)
        await self._settled()
        if last is not None:
            await send(last)
