"""A whole JSON answer."""

from http import HTTPStatus

import orjson
from starlette.responses import Response


def json_reply(content: object, status: int = HTTPStatus.OK) -> Response:
    """Return a response with `content`, which may hold dataclasses, as its JSON body."""
    return Response(orjson.dumps(content), status, media_type="application/json")
