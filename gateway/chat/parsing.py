"""Description of the parser of a model's output, from which any process can make the parser."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from typing_extensions import override

from gateway.chat.custom_inputs import CustomInputs
from gateway.chat.deltas import ContentDelta, Delta, FormatParser, ReasoningDelta
from gateway.chat.formats import FormatKey, create
from gateway.chat.formats.signature import Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserKey:
    """Everything that the parser of one conversation's output depends on. It is slim, and can be encoded."""

    format: FormatKey
    """Format of the output."""
    tools: tuple[Signature, ...]
    """Tools in the prompt. A call of any other tool is content."""
    thinking: bool
    """True if the prompt ended inside reasoning."""
    one_call: bool
    """True if all calls after the first are dropped."""
    custom: tuple[str, ...] = ()
    """Names of the custom tools among them."""
    inline: bool = False
    """True if reasoning is content, with its tags."""
    drafts: bool = False
    """True if a call in reasoning is only a draft. It is one where a grammar forces the end of reasoning."""

    def parser(self) -> FormatParser:
        """Return a parser for the text of one choice."""
        family = create(self.format)
        parser = family.parser(tools=self.tools, thinking=self.thinking, inline=self.inline, drafts=self.drafts)
        if self.custom:
            parser = CustomInputs(parser, self.custom)
        return _OneCall(parser) if self.one_call else parser


class _OneCall(FormatParser):
    """Parser that drops all calls after the first."""

    def __init__(self, parser: FormatParser) -> None:
        self._parser = parser

    @property
    @override
    def cut_calls(self) -> Collection[int]:
        return {0}.intersection(self._parser.cut_calls)

    @override
    def feed(self, text: str) -> list[Delta]:
        return _first_call(self._parser.feed(text))

    @override
    def finish(self) -> list[Delta]:
        return _first_call(self._parser.finish())


def _first_call(deltas: Iterable[Delta]) -> list[Delta]:
    return [delta for delta in deltas if isinstance(delta, ContentDelta | ReasoningDelta) or delta.index == 0]
