"""Formats of the input of custom tools."""

from typing import Literal

from engine import Grammar, GrammarKind
from gateway.apis.fields.constraints import GrammarSource
from gateway.apis.fields.nested import Nested


class CustomTextFormat(Nested):
    """Any text."""

    type: Literal["text"]

    def constraint(self) -> None:
        """Return no grammar."""


class CustomGrammar(Nested):
    """The grammar of an input, in llguidance's Lark, or a regular expression for the whole input."""

    syntax: Literal["lark", "regex"]
    definition: GrammarSource

    def constraint(self) -> Grammar:
        """Return the grammar."""
        return Grammar(GrammarKind.LARK if self.syntax == "lark" else GrammarKind.REGEX, self.definition)
