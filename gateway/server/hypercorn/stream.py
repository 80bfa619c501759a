"""Hypercorn's stream of one request and its response, with a short way for the parts of a body."""

from collections.abc import Awaitable, Callable

from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGISendEvent, HTTPResponseBodyEvent
from hypercorn.utils import suppress_body
from typing_extensions import override


class Stream(HTTPStream):
    """One request and its response. Each token of an answer may be a part of its body."""

    send_part: Callable[[bytes], Awaitable[None]]
    """Sends a part of a body that is not its end. It has some bytes."""

    @override
    async def app_send(self, message: ASGISendEvent | None) -> None:
        if message is None or message["type"] != "http.response.body" or not self._is_part(message):
            await super().app_send(message)
        else:
            await self.send_part(message["body"])

    def _is_part(self, message: HTTPResponseBodyEvent) -> bool:
        return bool(
            message.get("more_body")
            and message.get("body")
            and self.state is ASGIHTTPState.RESPONSE
            and not suppress_body(self.scope["method"], self.response["status"])
        )
