"""Tool fields of OpenAI's chat requests, current and deprecated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from engine import Grammar
from gateway.apis.fields.base import Fields
from gateway.apis.fields.json_types import array_of, by_json, of_json
from gateway.apis.fields.nested import Nested, read_kind, read_nested, refusal
from gateway.apis.fields.tools import MAX_TOOLS, ParametersSchema, check_tools
from gateway.apis.openai.custom_format import CustomGrammar, CustomTextFormat
from gateway.chat.custom_inputs import custom_tool
from gateway.chat.tools import Named, Tool, ToolChoice

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""OpenAI's default: a function without parameters."""


class FunctionObject(Nested):
    """Definition of a function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: ParametersSchema = Field(default_factory=lambda: NO_PARAMETERS)
    strict: bool = False

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        return Tool(self.name, self.description, self.parameters, self.strict)


class FunctionTool(Nested):
    """An entry of `tools`."""

    type: Literal["function"]
    function: FunctionObject

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        return self.function.tool()


class ChatCustomGrammar(Nested):
    """A text that matches a grammar."""

    type: Literal["grammar"]
    grammar: CustomGrammar

    def constraint(self) -> Grammar:
        """Return the grammar."""
        return self.grammar.constraint()


class CustomObject(Nested):
    """Definition of a tool whose input is a text."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    format: CustomTextFormat | ChatCustomGrammar | None = Field(None, discriminator="type")


class CustomTool(Nested):
    """An entry of `tools` whose input is a text."""

    type: Literal["custom"]
    custom: CustomObject

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        given = self.custom
        return custom_tool(given.name, given.description, given.format.constraint() if given.format else None)


class _FunctionName(Nested):
    name: str


class NamedFunction(Nested):
    """A `tool_choice` that names the function to call."""

    type: Literal["function"]
    function: _FunctionName


class NamedCustom(Nested):
    """A `tool_choice` that names the custom tool to call."""

    type: Literal["custom"]
    custom: _FunctionName


class _Allowed(Nested):
    mode: Literal["auto", "required"]
    tools: list[Annotated[NamedFunction | NamedCustom, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_TOOLS
    )


class AllowedTools(Nested):
    """A `tool_choice` that allows only some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


_TOOLS: dict[str, type[FunctionTool | CustomTool]] = {"function": FunctionTool, "custom": CustomTool}
_Choice: TypeAlias = Annotated[NamedFunction | NamedCustom | AllowedTools, Field(discriminator="type")]


def read_tools(value: object) -> tuple[FunctionTool | CustomTool, ...]:
    """Return the entries of `tools`. Raises `ValueError`, or `RequestError` with the place of the fault."""
    tools = array_of("tools", value, most=MAX_TOOLS)
    return tuple(read_kind(_TOOLS, tool, f"tools[{at}]") for at, tool in enumerate(tools))


def _functions(value: object) -> tuple[FunctionObject, ...]:
    functions = array_of("functions", value, least=1, most=MAX_TOOLS)
    return tuple(read_nested(FunctionObject, function, f"functions[{at}]") for at, function in enumerate(functions))


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request, from the current or the deprecated fields."""

    tools: tuple[Tool, ...]
    """Functions that the model may call."""
    choice: ToolChoice
    """Rule for calls: optional, required, forbidden, or one named function."""


class ToolFields(Fields):
    """Fields of the tools, and of the rule for calling them."""

    tools: Annotated[
        tuple[FunctionTool | CustomTool, ...],
        BeforeValidator(
            read_tools, json_schema_input_type=Annotated[list[FunctionTool | CustomTool], Field(max_length=MAX_TOOLS)]
        ),
    ] = ()
    tool_choice: Annotated[
        Annotated[Literal["none", "auto", "required"], of_json("string")] | Annotated[_Choice, of_json("object")],
        by_json("should be a string or an object"),
    ] = "auto"
    parallel_tool_calls: bool = True
    functions: Annotated[
        tuple[FunctionObject, ...],
        BeforeValidator(
            _functions,
            json_schema_input_type=Annotated[list[FunctionObject], Field(min_length=1, max_length=MAX_TOOLS)],
        ),
    ] = Field(default_factory=tuple)
    function_call: Annotated[
        Annotated[Literal["none", "auto"], of_json("string")] | Annotated[_FunctionName, of_json("object")],
        by_json("should be a string or an object"),
    ] = "auto"

    @property
    def deprecated_calls(self) -> bool:
        """True if the request has `functions`. Its answer then has `function_call`."""
        return bool(self.functions)

    def tool_set(self) -> ToolSet:
        """Return the tools. Raises `RequestError` if a choice does not match the tools, or has none."""
        if self.functions:
            if self.tools:
                raise refusal("functions", "cannot be combined with tools, which replaced it")
            if self.tool_choice != "auto":
                raise refusal("tool_choice", "is the choice of tools; that of functions is function_call")
            called = self.function_call
            choice = Named(called.name) if isinstance(called, _FunctionName) else called
            tools = [function.tool() for function in self.functions]
            return _tool_set(tools, choice, offered="functions", chosen="function_call")
        if isinstance(self.function_call, _FunctionName) or (self.function_call == "none" and self.tools):
            raise refusal("function_call", "is the choice of functions, which are not given")
        tools = [tool.tool() for tool in self.tools]
        match self.tool_choice:
            case NamedFunction() | NamedCustom() as named:
                _only(tools, [named], "names")
                return _tool_set(tools, Named(_name_of(named)))
            case AllowedTools(allowed_tools=allowed):
                return _tool_set(_only(tools, allowed.tools, "allows"), allowed.mode)
        return _tool_set(tools, self.tool_choice)


def _tool_set(
    tools: Sequence[Tool], choice: ToolChoice, *, offered: str = "tools", chosen: str = "tool_choice"
) -> ToolSet:
    check_tools(tools, choice, offered=offered, chosen=chosen)
    return ToolSet(tuple(tools), choice)


def _only(tools: Sequence[Tool], named: Sequence[NamedFunction | NamedCustom], verb: str) -> list[Tool]:
    """Return the tools that a choice names or allows. Raises `RequestError` if one is not offered."""
    offered = {(tool.custom, tool.name) for tool in tools}
    wanted = {(isinstance(one, NamedCustom), _name_of(one)) for one in named}
    if unknown := wanted - offered:
        custom, name = min(unknown)
        kind = "custom tool" if custom else "function"
        raise refusal("tool_choice", f"{verb} the {kind} {name[:64]!r}, which is not offered")
    return [tool for tool in tools if (tool.custom, tool.name) in wanted]


def _name_of(choice: NamedFunction | NamedCustom) -> str:
    return choice.custom.name if isinstance(choice, NamedCustom) else choice.function.name
