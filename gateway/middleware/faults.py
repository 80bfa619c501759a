"""Faults of invalid values, as pydantic reports them: their places, codes and reasons in the words of JSON."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

MISSING, WRONG_TYPE, INVALID = "missing_required_parameter", "invalid_type", "invalid_value"
MEMBER = "of type "
"""Begins the names that members of a union have in places because of their JSON type, which no field's name does."""

_TYPES = {
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "an array",
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
}
"""JSON types that a value should have, by pydantic's types of errors."""
_WITHOUT_TAG = {"union_tag_not_found", "union_tag_invalid"}
"""pydantic's types of errors for objects whose field `type` chooses no member of a union."""
_CONSTANTS = {"True": "true", "False": "false"}
_MOST_BITS = 64
"""Bits of the largest integer that the reader of bodies keeps. A larger one becomes a floating-point number."""
_SUBJECT = re.compile(r"Value error, |(?:Input|String|List|Dictionary) (?=should )")
"""Beginning of pydantic's messages, which the name of the field replaces."""


class Fault(NamedTuple):
    """Fault of an invalid value."""

    path: str
    """Path to the value, `list[0].name`; empty for the whole value."""
    code: str
    """OpenAI's name of the kind of fault."""
    reason: str
    """What the value should be."""


def first_fault(error: ValidationError, model: type[BaseModel] | None = None) -> Fault:
    """Return the first fault of an invalid value. Without its model, the path is the name of the outermost field."""
    first = error.errors(include_url=False)[0]
    path = _path_of(first["loc"], model)
    if first["type"] in _WITHOUT_TAG:
        return _fault_of_tag(first, path)
    return Fault(path, _code(first), _reason(first))


def _path_of(place: Sequence[int | str], model: type[BaseModel] | None) -> str:
    """Return the path to a field. The names of a union's members in its place choose a member, or end the path."""
    if model is None:
        return "".join(map(str, place[:1]))
    path, models = "", [model]
    if issubclass(model, RootModel):
        models = list(_models_in(model.model_fields["root"].annotation))
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        if step.startswith(MEMBER):
            continue
        if len(models) > 1:
            models = [member for member in models if _is_named(member, step)]
            continue
        fields = models[0].model_fields.items() if models else ()
        if (field := next((field for name, field in fields if step == (field.alias or name)), None)) is None:
            break
        path += f".{step}" if path else step
        models = list(_models_in(field.annotation))
    return path


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _is_named(member: type[BaseModel], name: str) -> bool:
    """Return True if a union's member has this name in places: a value of its field `type`, or that of its class."""
    tag = member.model_fields.get("type")
    return name == member.__name__ or (tag is not None and name in get_args(tag.annotation))


def _fault_of_tag(error: ErrorDetails, path: str) -> Fault:
    details = error["ctx"]
    name = details["discriminator"].strip("'")
    path, given = f"{path}.{name}", error["input"].get(name)
    if given is None:
        return Fault(path, MISSING, "Field required")
    kinds = details["expected_tags"].replace("'", "")
    return Fault(path, INVALID if isinstance(given, str) else WRONG_TYPE, f"should be one of {kinds}")


def _is_too_large(error: ErrorDetails) -> bool:
    """Return True for an integer that was read as a floating-point number."""
    value = error["input"]
    return error["type"] == "int_type" and isinstance(value, float) and abs(value) >= 2 ** (_MOST_BITS - 1)


def _code(error: ErrorDetails) -> str:
    kind = error["type"]
    if _is_too_large(error):
        return INVALID
    if kind == "missing":
        return MISSING
    if kind == "json_invalid":
        return "invalid_json"
    if kind == "literal_error":
        return INVALID if isinstance(error["input"], str) else WRONG_TYPE
    return WRONG_TYPE if kind.endswith("_type") else INVALID


def _reason(error: ErrorDetails) -> str:
    if _is_too_large(error):
        return f"should have at most {_MOST_BITS} bits"
    if (wanted := _TYPES.get(error["type"])) is not None:
        return f"should be {wanted}"
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"]
        return f"should be {_CONSTANTS.get(expected, expected)}"
    if error["type"].startswith("too_"):
        return _SUBJECT.sub("", error["msg"], count=1).partition(" after validation")[0]
    return _SUBJECT.sub("", error["msg"], count=1)
