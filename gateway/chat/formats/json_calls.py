"""Calls as JSON objects, which have a name and arguments, each under one of two keys."""

import json
from collections.abc import Mapping

from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import NOTHING
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.formats.values import as_json, read_string, read_value
from gateway.chat.tools import Tool

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_OTHER = ("id", "type", "tool_call_id")


def read_object(source: Source, out: Output, tools: Mapping[str, Signature], *, end: str = "") -> Reading[None]:
    """Read a call.

    The arguments are streamed if the name precedes them; else they are emitted at the end of the object. Missing
    arguments are an empty object. Some models write all of them as one string in JSON, or as null.

    Args:
        source: the text.
        out: the collected output.
        tools: the tools that may be called.
        end: text behind the object that also ends one whose last brace the model forgot. It is not read.

    Raises:
        Malformed: if the text is not a call of one of `tools`.
    """
    call = _JsonCall(source, out, tools)
    yield from source.expect("{")
    yield from source.skip_whitespace()
    separator = ","
    while separator == ",":
        key = yield from read_string(source)
        yield from source.skip_whitespace()
        yield from source.expect(":")
        yield from source.skip_whitespace()
        yield from call.read_member(key)
        yield from source.skip_whitespace()
        separator = yield from source.expect(",", "}", *((end,) if end else ()))
        if separator == ",":
            yield from source.skip_whitespace()
    call.finish()
    if separator == end:
        source.put_back(len(end))


def json_call(rules: Rules, tool: Tool) -> str:
    """Return the expression for a call."""
    head = f'{{"name": {json.dumps(tool.name)}, "arguments": '
    return f"{rules.text(head)} {arguments(tool)} {rules.text('}')}"


class _JsonCall:
    def __init__(self, source: Source, out: Output, tools: Mapping[str, Signature]) -> None:
        self._source, self._out, self._tools = source, out, tools
        self._name: str | None = None
        self._early: list[str] = []  # arguments that came before the name
        self._began = False

    def read_member(self, key: str) -> Reading[None]:
        if key in _NAMES and self._name is None:
            yield from self._read_name()
        elif key in _ARGUMENTS and not self._began and not self._early:
            yield from self._read_arguments()
        elif key in _OTHER or self._began:
            yield from read_value(self._source, _ignore)
        else:
            raise Malformed

    def finish(self) -> None:
        if not self._began:
            self._begin()
            self._out.arguments("".join(self._early) or NOTHING)
        self._source.commit()

    def _read_name(self) -> Reading[None]:
        name = yield from read_string(self._source)
        if name not in self._tools:
            raise Malformed
        self._name = name

    def _read_arguments(self) -> Reading[None]:
        if (yield from self._source.peek()) != "{":
            self._early.append((yield from self._read_other()))
            return
        if self._name is None:
            yield from read_value(self._source, self._early.append)
            return
        self._begin()
        yield from read_value(self._source, self._out.arguments)
        self._source.hold()

    def _read_other(self) -> Reading[str]:
        """Return arguments that are null, or an object in a string."""
        if (yield from self._source.follows("null")):
            return NOTHING
        text = yield from read_string(self._source)
        value = as_json(text) if text.strip() else NOTHING
        if value is None or not value.startswith("{"):
            raise Malformed
        return value

    def _begin(self) -> None:
        if self._name is None:
            raise Malformed
        self._out.call(self._name)
        self._source.commit()
        self._began = True


def _ignore(text: str) -> None:
    """Discard the text of a member that is not part of a call."""
