"""Fields that OpenAI has and this server has not, so that whoever sends one is told why."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import refusal


class RefusingFields(Fields):
    """Fields of a body, beside which others are described, and have no value but `null`.

    Attributes:
        unsupported: the reason for each of those others, by name.
    """

    unsupported: ClassVar[Mapping[str, str]]

    @model_validator(mode="before")
    @classmethod
    def _nothing_unsupported(cls, body: object) -> object:
        for name, reason in cls.unsupported.items():
            if isinstance(body, dict) and body.get(name) is not None:
                raise refusal(name, reason)
        return body

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """As for `Fields`, with those that are refused."""
        reference = super().__get_pydantic_json_schema__(core_schema, handler)
        described = {name: {"type": "null", "description": reason} for name, reason in cls.unsupported.items()}
        handler.resolve_ref_schema(reference)["properties"] |= described
        return reference
