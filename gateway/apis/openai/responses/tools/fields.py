"""Tool fields of OpenAI's responses: the fields of chat in a flat format."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import Nested, read_kind, read_nested, refusal
from gateway.apis.fields.tools import MAX_TOOLS
from gateway.apis.openai.chat.tools import (
    AllowedTools,
    CustomTool,
    FunctionObject,
    FunctionTool,
    NamedCustom,
    NamedFunction,
    ToolSet,
)
from gateway.apis.openai.chat.tools import ToolFields as ChatTools
from gateway.apis.openai.custom_format import CustomGrammar, CustomTextFormat
from gateway.apis.openai.responses.answer import (
    ResponseCustomTool,
    ResponseGrammarInput,
    ResponseTextInput,
    ResponseTool,
    ResponseToolChoice,
    ToolChoiceAllowed,
    ToolChoiceCustom,
    ToolChoiceFunction,
)


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


class NamedTool(Nested):
    """A `tool_choice` that names the function to call."""

    type: Literal["function"]
    name: str

    def to_json(self) -> ToolChoiceFunction:
        """Return the choice as a response repeats it."""
        return {"type": self.type, "name": self.name}


class NamedCustomTool(Nested):
    """A `tool_choice` that names the custom tool to call."""

    type: Literal["custom"]
    name: str

    def to_json(self) -> ToolChoiceCustom:
        """Return the choice as a response repeats it."""
        return {"type": self.type, "name": self.name}


class AllowedChoice(Nested):
    """A `tool_choice` that allows only some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[Annotated[NamedTool | NamedCustomTool, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_TOOLS
    )

    def to_json(self) -> ToolChoiceAllowed:
        """Return the choice as a response repeats it."""
        return {"type": self.type, "mode": self.mode, "tools": [tool.to_json() for tool in self.tools]}


Choice: TypeAlias = Literal["none", "auto", "required"] | NamedTool | NamedCustomTool | AllowedChoice

_TOOLS: dict[str, type[ResponseFunction | ResponseCustom]] = {"function": ResponseFunction, "custom": ResponseCustom}
_CHOICES: dict[str, type[NamedTool | NamedCustomTool | AllowedChoice]] = {
    "function": NamedTool,
    "custom": NamedCustomTool,
    "allowed_tools": AllowedChoice,
}


def _tools(value: object) -> tuple[ResponseFunction | ResponseCustom, ...]:
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise ValueError(f"should be an array of at most {MAX_TOOLS} tools")
    return tuple(_tool(tool, f"tools[{at}]") for at, tool in enumerate(value))


def _tool(value: object, place: str) -> ResponseFunction | ResponseCustom:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _TOOLS:
        raise refusal(place, f"tools of the type {kind[:64]!r} are not supported; describe a function instead")
    return read_nested(_TOOLS[kind] if isinstance(kind, str) else ResponseFunction, value, place)


def _choice(value: object) -> object:
    return read_kind(_CHOICES, value, "tool_choice") if isinstance(value, dict) else value


def _named(choice: NamedTool | NamedCustomTool) -> NamedFunction | NamedCustom:
    if isinstance(choice, NamedCustomTool):
        return NamedCustom.model_validate({"type": "custom", "custom": {"name": choice.name}})
    return NamedFunction.model_validate({"type": "function", "function": {"name": choice.name}})


def _as_chat_tool(tool: ResponseFunction | ResponseCustom) -> FunctionTool | CustomTool:
    if isinstance(tool, ResponseCustom):
        return CustomTool.model_construct(type="custom", custom=tool)
    return FunctionTool.model_construct(type="function", function=tool)


def _as_chat(choice: Choice) -> object:
    match choice:
        case NamedTool() | NamedCustomTool():
            return _named(choice)
        case AllowedChoice(mode=mode, tools=tools):
            allowed = {"mode": mode, "tools": [_named(tool) for tool in tools]}
            return AllowedTools.model_validate({"type": "allowed_tools", "allowed_tools": allowed})
    return choice


class ResponseToolFields(Fields):
    """Fields of the tools that the model may call."""

    tools: Annotated[
        tuple[ResponseFunction | ResponseCustom, ...],
        BeforeValidator(
            _tools,
            json_schema_input_type=Annotated[list[ResponseFunction | ResponseCustom], Field(max_length=MAX_TOOLS)],
        ),
    ] = ()
    tool_choice: Annotated[Choice, BeforeValidator(_choice)] = "auto"
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = Field(None, ge=0)
    """Limit for tools that OpenAI runs itself. It has no effect here."""

    def tool_set(self) -> ToolSet:
        """Return the tools. Raises `RequestError` if the choice does not match the tools."""
        tools = tuple(map(_as_chat_tool, self.tools))
        return ChatTools.model_construct(tools=tools, tool_choice=_as_chat(self.tool_choice)).tool_set()

    def tool_choice_to_json(self) -> ResponseToolChoice:
        """Return the choice as a response repeats it."""
        return self.tool_choice if isinstance(self.tool_choice, str) else self.tool_choice.to_json()
