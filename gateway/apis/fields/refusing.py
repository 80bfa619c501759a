"""Refusal of fields that this server does not support, with a reason for each."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import refusal


class RefusingFields(Fields):
    """Fields of a body that also has unsupported fields. Their only valid values are `null` and those of `empty`."""

    unsupported: ClassVar[Mapping[str, str]]
    """Reason of the refusal for each unsupported field, by name."""
    empty: ClassVar[Mapping[str, Any]] = {}
    """Value that clients send for an unsupported field that is not given, by name."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        for name, reason in cls.unsupported.items():
            if body.get(name) not in (None, cls.empty.get(name)):
                raise refusal(name, reason)
        return {name: value for name, value in body.items() if name not in cls.unsupported}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of `Fields`, with the unsupported fields as `null` or empty."""
        reference = super().__get_pydantic_json_schema__(core_schema, handler)
        described = {
            name: {
                **({"enum": [None, cls.empty[name]]} if name in cls.empty else {"type": "null"}),
                "description": reason,
            }
            for name, reason in cls.unsupported.items()
        }
        handler.resolve_ref_schema(reference)["properties"] |= described
        return reference
