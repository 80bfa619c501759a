"""Parsing and validation of request bodies."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, RootModel

from engine import RequestError
from gateway.apis.fields.base import unknown_fields

MAX_VALUES = 5 * 2**16
"""Maximum of JSON values in one body, because small ones take 32 times their bytes; an empty array counts as two.

2**18 may be token ids. So a body takes at most 64 MiB and four times its bytes while it is read."""
MAX_FIELDS = 400
"""Maximum of fields in one body."""
MAX_NESTING = 64
"""Maximum of arrays and objects inside each other, with the body itself."""
MAX_UNKNOWN = 1024
"""Maximum of different unknown fields in one body, with those of inner objects."""
MAX_NAME = 80
"""Maximum of characters that are kept of an unknown field's name."""

_MARKS = (b",", b"[", b"{")
"""Each value but the first is behind one of these."""
_BLOCK = 2**16
"""Bytes that are split at a time, because each piece is an object."""

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ReadBody(Generic[_Body]):
    """A body that was read."""

    body: _Body
    """The validated body."""
    unknown: tuple[str, ...]
    """Names of its unknown fields. Those of inner objects have a path: `stream_options.x`."""


def read_body(data: bytes, model: type[_Body]) -> ReadBody[_Body]:
    """Return a JSON body, with any content type, as a `model`: an array for a `RootModel`, otherwise an object.

    Raises `JSONDecodeError`, `RequestError` or `ValidationError`, all 400.
    """
    if _marks(data) > MAX_VALUES:
        _check_values(data)
    content = orjson.loads(data)
    if issubclass(model, RootModel):
        return _read_array(content, model)
    if not isinstance(content, dict):
        raise RequestError("The body should be a JSON object.", code="invalid_type")
    if len(content) > MAX_FIELDS:
        raise RequestError(f"The body should have at most {MAX_FIELDS} fields.", code="invalid_value")
    _check_nesting(content)
    body = model.model_validate(content)
    unknown = dict.fromkeys(name[:MAX_NAME] for name in unknown_fields(body))
    if len(unknown) > MAX_UNKNOWN:
        raise RequestError(f"The body should have at most {MAX_UNKNOWN} unknown fields.", code="invalid_value")
    return ReadBody(body, tuple(unknown))


def _read_array(content: object, model: type[_Body]) -> ReadBody[_Body]:
    if not isinstance(content, list):
        raise RequestError("The body should be a JSON array.", code="invalid_type")
    if _is_deeper(content, MAX_NESTING):
        message = f"The body should have at most {MAX_NESTING} arrays and objects inside each other."
        raise RequestError(message, code="invalid_value")
    return ReadBody(model.model_validate(content), ())


def _marks(data: bytes) -> int:
    return sum(map(data.count, _MARKS))


def _check_values(data: bytes) -> None:
    """Count the marks outside of strings, before any value is made."""
    data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    count = quotes = 0
    for start in range(0, len(data), _BLOCK):
        pieces = data[start : start + _BLOCK].split(b'"')
        count += _marks(b"".join(pieces[quotes % 2 :: 2]))
        quotes += len(pieces) - 1
        if count > MAX_VALUES:
            raise RequestError(f"The body should have at most {MAX_VALUES} values.", code="invalid_value")


def _check_nesting(content: dict[str, Any]) -> None:
    for name, value in content.items():
        if isinstance(value, dict | list) and _is_deeper(value, MAX_NESTING - 1):
            param = name[:MAX_NAME]
            message = f"{param}: should have at most {MAX_NESTING - 1} arrays and objects inside each other"
            raise RequestError(message, code="invalid_value", param=param)


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            item
            for container in layer
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not layer:
            return False
    return True
