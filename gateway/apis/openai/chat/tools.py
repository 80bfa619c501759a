"""Tool fields of OpenAI's chat requests, current and deprecated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import Nested, read_kind, read_nested, refusal
from gateway.apis.fields.tools import MAX_TOOLS, check_tools, encodable
from gateway.chat.tools import Named, Tool, ToolChoice

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""OpenAI's default: a function without parameters."""


class FunctionObject(Nested):
    """Definition of a function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(encodable)] = Field(default_factory=lambda: NO_PARAMETERS)
    strict: bool = False

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        return Tool(self.name, self.description, self.parameters, self.strict)


class FunctionTool(Nested):
    """An entry of `tools`."""

    type: Literal["function"]
    function: FunctionObject


class _FunctionName(Nested):
    name: str


class NamedFunction(Nested):
    """A `tool_choice` that names the function to call."""

    type: Literal["function"]
    function: _FunctionName


class _Allowed(Nested):
    mode: Literal["auto", "required"]
    tools: list[NamedFunction] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedTools(Nested):
    """A `tool_choice` that allows only some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


_CHOICES: dict[str, type[NamedFunction | AllowedTools]] = {"function": NamedFunction, "allowed_tools": AllowedTools}


def read_tools(value: object) -> tuple[FunctionTool, ...]:
    """Return the entries of `tools`. Raises `ValueError`, or `RequestError` with the place of the fault."""
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise ValueError(f"should be an array of at most {MAX_TOOLS} tools")
    for at, tool in enumerate(value):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            raise refusal(f"tools[{at}].type", "custom tools are not supported; describe a function instead")
    return tuple(read_nested(FunctionTool, tool, f"tools[{at}]") for at, tool in enumerate(value))


def _functions(value: object) -> tuple[FunctionObject, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_TOOLS:
        raise ValueError(f"should be an array of 1 to {MAX_TOOLS} functions")
    return tuple(read_nested(FunctionObject, function, f"functions[{at}]") for at, function in enumerate(value))


def _choice(value: object) -> object:
    return read_kind(_CHOICES, value, "tool_choice") if isinstance(value, dict) else value


def _function_choice(value: object) -> object:
    return read_nested(_FunctionName, value, "function_call") if isinstance(value, dict) else value


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
        tuple[FunctionTool, ...],
        BeforeValidator(read_tools, json_schema_input_type=Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)]),
    ] = ()
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | NamedFunction | AllowedTools, BeforeValidator(_choice)
    ] = "auto"
    parallel_tool_calls: bool = True
    functions: Annotated[
        tuple[FunctionObject, ...],
        BeforeValidator(
            _functions,
            json_schema_input_type=Annotated[list[FunctionObject], Field(min_length=1, max_length=MAX_TOOLS)],
        ),
    ] = Field(default_factory=tuple)
    function_call: Annotated[Literal["none", "auto"] | _FunctionName, BeforeValidator(_function_choice)] = "auto"

    @property
    def deprecated_calls(self) -> bool:
        """True if the request has `functions`. Its answer then has `function_call`."""
        return bool(self.functions)

    def tool_set(self) -> ToolSet:
        """Return the tools. Raises `RequestError` if the choice does not match the tools."""
        if self.functions:
            if self.tools:
                raise refusal("functions", "cannot be combined with tools, which replaced it")
            called = self.function_call
            choice = Named(called.name) if isinstance(called, _FunctionName) else called
            return _tool_set(self.functions, choice, "function_call")
        functions = [tool.function for tool in self.tools]
        match self.tool_choice:
            case NamedFunction(function=named):
                return _tool_set(functions, Named(named.name), "tool_choice")
            case AllowedTools(allowed_tools=allowed):
                names = [tool.function.name for tool in allowed.tools]
                return _tool_set(_only(functions, names), allowed.mode, "tool_choice")
        return _tool_set(functions, self.tool_choice, "tool_choice")


def _tool_set(functions: Sequence[FunctionObject], choice: ToolChoice, field: str) -> ToolSet:
    tools = tuple(function.tool() for function in functions)
    offered = field.replace("_choice", "s").replace("_call", "s")
    check_tools(tools, choice, offered=offered, chosen=field)
    return ToolSet(tools, choice)


def _only(functions: Sequence[FunctionObject], names: Sequence[str]) -> list[FunctionObject]:
    offered = {function.name for function in functions}
    if unknown := set(names) - offered:
        raise refusal("tool_choice", f"allows the function {min(unknown)[:64]!r}, which is not offered")
    return [function for function in functions if function.name in names]
