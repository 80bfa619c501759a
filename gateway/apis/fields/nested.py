"""Values inside a request's fields, checked one by one so that a complaint names the very place."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from engine import RequestError
from gateway.apis.fields.base import Fields


class Nested(Fields):
    """An object inside a field, to be read by `read_nested`."""


_Nested = TypeVar("_Nested", bound=Nested)


def read_nested(model: type[_Nested], value: object, place: str) -> _Nested:
    """The value as a `model`. Raises `RequestError` that names the place of the first fault, `messages[0].content`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        at = place + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
        raise refusal(at, fault["msg"].removeprefix("Value error, ")) from error


def read_kind(kinds: Mapping[str, type[_Nested]], value: object, place: str, *, told_by: str = "type") -> _Nested:
    """The value, an object, as one of several models: the one that its field `told_by` names. Raises `RequestError`."""
    if not isinstance(value, dict):
        raise refusal(place, "should be an object")
    kind = value.get(told_by)
    if not isinstance(kind, str) or kind not in kinds:
        raise refusal(f"{place}.{told_by}", f"should be one of {', '.join(kinds)}")
    return read_nested(kinds[kind], value, place)


def refusal(place: str, reason: str) -> RequestError:
    """The complaint about one place in a request."""
    return RequestError(f"{place}: {reason}", code="invalid_value", param=place)
