"""What may be answered instead of what was asked for."""

from collections.abc import Mapping
from http import HTTPStatus

from gateway.apis.endpoint import Described

REASONS = {
    400: "The request is wrong, or asks for what this model or server cannot do: `param` names the field at fault.",
    403: "A web page of an origin that the operator has not allowed sent it.",
    404: "There is no such model, or no such response is stored.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "The queue is full.",
    431: "The request's line and headers are too large.",
    500: "The server failed. If the request were sent again, it would probably fail again.",
    501: "The body's transfer encoding is not known here.",
    503: "The engine is not ready, the request waited too long for a slot, or the server is stopping.",
    504: "The request took longer than the operator allows.",
    505: "This is not HTTP/1.1 or HTTP/1.0.",
}
PROTOCOL = frozenset({431, 501, 505})
"""Told before it is known what is asked for, always in the same shape. So are some of 400."""

EVERYWHERE = frozenset({400, 403, 408, 413, 500, 503, 504}) | PROTOCOL
"""Statuses that any route may have: all of them read the body, if there is one, and check the origin."""

HEADERS: Mapping[str, Described] = {
    "x-request-id": {
        "description": "The client's own id if it sent a printable one of at most 128 characters, else a fresh one.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "x-llama-gateway-ignored": {
        "description": "Fields of the body that this server does not know.",
        "schema": {"type": "string"},
    },
    "retry-after": {"description": "In seconds.", "schema": {"type": "integer", "minimum": 0}},
    "retry-after-ms": {"description": "In milliseconds.", "schema": {"type": "integer", "minimum": 0}},
    "x-should-retry": {
        "description": "Where it would fail again; OpenAI's clients then do not try.",
        "schema": {"const": "false", "type": "string"},
    },
}
_ALWAYS = ("x-request-id", "x-llama-gateway-ignored")
_OF_STATUS = {
    429: ("retry-after", "retry-after-ms"),
    503: ("retry-after", "retry-after-ms", "x-should-retry"),
    **dict.fromkeys((431, 500, 501, 504, 505, 400), ("x-should-retry",)),
}


def headers(status: int = HTTPStatus.OK) -> Described:
    """References to the headers that responses of a status may have."""
    names = (*_ALWAYS, *_OF_STATUS.get(status, ()))
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def failure(status: int, schema: Described) -> Described:
    """The response of a status, whose body has this shape."""
    content = {"application/json": {"schema": schema}}
    return {"description": REASONS[status], "headers": headers(status), "content": content}
