"""Base class of the fields of every body."""

from collections.abc import Iterable, Iterator
from functools import cache

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

UNKNOWN = "x-unknown"
"""Mark in the JSON schema of an object that is reported like an unknown field."""
_ROUNDED = 2**63
"""A number of this size may be an integer of more than 64 bits, which the reader of bodies has rounded."""


class Fields(BaseModel):
    """Fields of a body, or of an object inside it.

    Types are strict: `"5"` is not an integer and `true` is not a number. `5.0` is the integer 5, as in JSON schema.
    `null` means that a field is not given. Of unknown fields only the names are kept, in `model_extra`.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        known = _names(cls)
        given = ((name, value) for name, value in data.items() if value is not None)
        return {name: _with_integers(value) if name in known else None for name, value in given}

    def ignored(self) -> Iterable[str]:
        """Return the names to report of this object: its unknown fields."""
        return self.model_extra or ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return pydantic's JSON schema, in which each optional field also allows `null`."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        fields = schema["properties"]
        for name in fields.keys() - schema.get("required", ()):
            fields[name] = _or_null(fields[name])
        return reference


def _with_integers(value: object) -> object:
    """Return a value with integers in place of numbers with a zero fraction, as some encoders write them.

    Objects stay as they are: one of fields converts its own values, and others are free, such as JSON schemas.
    """
    match value:
        case float() if value.is_integer() and abs(value) < _ROUNDED:
            return int(value)
        case list() if not {float, list}.isdisjoint(map(type, value)):
            return [_with_integers(one) for one in value]
    return value


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def given(*names: str, **schemas: JsonSchemaValue) -> JsonSchemaValue:
    """Return the JSON schema of objects that have these fields. `schemas` are the schemas of some of them."""
    properties = {**{name: {"not": {"type": "null"}} for name in names}, **schemas}
    return {"properties": properties, "required": list(properties)}


def _or_null(field: JsonSchemaValue) -> JsonSchemaValue:
    about = {name: value for name, value in field.items() if name in {"default", "description", "title"}}
    kinds = {name: value for name, value in field.items() if name not in about}
    given = kinds["anyOf"] if kinds.keys() == {"anyOf"} else [kinds]
    return field if {"type": "null"} in given else {"anyOf": [*given, {"type": "null"}], **about}


def unknown_fields(body: BaseModel) -> Iterator[str]:
    """Yield the unknown fields of a body. Those of inner objects have a path: `stream_options.x`."""
    yield from body.ignored() if isinstance(body, Fields) else ()
    given = body.model_fields_set
    for name, field in type(body).model_fields.items():
        if name not in given:
            continue
        value = getattr(body, name)
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, BaseModel):
                yield from (f"{field.alias or name}.{inner}" for inner in unknown_fields(part))
