"""Error statuses and response headers of the OpenAPI document."""

from collections.abc import Mapping
from http import HTTPStatus

from gateway.apis.endpoint import Described

DESCRIPTIONS = {
    400: "The request is invalid, or this model or server does not support it. `param` names the field.",
    401: "The request has no valid API key, and this server needs one.",
    403: "The API key may not use the model, models may not be pulled or deleted, or the request comes from a web page "
    "whose origin is not allowed.",
    404: "The model does not exist, or the response is not stored.",
    408: "The request body did not arrive in time.",
    413: "The request body is too large.",
    415: "The request body is compressed.",
    429: "The queue is full, a limit of the API key is reached, or the client has too many background responses.",
    431: "The request line and the headers are larger than 64 KiB, or there are more than 128 headers or trailers.",
    500: "Internal server error. A retry would probably fail again.",
    501: "The transfer encoding of the request body is not supported, the server was started without the route or does "
    "not have it, or the model cannot fill gaps.",
    503: "The engine is not ready, the request waited too long for a slot, or the server is stopping.",
    504: "The request exceeded the server's time limit.",
    505: "The protocol version is not HTTP/1.1 or HTTP/1.0.",
    529: "The queue is full, the engine is not ready, or the request waited too long for a slot.",
}
"""Description of each error status."""

PROTOCOL = frozenset({431, 501, 505})
"""Statuses that are sent before routing, always with the same error object. Some failures with 400 are, too."""

EVERYWHERE = frozenset({400, 401, 403, 408, 413, 415, 500, 503, 504}) | PROTOCOL
"""Statuses that every route may return: all routes check the API key and the origin, and read the body, if any."""


def _rate_limit_headers(unit: str) -> dict[str, Described]:
    """Return the headers of a limit per minute. Only keys with such a limit receive them."""
    number: Described = {"type": "integer", "minimum": 0}
    time: Described = {"type": "string", "pattern": "^(\\d+ms|(\\d+h)?(\\d+m)?[0-9.]+s)$"}
    return {
        f"x-ratelimit-limit-{unit}": {"description": f"The key's limit of {unit} per minute.", "schema": number},
        f"x-ratelimit-remaining-{unit}": {"description": f"The {unit} that the key may use now.", "schema": number},
        f"x-ratelimit-reset-{unit}": {"description": "Time until the whole limit remains.", "schema": time},
    }


HEADERS: Mapping[str, Described] = {
    "x-request-id": {
        "description": "The client's id if it is printable and has at most 128 characters, else a generated id.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "x-llama-gateway-ignored": {
        "description": "Unknown fields of the request body, which were ignored, and tools that were left out.",
        "schema": {"type": "string"},
    },
    "retry-after": {"description": "Time until a retry, in seconds.", "schema": {"type": "integer", "minimum": 0}},
    "retry-after-ms": {
        "description": "Time until a retry, in milliseconds.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "accept-encoding": {
        "description": "Encodings of request bodies.",
        "required": True,
        "schema": {"const": "identity"},
    },
    "www-authenticate": {"description": "Scheme of the API keys.", "required": True, "schema": {"const": "Bearer"}},
    "x-should-retry": {
        "description": "True if a later retry may succeed, false if it would fail again. OpenAI's clients obey.",
        "schema": {"enum": ["true", "false"], "type": "string"},
    },
    **_rate_limit_headers("requests"),
    **_rate_limit_headers("tokens"),
}
_ALWAYS = tuple(name for name in HEADERS if name.startswith("x-") and name != "x-should-retry")
_BY_STATUS = {
    401: ("www-authenticate",),
    415: ("accept-encoding",),
    **dict.fromkeys((429, 503, 529), ("retry-after", "retry-after-ms")),
}


def headers(status: int = HTTPStatus.OK) -> Described:
    """Return references to the headers that responses with this status may have."""
    failed = ("x-should-retry",) if status >= HTTPStatus.BAD_REQUEST else ()
    names = (*_ALWAYS, *failed, *_BY_STATUS.get(status, ()))
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def failure(status: int, schema: Described) -> Described:
    """Return the response object of an error status.

    Args:
        status: the HTTP status.
        schema: the schema of its JSON body.
    """
    content = {"application/json": {"schema": schema}}
    return {"description": DESCRIPTIONS[status], "headers": headers(status), "content": content}
