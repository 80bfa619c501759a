"""Entries of `tools`: those of chat in a flat format, groups of them, and those that OpenAI runs itself."""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field, field_validator
from typing_extensions import override

from gateway.apis.fields.base import UNKNOWN
from gateway.apis.fields.json_types import array_of
from gateway.apis.fields.nested import Nested, read_nested, refusal
from gateway.apis.fields.tools import MAX_TOOLS
from gateway.apis.openai.chat.tools import FunctionObject
from gateway.apis.openai.custom_format import CustomGrammar, CustomTextFormat
from gateway.apis.openai.responses.answer import (
    ResponseCustomTool,
    ResponseGrammarInput,
    ResponseNamespace,
    ResponseTextInput,
    ResponseTool,
)
from gateway.chat.custom_inputs import custom_tool
from gateway.chat.tools import Tool


def _is_loaded(deferred: bool) -> bool:
    if deferred:
        raise ValueError("is not supported: the prompt has every tool from the start")
    return deferred


class ResponseFunction(FunctionObject):
    """An entry of `tools`. Without `strict`, the model sees the schema and may deviate from it."""

    type: Literal["function"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    defer_loading: bool = Field(False, json_schema_extra={"const": False})

    _loaded = field_validator("defer_loading")(_is_loaded)

    def to_json(self) -> ResponseTool:
        """Return the tool as a response repeats it."""
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict,
        }


class ResponseCustomGrammar(CustomGrammar):
    """A text that matches a grammar."""

    type: Literal["grammar"]


class ResponseCustom(Nested):
    """An entry of `tools` whose input is a text."""

    type: Literal["custom"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str | None = None
    format: CustomTextFormat | ResponseCustomGrammar | None = Field(None, discriminator="type")
    defer_loading: bool = Field(False, json_schema_extra={"const": False})

    _loaded = field_validator("defer_loading")(_is_loaded)

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        return custom_tool(self.name, self.description, self.format.constraint() if self.format else None)

    def to_json(self) -> ResponseCustomTool:
        """Return the tool as a response repeats it."""
        tool: ResponseCustomTool = {"type": self.type, "name": self.name, "format": self._format_to_json()}
        if self.description is not None:  # OpenAI's document allows no null here, unlike in a function
            tool["description"] = self.description
        return tool

    def _format_to_json(self) -> ResponseTextInput | ResponseGrammarInput:
        if not isinstance(self.format, ResponseCustomGrammar):
            return {"type": "text"}
        return {"type": "grammar", "syntax": self.format.syntax, "definition": self.format.definition}


CallableTool: TypeAlias = ResponseFunction | ResponseCustom
"""A tool that the client runs."""


class NamespaceTool(Nested):
    """An entry of `tools` that groups tools under a name. Calls of these have it in the field `namespace`."""

    type: Literal["namespace"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str
    tools: Annotated[
        list[Annotated[ResponseFunction | ResponseCustom, Field(discriminator="type")]],
        Field(min_length=1, max_length=MAX_TOOLS),
    ]

    def to_json(self) -> ResponseNamespace:
        """Return the tools as a response repeats them."""
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "tools": [tool.to_json() for tool in self.tools],
        }


HostedKind: TypeAlias = Literal[
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "code_interpreter",
    "image_generation",
]


class HostedTool(Nested):
    """An entry of `tools` that OpenAI runs itself, and that the model need not call.

    It is left out, and reported as the unknown field `tools.<type>`, so that `strict-fields` refuses it.
    """

    model_config = ConfigDict(json_schema_extra={UNKNOWN: True})

    type: HostedKind

    @override
    def ignored(self) -> Iterable[str]:
        return (self.type,)


OfferedTool: TypeAlias = CallableTool | NamespaceTool | HostedTool

_TOOLS: dict[str, type[OfferedTool]] = {
    "function": ResponseFunction,
    "custom": ResponseCustom,
    "namespace": NamespaceTool,
    **dict.fromkeys(get_args(HostedKind), HostedTool),
}


def read_tools(value: object) -> tuple[OfferedTool, ...]:
    """Return the entries of `tools`. Raises `ValueError`, or `RequestError` with the place of the fault."""
    given = array_of("tools", value, most=MAX_TOOLS)
    tools = tuple(_tool(tool, f"tools[{at}]") for at, tool in enumerate(given))
    if sum(len(tool.tools) if isinstance(tool, NamespaceTool) else 1 for tool in tools) > MAX_TOOLS:
        raise ValueError(f"should have at most {MAX_TOOLS} tools, with those in namespaces")
    return tools


def _tool(value: object, place: str) -> OfferedTool:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _TOOLS:
        raise refusal(place, f"tools of the type {kind[:64]!r} are not supported; describe a function instead")
    return read_nested(_TOOLS[kind] if isinstance(kind, str) else ResponseFunction, value, place)
