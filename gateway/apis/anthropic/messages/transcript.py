"""Conversion of Anthropic's messages to those of chat templates."""

from collections.abc import Iterable, Sequence

import orjson

from gateway.apis.anthropic.billing import without_billing
from gateway.apis.anthropic.messages.blocks import (
    AnyMessage,
    AssistantMessageParam,
    SystemMessageParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolReferenceBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
    UserMessageParam,
)
from gateway.apis.fields.nested import refusal
from gateway.chat.template_capabilities import TemplateMessage, template_call

_ERROR = "Error: "
"""Begins the output of a tool that failed, because templates have no other place for `is_error`."""


def for_template(system: Sequence[TextBlockParam], messages: Sequence[AnyMessage]) -> tuple[TemplateMessage, ...]:
    """Return the messages in the format of `Conversation`. Consecutive messages of one role become one.

    Raises `RequestError` for a tool's output without its call.
    """
    transcript = _Transcript()
    if instructions := without_billing(joined(system)):
        transcript.text("system", instructions)
    for at, message in enumerate(messages):
        transcript.add(message, f"messages[{at}]")
    return tuple(transcript.messages)


def joined(blocks: Iterable[TextBlockParam | ToolReferenceBlockParam]) -> str:
    """Return texts as one, with line breaks between them."""
    return "\n".join(block.text for block in blocks)


class _Transcript:
    """Conversion of the messages in order, with a record of the calls so far."""

    def __init__(self) -> None:
        self.messages: list[TemplateMessage] = []
        self._names: dict[str, str] = {}  # names of the called tools, by call id

    def add(self, message: AnyMessage, place: str) -> None:
        match message:
            case UserMessageParam():
                self._user(message, place)
            case AssistantMessageParam():
                self._assistant(message)
            case SystemMessageParam():
                self.text("system", joined(message.content))

    def text(self, role: str, text: str) -> None:
        """Add a text to the last message if it has the role, else as another message."""
        message = self._message(role)
        message["content"] = text if message["content"] is None else f"{message['content']}\n{text}"

    def _message(self, role: str) -> TemplateMessage:
        """Return the last message if it has the role, else a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": None})
        return self.messages[-1]

    def _user(self, message: UserMessageParam, place: str) -> None:
        if not message.content:
            self.text("user", "")
        for at, block in enumerate(message.content):
            if isinstance(block, TextBlockParam):
                self.text("user", block.text)
            else:
                self.messages.append(self._result(block, f"{place}.content[{at}]"))

    def _result(self, block: ToolResultBlockParam, place: str) -> TemplateMessage:
        if block.tool_use_id not in self._names:
            raise refusal(f"{place}.tool_use_id", "should be the id of a tool_use block in an earlier message")
        content = f"{_ERROR if block.is_error else ''}{joined(block.content)}"
        called = {"tool_call_id": block.tool_use_id, "name": self._names[block.tool_use_id]}
        return {"role": "tool", "content": content, **called}

    def _assistant(self, message: AssistantMessageParam) -> None:
        turn = self._message("assistant")
        if not message.content:
            self.text("assistant", "")
        for block in message.content:
            match block:
                case TextBlockParam(text=text):
                    self.text("assistant", text)
                case ThinkingBlockParam(thinking=thinking):
                    before = turn.get("reasoning_content")
                    turn["reasoning_content"] = thinking if before is None else f"{before}\n{thinking}"
                case ToolUseBlockParam():
                    self._names[block.id] = block.name
                    arguments = orjson.dumps(block.input).decode()
                    turn.setdefault("tool_calls", []).append(template_call(block.id, block.name, arguments))
