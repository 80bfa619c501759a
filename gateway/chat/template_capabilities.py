"""What a template wants of its messages where templates differ, found by trying."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import orjson

from engine import RequestError

TemplateMessage: TypeAlias = dict[str, Any]
"""A message in OpenAI's shape with its content as one text or None, and its calls' arguments as JSON text."""

Render: TypeAlias = Callable[[Sequence[TemplateMessage]], str]

_NEEDLE = "needle"
_ASKED: TemplateMessage = {"role": "user", "content": _NEEDLE}
_INSTRUCTED: TemplateMessage = {"role": "system", "content": _NEEDLE}
_CALL: TemplateMessage = {
    "id": "call_of_the_needle",
    "type": "function",
    "function": {"name": "f", "arguments": f'{{"{_NEEDLE}":"x"}}'},
}
_CALLED: tuple[TemplateMessage, ...] = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "content": "x", "tool_call_id": _CALL["id"], "name": "f"},
)
_SHORT_ID = 9
"""Mistral's templates refuse ids of calls that have another length."""


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """How one template reads messages.

    Attributes:
        developer: whether it knows that role; else it is given `system`.
        system: whether it shows what that role says.
        calls: whether it shows calls and what they gave.
        typed_content: whether it wants content as an array of parts.
        object_arguments: whether it wants a call's arguments as an object; else as JSON text.
        null_content: whether it wants None beside calls where there is no content; else "".
        short_ids: whether it wants ids of nine letters and digits.
    """

    developer: bool = False
    system: bool = True
    calls: bool = True
    typed_content: bool = False
    object_arguments: bool = True
    null_content: bool = False
    short_ids: bool = False

    def adapt(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """The messages as the template wants them; those given stay as they are."""
        return [self._message(message) for message in messages]

    def add_instructions(self, messages: Sequence[TemplateMessage], instructions: str) -> list[TemplateMessage]:
        """The messages with instructions at the end of a first one that instructs already, or else before them all."""
        first, *others = messages
        if first["role"] in {"system", "developer"}:
            return [{**first, "content": f"{first['content']}\n\n{instructions}"}, *others]
        if self.system or first["role"] != "user":
            return [{"role": "system", "content": instructions}, *messages]
        return [{**first, "content": f"{instructions}\n\n{first['content']}"}, *others]

    def _message(self, message: TemplateMessage) -> TemplateMessage:
        adapted = {**message, "content": self._content(message)}
        if message["role"] == "developer" and not self.developer:
            adapted["role"] = "system"
        if "tool_calls" in message:
            adapted["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        if "reasoning_content" in message and not message["content"]:
            adapted["thinking"] = message["reasoning_content"]  # by this name gpt-oss's template knows it
        if self.short_ids and "tool_call_id" in message:
            adapted["tool_call_id"] = _short_id(message["tool_call_id"])
        return adapted

    def _content(self, message: TemplateMessage) -> object:
        content = message["content"] or ""
        if not content and self.null_content and "tool_calls" in message:
            return None
        return [{"type": "text", "text": content}] if self.typed_content else content

    def _call(self, call: TemplateMessage) -> TemplateMessage:
        function = call["function"]
        if self.object_arguments:
            function = {**function, "arguments": _as_object(function["arguments"])}
        return {**call, "function": function, "id": _short_id(call["id"]) if self.short_ids else call["id"]}


def detect_capabilities(source: str, render: Render) -> TemplateCapabilities:
    """The capabilities that a template of this source takes.

    Args:
        source: the template's text.
        render: renders messages, beside a tool, or raises `RequestError`.
    """
    capabilities = TemplateCapabilities(developer="developer" in source)
    typed = replace(capabilities, typed_content=True)
    if not _shows(render, capabilities, [_ASKED]) and _shows(render, typed, [_ASKED]):
        capabilities = typed
    system = _shows(render, capabilities, [_INSTRUCTED, {"role": "user", "content": "Hello"}])
    capabilities = replace(capabilities, system=system)
    fitting = (candidate for candidate in _candidates(capabilities) if _shows(render, candidate, _CALLED))
    return next(fitting, replace(capabilities, calls=False))


def _candidates(capabilities: TemplateCapabilities) -> Iterator[TemplateCapabilities]:
    for short, null, text in product((False, True), repeat=3):
        yield replace(capabilities, short_ids=short, null_content=null, object_arguments=not text)


def _shows(render: Render, capabilities: TemplateCapabilities, messages: Sequence[TemplateMessage]) -> bool:
    try:
        text = render(capabilities.adapt(messages))
    except RequestError:
        return False
    return _NEEDLE in text and f"'{_NEEDLE}'" not in text  # quoted so, it is Python's way to write an object


def _as_object(arguments: str) -> object:
    """What a model wrote badly stays text: its template may take that too."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _short_id(given: str) -> str:
    """Nine letters and digits, always the same for the same id."""
    if len(given) == _SHORT_ID and given.isalnum() and given.isascii():
        return given
    return hashlib.sha256(given.encode()).hexdigest()[:_SHORT_ID]
