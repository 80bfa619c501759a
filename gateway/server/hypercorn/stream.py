"""Hypercorn's stream of one request and its response, with short ways for the parts of a body."""

from typing import TYPE_CHECKING, Protocol, cast

import anyio.lowlevel
from hypercorn.protocol.events import Event, Request
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGISendEvent, HTTPDisconnectEvent, HTTPResponseBodyEvent
from hypercorn.utils import suppress_body
from typing_extensions import override

from gateway.middleware.streams.direct import EXTENSION, DirectSend

if TYPE_CHECKING:
    from starlette.types import Scope


class Parts(Protocol):
    """Sends the parts of a response's body, which are not empty and not its end."""

    async def send_part(self, data: bytes) -> None:
        """Send a part. May wait for the client."""

    @property
    def takes_parts(self) -> bool:
        """True if the client has taken the head of a chunked response and all parts of its body so far."""

    def offer_part(self, data: bytes) -> None:
        """Send a part at once. Call it only if the response `takes_parts`."""


class Stream(HTTPStream, DirectSend):
    """One request and its response. Each token of an answer may be a part of its body."""

    parts: Parts
    """Connection of the request."""

    @override
    async def handle(self, event: Event) -> None:
        await super().handle(event)
        if isinstance(event, Request) and not self.closed:
            cast("Scope", self.scope)["extensions"][EXTENSION] = self  # the application has not begun yet

    async def refuse_body(self, reason: str, status: int) -> None:
        """Let the application, which has not answered, answer a malformed body with this status."""
        message = {"type": "http.disconnect", "reason": reason, "status": status}
        if self.app_put is not None:
            await self.app_put(cast("HTTPDisconnectEvent", message))

    @override
    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Send a message. After a disconnect it only yields, so that an application that goes on can be cancelled."""
        if self.closed and message is not None:
            await anyio.lowlevel.checkpoint()
        elif message is None or message["type"] != "http.response.body" or not self._is_part(message):
            await super().app_send(message)
        else:
            await self.parts.send_part(message["body"])

    @property
    @override
    def ready(self) -> bool:
        return self._has_body and self.parts.takes_parts

    @override
    def offer(self, data: bytes) -> None:
        self.parts.offer_part(data)

    @property
    def _has_body(self) -> bool:
        """True within a response whose body the client gets."""
        responds = self.state is ASGIHTTPState.RESPONSE
        return responds and not suppress_body(self.scope["method"], self.response["status"])

    def _is_part(self, message: HTTPResponseBodyEvent) -> bool:
        return bool(message.get("more_body") and message.get("body") and self._has_body)
