"""Masks for users' text, so that a template's output shows where it has names of control tokens.

The characters that make a name are replaced one by one, so that templates can cut, trim and join the text as always.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from typing import Any, TypeAlias

from engine import PromptText, RequestError, TextPrompt
from gateway.chat.control_names import ControlNames, Span
from gateway.chat.template_capabilities import TemplateMessage
from gateway.chat.tools import Tool

Change: TypeAlias = Callable[[str], str]
"""Returns a text, or another in its place."""

_OURS = frozenset({"role", "type"})
"""Fields of messages that do not have a text of the client."""

_STAND_INS = range(0x3400, 0x4DC0)
"""Rare ideographs. No filter of a template changes their case, takes them for spaces, or escapes them for display."""

_USED = re.compile(r"[\u3400-\u4dbf]|\\u(?:3[4-9a-f]|4[0-9a-d])[0-9a-f]{2}", re.IGNORECASE)
"""Such a character in a text, or its escape in JSON, which some templates write."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""A string in JSON."""


class Survey:
    """Reads all text that a template renders, and finds out if it needs a mask."""

    def __init__(self, names: ControlNames) -> None:
        self._names = names
        self._needed = False
        self._used: set[int] = set()

    def read(self, text: str) -> str:
        """Read a text, and return it."""
        self._used |= {_code(match[0]) for match in _USED.finditer(text)}
        self._needed = self._needed or next(self._names.find_marks(text), None) is not None
        return text

    def mask(self, template: str) -> "Mask | None":
        """Return a mask for the texts, or None if they need none.

        Args:
            template: the source of the template.

        Raises:
            RequestError: the texts have too many rare characters.
        """
        if not self._needed:
            return None
        self.read(template)
        alphabet = sorted(self._names.alphabet)
        free = [chr(code) for code in _STAND_INS if code not in self._used]
        if len(free) < len(alphabet):
            message = "The messages have names of control tokens, and too many different rare ideographs beside them."
            raise RequestError(message, code="invalid_value", param="messages")
        return Mask(self._names, dict(zip(alphabet, free, strict=False)))


class Mask:
    """Replaces characters of texts by others that stand for them, which no text has."""

    def __init__(self, names: ControlNames, stand_ins: Mapping[str, str]) -> None:
        """Take the names to hide, and a stand-in for each of their characters."""
        self._names = names
        self._stand_ins = stand_ins
        self._hidden = {ord(stand_in): character for character, stand_in in stand_ins.items()}
        codes = "|".join(f"{code:04x}" for code in self._hidden)
        self._shown = re.compile(f"[{''.join(map(chr, self._hidden))}]|\\\\u(?:{codes})")

    def hide(self, text: str) -> str:
        """Return a text of the same length in which no name is left."""
        marks = bytearray(len(text))
        for mark in self._names.find_marks(text):
            marks[mark] = 1
        if 1 not in marks:
            return text
        return "".join(self._stand_ins[one] if mark else one for one, mark in zip(text, marks, strict=True))

    def reveal(self, rendered: str) -> TextPrompt:
        """Return what a template rendered from masked texts, with the hidden names as plain parts."""
        out, hidden, at = StringIO(), bytearray(), 0
        for match in self._shown.finditer(rendered):
            out.write(rendered[at : match.start()])
            one = self._hidden[_code(match[0])]
            shown = one if len(match[0]) == 1 else json.dumps(one)[1:-1]
            out.write(shown)
            hidden += bytes(match.start() - at) + b"\1" * len(shown)
            at = match.end()
        out.write(rendered[at:])
        text = out.getvalue()
        plain = tuple(self._plain(text, hidden))
        return PromptText(text, plain) if plain else text

    def _plain(self, text: str, hidden: bytearray) -> list[Span]:
        """Return the parts between control tokens that have a hidden name."""
        parts: list[Span] = []
        begin, forged = 0, False
        for start, end in self._names.find(text):
            if hidden.find(1, start, end) >= 0:
                forged = True
            elif start >= begin:
                parts += [(begin, start)] if forged else []
                begin, forged = end, False
        return [*parts, (begin, len(text))] if forged else parts


def change_message(message: TemplateMessage, change: Change) -> TemplateMessage:
    """Return a message with the changed texts of the client."""
    changed = {key: value if key in _OURS else change_value(value, change) for key, value in message.items()}
    if "tool_calls" in message:
        changed["tool_calls"] = [_call(call, change) for call in message["tool_calls"]]
    return changed


def change_tool(tool: Tool, change: Change) -> Tool:
    """Return a tool with changed texts."""
    description = None if tool.description is None else change(tool.description)
    return replace(
        tool, name=change(tool.name), description=description, parameters=change_value(tool.parameters, change)
    )


def change_value(value: Any, change: Change) -> Any:  # noqa: ANN401 (JSON)
    """Return a JSON value with changed strings, also as keys of objects."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(key): change_value(item, change) for key, item in value.items()}
        case list():
            return [change_value(item, change) for item in value]
    return value


def _call(call: TemplateMessage, change: Change) -> TemplateMessage:
    function = call["function"]
    changed = {"name": change(function["name"]), "arguments": _arguments(function["arguments"], change)}
    return {**call, "id": change(call["id"]), "function": changed}


def _arguments(text: str, change: Change) -> str:
    """Return the JSON text of arguments with changed strings. Everything else in it stays, also where it is invalid."""
    return change(_STRING.sub(lambda match: _json_string(match[0], change), text))


def _json_string(quoted: str, change: Change) -> str:
    text = _unquoted(quoted)
    changed = text if text is None else change(text)
    if changed == text:
        return quoted
    as_written = f'"{change(quoted[1:-1])}"'
    return as_written if _unquoted(as_written) == changed else json.dumps(changed, ensure_ascii=quoted.isascii())


def _unquoted(quoted: str) -> str | None:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return None


def _code(character: str) -> int:
    return ord(character) if len(character) == 1 else int(character.removeprefix("\\u"), 16)
