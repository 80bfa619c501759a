"""Items of a response's input and output, in the format in which they are stored and sent."""

import re
from base64 import b64decode, b64encode
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, cast
from uuid import uuid4

from pydantic import Field

from gateway.apis.answers.shapes import ChosenLogprob, JsonObject

ENCODED_REASONING = r"^plain\.(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""Pattern of the `encrypted_content` that this server makes. The words are encoded, not encrypted."""

_ENCODED = re.compile(r"plain\.([A-Za-z0-9+/]*+={0,2})")
"""The same without the lengths: `re` would keep a state of 160 bytes for each four characters."""
_GROUP = 4
_MARK = "plain."

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
MessagePhase: TypeAlias = Literal["commentary", "final_answer"]
"""What OpenAI's models call their messages. Clients send it back."""


class InputText(JsonObject):
    """A text by the client."""

    type: Literal["input_text"]
    text: str


class OutputText(JsonObject):
    """A text by the model."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[ChosenLogprob]


class RefusalText(JsonObject):
    """A refusal by the model."""

    type: Literal["refusal"]
    refusal: str


class OutputReasoningText(JsonObject):
    """A text of the model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningSummary(JsonObject):
    """A summary of reasoning."""

    type: Literal["summary_text"]
    text: str


MessagePart: TypeAlias = InputText | OutputText | RefusalText


class StoredMessage(JsonObject):
    """A message of the input."""

    id: str
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    status: ItemStatus
    content: list[MessagePart]
    phase: NotRequired[MessagePhase]


class StoredReasoning(JsonObject):
    """Reasoning of the input."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[ReasoningSummary]
    content: list[OutputReasoningText]
    encrypted_content: NotRequired[str]


class StoredCallOutput(JsonObject):
    """The output of a function call, or of a call of a custom tool."""

    id: str
    type: Literal["function_call_output", "custom_tool_call_output"]
    status: ItemStatus
    call_id: str
    output: list[MessagePart]


class OutputMessage(JsonObject):
    """A message by the model."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class OutputReasoning(JsonObject):
    """The whole reasoning by the model, without a summary."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: Annotated[list[ReasoningSummary], Field(max_length=0)]
    content: list[OutputReasoningText]
    encrypted_content: NotRequired[Annotated[str, Field(description="The words of `content`, encoded.")]]


class OutputCall(JsonObject):
    """A function call by the model. Its arguments are JSON text, unchanged from the model's output."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    arguments: str


class OutputCustomCall(JsonObject):
    """A call of a custom tool by the model. Its input is unchanged from the model's output."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    input: str


OutputItem: TypeAlias = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall
Item: TypeAlias = StoredMessage | StoredReasoning | StoredCallOutput | OutputItem
"""An item of an input or an output. An input may contain earlier output items, by reference to their ids."""

_Named = TypeVar("_Named", bound=JsonObject)


def new_id(prefix: str) -> str:
    """Return a new id with this prefix: `msg_…`."""
    return f"{prefix}_{uuid4().hex}"


def output_text(text: str, logprobs: list[ChosenLogprob] | None = None) -> OutputText:
    """Return a text part of a message by the model."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def in_namespace(item: _Named, namespace: str | None) -> _Named:
    """Return an item or a choice that names a tool, with the tool's namespace if it has one."""
    return item if namespace is None else cast("_Named", {**item, "namespace": namespace})


def encode_reasoning(text: str) -> str:
    """Return the words of a reasoning item as its `encrypted_content`, for clients that send only this back."""
    return _MARK + b64encode(text.encode()).decode()


def decode_reasoning(content: str) -> str | None:
    """Return the words in an `encrypted_content`, or None if it comes from another server."""
    found = _ENCODED.fullmatch(content)
    if found is None or len(found[1]) % _GROUP:
        return None
    return b64decode(found[1]).decode(errors="replace")
