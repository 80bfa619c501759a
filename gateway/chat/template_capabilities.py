"""Capabilities of chat templates, as llama.cpp calls them, detected by trial renders."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, TypeAlias

from engine import RequestError
from gateway.chat.call_shapes import as_object, short_id, with_calls_apart, with_counted_ids, with_tool_responses
from gateway.chat.template_variables import EFFORTS, NO_THINK
from gateway.chat.tools import Tool

TemplateMessage: TypeAlias = dict[str, Any]
"""A message in OpenAI's chat shape. Content is one text or None, arguments of calls are JSON text."""


def template_call(call_id: str, name: str, arguments: str) -> TemplateMessage:
    """Return a call in the format of `TemplateMessage`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


Render: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Renders a template with variables; raises `RequestError` if it refuses them."""

_NEEDLE = "needle"
_ASKED: TemplateMessage = {"role": "user", "content": _NEEDLE}
_INSTRUCTED: TemplateMessage = {"role": "system", "content": _NEEDLE}
_GREETING: TemplateMessage = {"role": "user", "content": "Hello"}
INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles of messages with instructions for the model."""
_CALL = template_call("call_of_the_needle", "f", f'{{"{_NEEDLE}":"x"}}')
_CALLED: tuple[TemplateMessage, ...] = (
    _GREETING,
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "content": "x", "tool_call_id": _CALL["id"], "name": "f"},
)
_SAID_AND_CALLED: tuple[TemplateMessage, ...] = (_GREETING, {**_CALLED[1], "content": "x"}, _CALLED[2])
_ANSWERED: tuple[TemplateMessage, ...] = (
    _GREETING,
    {"role": "assistant", "content": None, "tool_calls": [template_call(_CALL["id"], "f", "{}")]},
    {"role": "tool", "content": _NEEDLE, "tool_call_id": _CALL["id"], "name": "f"},
)
_REASONED: tuple[TemplateMessage, ...] = (
    _GREETING,
    {"role": "assistant", "content": "x", "reasoning_content": _NEEDLE},
)
_BARE = Tool("f", parameters={"type": "object"})
_DEVELOPER = re.compile("""['"]developer['"]""")
"""The role in the templates that know it. Cohere's and Apertus's only have variables of this name."""
_THINKING = "'thinking'"
"""Type of a part of reasoning, in the templates of Magistral and Ministral."""
_COUNTED = "<|tool_call_argument_begin|>"
"""Marker in the templates of Kimi K2, whose calls have names and indices as ids."""
_RESPONSES, _CALL_ID = "tool_responses", "tool_call_id"
"""Fields in the templates of Gemma 4. The first template has the first only, and shows other results as plain turns.
Hunyuan's has only tags of this name.
"""


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """Capabilities of one template: the roles, and the shapes of messages and of tools, that it supports."""

    developer: bool = False
    """Supports the role `developer`; if not, it gets `system` instead."""
    system: bool = True
    """Renders messages of the role `system`; if not, their text joins the user's."""
    late_system: bool = True
    """Renders several such messages, also behind others; if not, the texts of later ones join those of others."""
    calls: bool = True
    """Renders tool calls and their results."""
    typed_content: bool = False
    """Requires content as an array of parts."""
    object_arguments: bool = True
    """Requires a call's arguments as an object; if not, as JSON text."""
    null_content: bool = False
    """Requires None for missing content beside calls; if not, ""."""
    calls_apart: bool = False
    """Requires a message of its own for a text beside calls: it shows one of both."""
    short_ids: bool = False
    """Requires ids of nine letters and digits."""
    counted_ids: bool = False
    """Requires ids of names and indices."""
    tool_responses: bool = False
    """Requires results of calls in the message that has the calls."""
    thinking_parts: bool = False
    """Requires reasoning as a part of the content."""
    tool_list: bool = False
    """Requires a list of tools also where there are none: it loops over them without asking."""
    complete_tools: bool = False
    """Requires what a tool may lack: a description, and properties of its parameters."""
    efforts: tuple[str, ...] = ()
    """Values of `reasoning_effort` that it takes, if it does not take all."""

    def adapt(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """Return the messages in the shape that the template requires. Does not modify the arguments."""
        placed = messages if self.late_system else _with_early_instructions(messages)
        placed = placed if self.system else _with_users_instructions(placed)
        named = with_counted_ids(placed) if self.counted_ids else placed
        apart = with_calls_apart(named) if self.calls_apart else named
        turns = with_tool_responses(apart) if self.tool_responses else apart
        return [self._message(message) for message in turns]

    def describe(self, tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
        """Return the tools in the shape that the template requires."""
        described = [_described(_completed(tool) if self.complete_tools else tool) for tool in tools]
        return described or ([] if self.tool_list else None)  # a template may add to a list

    def _message(self, message: TemplateMessage) -> TemplateMessage:
        adapted = {**message, "content": self._content(message)}
        if message["role"] == "developer" and not self.developer:
            adapted["role"] = "system"
        if "tool_calls" in message:
            adapted["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        if "reasoning_content" in message:
            adapted["reasoning"] = message["reasoning_content"]  # the name in Solar Open's template
            if not message["content"]:
                adapted["thinking"] = message["reasoning_content"]  # that in gpt-oss's
        if self.short_ids and "tool_call_id" in message:
            adapted["tool_call_id"] = short_id(message["tool_call_id"])
        return adapted

    def _content(self, message: TemplateMessage) -> object:
        content = message["content"] or ""
        if self.thinking_parts and (reasoning := message.get("reasoning_content")):
            text = [{"type": "text", "text": content}] if content else []
            return [{"type": "thinking", "thinking": reasoning}, *text]
        if not content and self.null_content and "tool_calls" in message:
            return None
        return [{"type": "text", "text": content}] if self.typed_content else content

    def _call(self, call: TemplateMessage) -> TemplateMessage:
        function = call["function"]
        if self.object_arguments:
            function = {**function, "arguments": as_object(function["arguments"])}
        return {**call, "function": function, "id": short_id(call["id"]) if self.short_ids else call["id"]}


def with_instructions(messages: Sequence[TemplateMessage], instructions: str) -> list[TemplateMessage]:
    """Return the messages with instructions for the model.

    They are appended to a first message of the role `system` or `developer`, else put before all messages.
    """
    if not messages or messages[0]["role"] not in INSTRUCTIONS:
        return [{"role": "system", "content": instructions}, *messages]
    first, *others = messages
    return [{**first, "content": f"{first['content']}\n\n{instructions}"}, *others]


def detect_capabilities(source: str, render: Render) -> TemplateCapabilities:
    """Return the capabilities of a template.

    Args:
        source: the template's source.
        render: renders it.
    """
    capabilities = TemplateCapabilities(
        counted_ids=_COUNTED in source,
        tool_responses=_RESPONSES in source and _CALL_ID not in source,
    )
    typed = replace(capabilities, typed_content=True)
    if not _shows(render, capabilities, [_ASKED]) and _shows(render, typed, [_ASKED]):
        capabilities = typed
    system = _shows(render, capabilities, [_INSTRUCTED, _GREETING])
    known = replace(capabilities, developer=bool(_DEVELOPER.search(source)))
    capabilities = known if _shows(render, known, [{**_INSTRUCTED, "role": "developer"}, _GREETING]) else capabilities
    late = all(_shows(render, capabilities, messages) for messages in _instructed_twice())
    capabilities = replace(capabilities, system=system, late_system=late)
    fitting = (candidate for candidate in _candidates(capabilities) if _shows(render, candidate, _CALLED))
    found = next(fitting, replace(capabilities, calls=False))
    apart = replace(found, calls_apart=True)
    if not _shows(render, found, _SAID_AND_CALLED) and _shows(render, apart, _SAID_AND_CALLED):
        found = apart
    found = replace(found, tool_responses=found.tool_responses and _shows(render, found, _ANSWERED))
    parted = replace(found, thinking_parts=True)
    parts = _THINKING in source and not _shows(render, found, _REASONED) and _shows(render, parted, _REASONED)
    shaped = _with_tools(render, parted if parts else found)
    return replace(shaped, efforts=_efforts(render, shaped))


def _instructed_twice() -> Iterator[list[TemplateMessage]]:
    """Yield chats with late instructions. Some templates show only the last ones, or count them as a turn."""
    for first, late in ((_NEEDLE, "x"), ("x", _NEEDLE)):
        yield [
            {"role": "system", "content": first},
            _GREETING,
            {"role": "system", "content": late},
            {"role": "assistant", "content": "x"},
            _GREETING,
        ]


def _candidates(capabilities: TemplateCapabilities) -> Iterator[TemplateCapabilities]:
    for short, null, text in product((False, True), repeat=3):
        yield replace(capabilities, short_ids=short, null_content=null, object_arguments=not text)


def _shows(render: Render, capabilities: TemplateCapabilities, messages: Sequence[TemplateMessage]) -> bool:
    tools = [_described(Tool("f", "A function."))]
    try:
        text = render({"messages": capabilities.adapt(messages), "tools": tools, "add_generation_prompt": False})
    except RequestError:
        return False
    return _NEEDLE in text and f"'{_NEEDLE}'" not in text  # in these quotes it is the repr of a Python object


def _with_tools(render: Render, found: TemplateCapabilities) -> TemplateCapabilities:
    """Return capabilities with those for tools."""
    messages = found.adapt([_GREETING])

    def takes(tools: Sequence[object] | None) -> bool:
        try:
            render({"messages": messages, "tools": tools, "add_generation_prompt": True})
        except RequestError:
            return False
        return True

    return replace(
        found,
        tool_list=not takes(None) and takes([]),
        complete_tools=not takes([_described(_BARE)]) and takes([_described(_completed(_BARE))]),
    )


def _efforts(render: Render, found: TemplateCapabilities) -> tuple[str, ...]:
    """Return the efforts that the template takes; empty if it takes all.

    It does not take "none" if it ignores the name, but not that of the least effort.
    """
    variables = {"messages": found.adapt([_GREETING]), "tools": found.describe(()), "add_generation_prompt": True}

    def prompt(**chosen: object) -> str | None:
        try:
            return render({**variables, **chosen})
        except RequestError:
            return None

    names = (*EFFORTS, NO_THINK)
    prompts = {name: prompt(reasoning_effort=name, enable_thinking=name != "none") for name in names}
    ignored = {"none", NO_THINK} if prompts["none"] == prompt() != prompts["minimal"] else set()
    taken = tuple(name for name in names if prompts[name] is not None and name not in ignored)
    return () if set(EFFORTS) <= set(taken) else taken


def _described(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": tool.described()}


def _completed(tool: Tool) -> Tool:
    """Return a tool with all that a template may read."""
    parameters = {**tool.parameters, "properties": tool.parameters.get("properties", {})}
    return replace(tool, description=tool.description or "", parameters=parameters)


def _with_early_instructions(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """Return the messages with instructions at the beginning only. What is cached of the prompt stays the same.

    Later ones join the text before them, or are a user's where the model's answer is before them, together with the
    user's text that follows.
    """
    turns = list(messages[:1])
    for before, message in pairwise(messages):
        last, late = turns[-1], message["role"] in INSTRUCTIONS
        follows = before["role"] in INSTRUCTIONS and last["role"] == message["role"] == "user"
        if follows or (late and last["role"] != "assistant"):
            turns[-1] = {**last, "content": f"{last['content'] or ''}\n{message['content'] or ''}"}
        else:
            turns.append({**message, "role": "user"} if late else message)
    return turns


def _with_users_instructions(messages: Sequence[TemplateMessage]) -> Sequence[TemplateMessage]:
    """Return the messages with first instructions in the user's message after them, or as one of the user."""
    if not messages or messages[0]["role"] not in INSTRUCTIONS:
        return messages
    first, *others = messages
    if others and others[0]["role"] == "user":
        text = f"{first['content'] or ''}\n\n{others[0]['content'] or ''}"
        return [{**others[0], "content": text}, *others[1:]]
    return [{**first, "role": "user"}, *others]
