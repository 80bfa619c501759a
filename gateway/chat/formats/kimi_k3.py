"""Moonshot's Kimi K3.

Three tokens mark all tags: `<|open|>name key="value"<|sep|>` and `<|close|>name<|sep|>`. Reasoning is in `think`, the
answer in `response`, and all calls, each of them in `call`, in `tools`. Arguments stand between tags with their types.
"""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from gateway.chat.formats.lark import ANYTHING, Rules
from gateway.chat.formats.parser import Tags
from gateway.chat.formats.tag_calls import Markup, TagCalls
from gateway.chat.formats.text_arguments import ValueTags
from gateway.chat.tools import Tool

OPEN = "<|open|>"
_CLOSE, _SEP = "<|close|>", "<|sep|>"
_END = "<|end_of_msg|>"
_TYPES = {
    "string": {"string"},
    "number": {"number", "integer"},
    "integer": {"integer"},
    "boolean": {"boolean"},
    "null": {"null"},
    "object": {"object"},
    "array": {"array"},
}
"""Types of JSON schema by those in tags. The template has no `integer`, but the schemas that models see have it."""


def _tags(name: str) -> Tags:
    return Tags(f"{OPEN}{name}{_SEP}", f"{_CLOSE}{name}{_SEP}")


_RESPONSE = _tags("response")
_MESSAGE_END = _tags("message").closing
_MARKUP = Markup(
    block=_tags("tools"),
    shared_block=True,
    call=Tags(f'{OPEN}call tool="', _tags("call").closing),
    head_end=f'"{_SEP}',
    index='" index="',
    argument=Tags(f'{OPEN}argument key="', '" type="'),
    values=tuple(
        ValueTags(f'{name}"{_SEP}', _tags("argument").closing, frozenset(types)) for name, types in _TYPES.items()
    ),
    between_calls="",
    between_arguments="",
    inner_tokens=(OPEN, _CLOSE, _SEP),
    calls_end_reasoning=True,
)


class KimiK3(TagCalls):
    """Format of Kimi K3."""

    marks = (_RESPONSE.opening, _RESPONSE.closing, _MESSAGE_END, _END)
    answer_mark = _RESPONSE.opening

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        super().__init__(special_tokens, _tags("think"), _MARKUP)

    @override
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return f"({rules.text(_RESPONSE.closing)})? {super().forced(rules, tools, parallel=parallel)}"

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for a response that has its end, or not, with or without calls after it."""
        calls = self.calls(rules, tools, parallel=parallel)
        after = f"({rules.text(self.opening)} {calls})? ({rules.text(_MESSAGE_END)})?"
        unended = f"{rules.until(self.opening)} {calls} | {rules.rule(ANYTHING)}"
        return f"({rules.until(_RESPONSE.closing)} {after} | {unended})"
