"""Messages and tools of Ollama's chats: their fields, and their conversion for templates."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import AfterValidator, BeforeValidator, Field

from gateway.apis.fields.json_types import array_of
from gateway.apis.fields.nested import Nested, read_nested
from gateway.apis.fields.parts import MAX_MESSAGES, MAX_PARTS
from gateway.apis.fields.tools import MAX_TOOLS, ParametersSchema, encodable
from gateway.chat.template_capabilities import TemplateMessage, template_call
from gateway.chat.tools import Tool

_IN_ORDER = "Has no effect: calls are in order."


def _refuse_images(images: list[Any]) -> list[Any]:
    if images:
        raise ValueError("are not supported: this server's models take text only")
    return images


def _in_lower_case(role: object) -> object:
    """Return a role as Ollama reads it: in any case."""
    return role.lower() if isinstance(role, str) else role


NoImages: TypeAlias = Annotated[list[Any], AfterValidator(_refuse_images), Field(json_schema_extra={"maxItems": 0})]
"""The field `images`, which must be empty."""


class OllamaFunctionCall(Nested):
    """A function's name and its arguments."""

    name: str = Field(min_length=1)
    arguments: Annotated[dict[str, Any], AfterValidator(encodable)] = Field(default_factory=dict)
    index: int | None = Field(None, description=_IN_ORDER)


class OllamaCall(Nested):
    """A tool call by the assistant. Open WebUI puts the index here, and LangChain for JavaScript the type."""

    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = Field(None, description=_IN_ORDER)
    function: OllamaFunctionCall


class OllamaMessage(Nested):
    """A message of any role."""

    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_in_lower_case)]
    content: str = ""
    thinking: str | None = None
    tool_calls: list[OllamaCall] = Field(default_factory=list, max_length=MAX_PARTS, fail_fast=True)
    tool_name: str | None = Field(None, description="Name of the tool whose output this is.")
    tool_call_id: str | None = Field(None, description="Id of the call whose output this is.")
    images: NoImages = Field(default_factory=list)


class OllamaFunction(Nested):
    """Definition of a function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: ParametersSchema = Field(default_factory=lambda: {"type": "object", "properties": {}})


class OllamaTool(Nested):
    """An entry of `tools`."""

    type: Literal["function"] = "function"
    function: OllamaFunction


def _read_messages(value: object) -> tuple[OllamaMessage, ...]:
    messages = array_of("messages", value, most=MAX_MESSAGES)
    return tuple(read_nested(OllamaMessage, message, f"messages[{at}]") for at, message in enumerate(messages))


def _read_tools(value: object) -> tuple[OllamaTool, ...]:
    tools = array_of("tools", value, most=MAX_TOOLS)
    return tuple(read_nested(OllamaTool, tool, f"tools[{at}]") for at, tool in enumerate(tools))


MessagesField: TypeAlias = Annotated[
    tuple[OllamaMessage, ...],
    BeforeValidator(
        _read_messages, json_schema_input_type=Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES)]
    ),
]
ToolsField: TypeAlias = Annotated[
    tuple[OllamaTool, ...],
    BeforeValidator(_read_tools, json_schema_input_type=Annotated[list[OllamaTool], Field(max_length=MAX_TOOLS)]),
]


def tools_of(tools: Sequence[OllamaTool]) -> tuple[Tool, ...]:
    """Return the tools for the chat template."""
    return tuple(Tool(one.function.name, one.function.description, one.function.parameters) for one in tools)


def for_template(messages: Sequence[OllamaMessage]) -> tuple[TemplateMessage, ...]:
    """Return the messages in the format of `Conversation`."""
    translation = _Translation()
    return tuple(translation.message(message) for message in messages)


class _Translation:
    """Conversion of the messages in order, with a record of the calls that have no output yet.

    Calls have no ids in Ollama, and outputs have only the name of their tool, or not even that.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: list[tuple[str, str]] = []  # id and name of each call without an output

    def message(self, message: OllamaMessage) -> TemplateMessage:
        if message.role == "tool":
            return self._output(message)
        converted: TemplateMessage = {"role": message.role, "content": message.content}
        if message.thinking is not None:
            converted["reasoning_content"] = message.thinking
        if message.tool_calls:
            converted["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return converted

    def _call(self, call: OllamaCall) -> TemplateMessage:
        self._count += 1
        id_ = call.id or f"call_{self._count}"
        self._open.append((id_, call.function.name))
        return template_call(id_, call.function.name, orjson.dumps(call.function.arguments).decode())

    def _output(self, message: OllamaMessage) -> TemplateMessage:
        def answers(call: tuple[str, str]) -> bool:
            id_, name = call
            return message.tool_call_id == id_ or (message.tool_call_id is None and message.tool_name in {None, name})

        id_, name = next(filter(answers, self._open), ("call_0", message.tool_name or ""))
        self._open = [call for call in self._open if call[0] != id_]
        return {"role": "tool", "content": message.content, "tool_call_id": id_, "name": name}
