"""What a family's format can do, and what most families have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from typing_extensions import override

from engine import Grammar, GrammarKind, RequestError
from gateway.chat.deltas import FormatParser
from gateway.chat.formats.lark import ANYTHING, Rules, embedded
from gateway.chat.formats.parser import Reader, ReaderParser, Tags, TextParser, read_answer
from gateway.chat.formats.text_calls import IN_JSON, TextCalls
from gateway.chat.tools import Named, Tool, ToolChoice

WHITESPACE = r"/\s{0,4}/"
"""What models put between reasoning, content and calls; bounded, lest they never stop."""


class Format(Protocol):
    """How a family of models writes reasoning and calls. Holds no state of any request.

    Attributes:
        name: the family's.
        show_special: whether its parser needs control tokens in the text.
        text_calls: how calls are told of where the template shows none.
    """

    name: str
    show_special: bool
    text_calls: TextCalls

    def opens_thinking(self, prompt: str) -> bool:
        """Whether a prompt ends inside reasoning, so that the model's text begins there."""
        ...

    def instructions(self, tools: Sequence[Tool]) -> str | None:
        """What the system message must say where the template does not show tools; None where it does."""
        ...

    def parser(self, *, tools: Sequence[Tool], thinking: bool) -> FormatParser:
        """A parser for one choice.

        Args:
            tools: those that the prompt offers. A call of any other is content, and without any, so is every call.
            thinking: whether the prompt ended inside reasoning.
        """
        ...

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, thinking: bool) -> Grammar | None:
        """What forces the calls that `choice` demands; where it is "auto" and a tool is strict, what keeps calls to
        their schemas and leaves all other text free; else None.

        Args:
            parallel: whether there may be several calls.
            thinking: as for `parser`.

        Raises `RequestError` where a choice names none of `tools`, and where a strict schema cannot be enforced.
        """
        ...

    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        """A grammar for the answer, widened to let the family's reasoning stand before it.

        Raises `RequestError` where that cannot be had.
        """
        ...


class TaggedFormat(Format, ABC):
    """A format whose calls begin with a marker, and whose reasoning stands between two.

    Attributes:
        opening: the marker that calls begin with when they are forced.
        reasoning_tags: the tags around reasoning; None where the family does not think.
    """

    name: str
    show_special = True
    text_calls = IN_JSON
    opening: str

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        self.special_tokens = special_tokens
        self.reasoning_tags = reasoning_tags

    @abstractmethod
    def readers(self, tools: Mapping[str, Tool]) -> Mapping[str, Reader]:
        """Readers of calls by the markers that open them, which they find passed."""

    @abstractmethod
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """The expression for what follows `opening`: a call, or several."""

    def leading(self, _tools: Mapping[str, Tool]) -> Mapping[str, Reader]:
        """Readers of calls by the texts that open them where an answer begins, and nowhere else."""
        return {}

    @override
    def opens_thinking(self, prompt: str) -> bool:
        return self.reasoning_tags is not None and prompt.rstrip().endswith(self.reasoning_tags.opening)

    @override
    def instructions(self, tools: Sequence[Tool]) -> str | None:
        return None

    @override
    def parser(self, *, tools: Sequence[Tool], thinking: bool) -> FormatParser:
        if not tools and self.reasoning_tags is None:
            return TextParser()
        known = {tool.name: tool for tool in tools}
        reader = partial(
            read_answer,
            calls=self.readers(known) if tools else {},
            leading=self.leading(known) if tools else {},
            reasoning_tags=self.reasoning_tags,
            thinking=thinking,
        )
        return ReaderParser(reader)

    @override
    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, thinking: bool) -> Grammar | None:
        if choice == "none" or (choice == "auto" and not any(tool.strict for tool in tools)):
            return None
        rules = Rules(self.special_tokens)
        before = self._reasoning(rules, thinking=thinking)
        calls = self.calls(rules, chosen(tools, choice), parallel=parallel)
        answer = self.free(rules, calls, parallel=parallel) if choice == "auto" else self.forced(rules, calls)
        return rules.grammar(f"{before} {answer}")

    def forced(self, rules: Rules, calls: str) -> str:
        """The expression for an answer that is `calls`."""
        return f"{rules.text(self.opening)} {calls}"

    def free(self, rules: Rules, calls: str, *, parallel: bool) -> str:
        """The expression for an answer that may contain `calls`."""
        called = f"{rules.until(self.opening)} {calls}"
        return f"({called})* {rules.rule(ANYTHING)}" if parallel else f"({called} | {rules.rule(ANYTHING)})"

    @override
    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        if self.reasoning_tags is None or (grammar.kind is GrammarKind.GBNF and not thinking):
            return grammar
        rules = Rules(self.special_tokens)
        return rules.grammar(f"{self._reasoning(rules, thinking=thinking)} {embedded(grammar)}")

    def _reasoning(self, rules: Rules, *, thinking: bool) -> str:
        if self.reasoning_tags is None:
            return ""
        closed = f"{rules.until(self.reasoning_tags.closing)} {WHITESPACE}"
        return closed if thinking else f"({rules.text(self.reasoning_tags.opening)} {closed})?"


def chosen(tools: Sequence[Tool], choice: ToolChoice) -> Sequence[Tool]:
    """The tools that `choice` lets the model call. Raises `RequestError` where there is none."""
    found = [tool for tool in tools if not isinstance(choice, Named) or tool.name == choice.name]
    if not found:
        wanted = f"a tool named {choice.name}" if isinstance(choice, Named) else "a tool"
        raise RequestError(f"tool_choice demands {wanted}, and tools has none.", param="tool_choice")
    return found
