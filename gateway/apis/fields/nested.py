"""Validation of nested values one by one, so that an error names the exact place."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from engine import RequestError
from gateway.apis.fields.base import Fields


class Nested(Fields):
    """An object inside a field, read by `read_nested`."""


_Nested = TypeVar("_Nested", bound=Nested)


def read_nested(model: type[_Nested], value: object, place: str) -> _Nested:
    """Return the value as a `model`. Raises `RequestError` with the place of the first fault, `messages[0].content`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        at = place + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
        raise refusal(at, fault["msg"].removeprefix("Value error, ")) from error


def read_kind(kinds: Mapping[str, type[_Nested]], value: object, place: str, *, discriminator: str = "type") -> _Nested:
    """Return an object as one of several models, which its field `discriminator` names. Raises `RequestError`."""
    if not isinstance(value, dict):
        raise refusal(place, "should be an object")
    kind = value.get(discriminator)
    if not isinstance(kind, str) or kind not in kinds:
        raise refusal(f"{place}.{discriminator}", f"should be one of {', '.join(kinds)}")
    return read_nested(kinds[kind], value, place)


def refusal(place: str, reason: str) -> RequestError:
    """Return the error for one place in a request."""
    return RequestError(f"{place}: {reason}", code="invalid_value", param=place)
