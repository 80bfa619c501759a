"""Tools of Anthropic's requests, and the choice among them."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from gateway.apis.anthropic.messages.blocks import CacheControl
from gateway.apis.fields.json_types import array_of
from gateway.apis.fields.nested import Nested, read_kind, read_nested, refusal
from gateway.apis.fields.tools import MAX_TOOLS, ParametersSchema
from gateway.chat.tools import Named, Tool, ToolChoice


class ClientTool(Nested):
    """A tool that the client runs."""

    type: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str | None = None
    input_schema: ParametersSchema
    strict: bool = False
    cache_control: CacheControl | None = None
    input_examples: list[dict[str, Any]] | None = Field(None, description="Has no effect.")
    allowed_callers: list[str] | None = Field(None, description="Has no effect: the model always calls directly.")
    eager_input_streaming: bool | None = Field(None, description="Has no effect: inputs are always streamed.")
    defer_loading: bool = Field(False, description="Has no effect: the model sees every tool.")

    def tool(self) -> Tool:
        """Return the tool for the chat template."""
        return Tool(self.name, self.description, self.input_schema, self.strict)


Tools: TypeAlias = Annotated[list[ClientTool], Field(max_length=MAX_TOOLS)]


def read_tools(value: object) -> tuple[ClientTool, ...]:
    """Return the entries of `tools`. Raises `ValueError`, or `RequestError` with the place of the fault."""
    tools = array_of("tools", value, most=MAX_TOOLS)
    for at, tool in enumerate(tools):
        kind = tool.get("type", "custom") if isinstance(tool, dict) else "custom"
        if kind not in ("custom", None):  # of any type, also one without a hash
            what = "a tool that the client runs has name and input_schema, and no type or 'custom'"
            raise refusal(f"tools[{at}].type", f"this server runs no tools; {what}")
    return tuple(read_nested(ClientTool, tool, f"tools[{at}]") for at, tool in enumerate(tools))


class _Choice(Nested):
    disable_parallel_tool_use: bool = False


class AutoChoice(_Choice):
    """The model may call tools."""

    type: Literal["auto"]


class AnyChoice(_Choice):
    """The model must call a tool."""

    type: Literal["any"]


class NamedChoice(_Choice):
    """The model must call this tool."""

    type: Literal["tool"]
    name: str


class NoChoice(Nested):
    """The model cannot call tools."""

    type: Literal["none"]


AnyToolChoice: TypeAlias = AutoChoice | AnyChoice | NamedChoice | NoChoice

_KINDS: dict[str, type[AnyToolChoice]] = {
    "auto": AutoChoice,
    "any": AnyChoice,
    "tool": NamedChoice,
    "none": NoChoice,
}


def _read_choice(value: object) -> AnyToolChoice:
    return read_kind(_KINDS, value, "tool_choice")


ChoiceField: TypeAlias = Annotated[AnyToolChoice, BeforeValidator(_read_choice, json_schema_input_type=AnyToolChoice)]


def choice_of(choice: AnyToolChoice | None) -> ToolChoice:
    """Return the rule for calls."""
    match choice:
        case AnyChoice():
            return "required"
        case NamedChoice(name=name):
            return Named(name)
        case NoChoice():
            return "none"
    return "auto"


def is_parallel(choice: AnyToolChoice | None) -> bool:
    """Return True if an answer may have several calls."""
    return not (isinstance(choice, _Choice) and choice.disable_parallel_tool_use)
