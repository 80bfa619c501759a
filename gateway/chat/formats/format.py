"""Base classes of output formats."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from engine import Grammar, GrammarKind, RequestError
from gateway.chat.deltas import FormatParser
from gateway.chat.formats.lark import ANYTHING, Rules, embedded
from gateway.chat.formats.parser import Reader, ReaderParser, ReasoningSyntax, Tags, TextParser, read_answer
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.text_calls import IN_JSON
from gateway.chat.tools import Named, Tool, ToolChoice

WHITESPACE = r"/\s{0,4}/"
"""Whitespace between reasoning, content and calls. Bounded, so that a model cannot generate it forever."""


class Format(ABC):
    """Syntax of reasoning and tool calls of a model family. Holds no state of a request."""

    show_special = True
    """True if the parser needs control tokens in the text."""
    shows_tools = True
    """True if the template shows the tools."""
    call_instructions = ""
    """Text about the form of calls, behind the tools; empty if the models know it from their training."""
    text_calls = IN_JSON
    """Notation of calls as text, for templates that do not render calls."""
    between_messages = ""
    """Text with which the family begins a further message of one answer; empty if there is none."""
    nested_values = False
    """True if the parser needs the schemas of nested values."""
    opening: str = ""
    """Marker that begins forced calls; empty if there is none."""
    calls_end_reasoning = False
    """True if models call tools or answer without the end of their reasoning."""
    reasons_again = False
    """True if the tags around reasoning are control tokens, so that they also count behind calls."""
    inner_tokens: tuple[str, ...] = ()
    """Tokens that are parts of the markers, and special in some vocabularies."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        """Create the format.

        Args:
            special_tokens: ids of the model's special tokens by their names.
            reasoning_tags: the tags around reasoning, if the family reasons.
        """
        self.special_tokens = special_tokens
        self.reasoning_tags = reasoning_tags

    def opens_thinking(self, prompt: str) -> bool:
        """Return whether a prompt ends inside reasoning, so that the generated text begins inside it."""
        return self.reasoning_tags is not None and prompt.rstrip().endswith(self.reasoning_tags.opening)

    def instructions(self, tools: Sequence[Tool]) -> str | None:
        """Return the system message's text about the tools, or None if the template renders tools itself."""
        if self.shows_tools or not tools:
            return None
        listed = "\n".join(json.dumps(tool.described()) for tool in tools)
        return f"You may call these functions:\n<tools>\n{listed}\n</tools>{self.call_instructions}"

    @abstractmethod
    def parser(
        self, *, tools: Sequence[Signature], thinking: bool, inline: bool = False, drafts: bool = False
    ) -> FormatParser:
        """Return a parser for one choice.

        Args:
            tools: the tools in the prompt. A call of any other tool is content; so is every call if there are no tools.
            thinking: True if the prompt ended inside reasoning.
            inline: True if reasoning is content, with its tags.
            drafts: True if calls in reasoning are only drafts, also where they would end it.
        """

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, thinking: bool) -> Grammar | None:
        """Return a grammar that forces the calls that `choice` demands, or None if no grammar is needed.

        If the choice is "auto" and a tool is strict, the grammar constrains calls to their schemas, and leaves all
        other text free.

        Args:
            tools: the tools in the prompt.
            choice: the request's `tool_choice`.
            parallel: True if several calls are allowed.
            thinking: True if the prompt ended inside reasoning.

        Raises:
            RequestError: if `choice` names a tool that `tools` lacks, or a strict schema cannot be enforced.
        """
        if choice == "none" or (choice == "auto" and not any(tool.strict for tool in tools)):
            return None
        rules = Rules(self.special_tokens, self.inner_tokens)
        before = self.before(rules, thinking=thinking)
        answer = self.free if choice == "auto" else self.forced
        return rules.grammar(f"{before} {answer(rules, _chosen(tools, choice), parallel=parallel)}")

    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        """Return a grammar for an answer that the family's reasoning may precede.

        Args:
            grammar: the grammar of the answer.
            thinking: True if the prompt ended inside reasoning.

        Raises:
            RequestError: if the answer's grammar cannot be combined with reasoning.
        """
        rules = Rules(self.special_tokens, self.inner_tokens)
        return rules.grammar(f"{self.before(rules, thinking=thinking)} {self.answer(rules, embedded(grammar))}")

    @abstractmethod
    def before(self, rules: Rules, *, thinking: bool) -> str:
        """Return the expression for the text before the answer."""

    @abstractmethod
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for an answer that consists of calls: of one, or of several if `parallel`."""

    @abstractmethod
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for an answer that may contain calls."""

    @abstractmethod
    def answer(self, rules: Rules, content: str) -> str:
        """Return the expression for an answer with `content` and the marks around it."""


class TaggedFormat(Format):
    """Base class of formats with a marker before calls and a pair of tags around reasoning."""

    marks: tuple[str, ...] = ()
    """Marks around content, which parsers drop."""
    answer_mark = ""
    """Mark that models write before content and calls, if there is one."""

    @abstractmethod
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        """Return the readers of calls by their opening markers. A reader starts after its marker."""

    @abstractmethod
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for the text after `opening`: one call, or several if `parallel`."""

    def leading(self, _tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        """Return the readers by opening texts that count only at the start of an answer, of calls if it has tools."""
        return {}

    @override
    def parser(
        self, *, tools: Sequence[Signature], thinking: bool, inline: bool = False, drafts: bool = False
    ) -> FormatParser:
        if not (tools or self.marks or self.reasoning_tags):
            return TextParser()
        known = {tool.name: tool for tool in tools}
        reader = partial(
            read_answer,
            calls=self.readers(known) if tools else {},
            marks=self.marks,
            leading=self.leading(known),
            reasoning=ReasoningSyntax(
                self.reasoning_tags,
                ended_by_calls=self.calls_end_reasoning and not drafts,
                again=self.reasons_again,
                opened=thinking,
            ),
        )
        return ReaderParser(reader, inline=inline)

    @override
    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        if self.reasoning_tags is None or (grammar.kind is GrammarKind.GBNF and not thinking):
            return grammar
        return super().answer_grammar(grammar, thinking=thinking)

    @override
    def before(self, rules: Rules, *, thinking: bool) -> str:
        mark = f"({rules.text(self.answer_mark)})?" if self.answer_mark else ""
        return f"{self._reasoning(rules, thinking=thinking)} {mark}"

    @override
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return f"{rules.text(self.opening)} {self.calls(rules, tools, parallel=parallel)}"

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        called = self.called(rules, tools, parallel=parallel)
        return f"({called})* {rules.rule(ANYTHING)}" if parallel else f"({called} | {rules.rule(ANYTHING)})"

    def called(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for any text with calls after it."""
        return f"{rules.until(self.opening)} {self.calls(rules, tools, parallel=parallel)}"

    @override
    def answer(self, rules: Rules, content: str) -> str:
        return content

    def _reasoning(self, rules: Rules, *, thinking: bool) -> str:
        if self.reasoning_tags is None:
            return ""
        closed = f"{rules.until(self.reasoning_tags.closing)} {WHITESPACE}"
        return closed if thinking else f"({rules.text(self.reasoning_tags.opening)} {closed})?"


def _chosen(tools: Sequence[Tool], choice: ToolChoice) -> Sequence[Tool]:
    """Return the tools that `choice` allows.

    Raises:
        RequestError: if there is no such tool.
    """
    found = [tool for tool in tools if not isinstance(choice, Named) or tool.name == choice.name]
    if not found:
        wanted = f"a tool named {choice.name}" if isinstance(choice, Named) else "a tool"
        raise RequestError(f"tool_choice demands {wanted}, and tools has none.", param="tool_choice")
    return found
