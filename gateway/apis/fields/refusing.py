"""Refusal of OpenAI's fields that this server does not support, with a reason for each."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import refusal


class RefusingFields(Fields):
    """Fields of a body that also has unsupported fields. Their only valid value is `null`."""

    unsupported: ClassVar[Mapping[str, str]]
    """Reason of the refusal for each unsupported field, by name."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, body: object) -> object:
        for name, reason in cls.unsupported.items():
            if isinstance(body, dict) and body.get(name) is not None:
                raise refusal(name, reason)
        return body

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of `Fields`, with the unsupported fields as `null`."""
        reference = super().__get_pydantic_json_schema__(core_schema, handler)
        described = {name: {"type": "null", "description": reason} for name, reason in cls.unsupported.items()}
        handler.resolve_ref_schema(reference)["properties"] |= described
        return reference
