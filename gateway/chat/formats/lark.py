"""Grammars in llguidance's Lark for texts with markers, which may be special tokens of the model.

llguidance keeps special tokens and text apart: it matches a marker that is a special token by the token's id only, and
any other marker by its text only. So the vocabulary determines the expression for a marker.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine import Grammar, GrammarKind, RequestError, strict_schema
from gateway.chat.escaping.characters import IN_JSON, before
from gateway.chat.escaping.lark import escaped_lark
from gateway.chat.escaping.regex import escaped_regex
from gateway.chat.tools import Tool

ANYTHING = "ANYTHING"
"""Any text, without special tokens."""

_SLASH = re.compile(r"\\.|/", re.DOTALL)


class Rules:
    """Builder of one grammar. Its methods return expressions, which can be parts of other expressions."""

    def __init__(self, special_tokens: Mapping[str, int], inner_tokens: Iterable[str] = ()) -> None:
        """Start a grammar.

        Args:
            special_tokens: ids of the model's special tokens by their names.
            inner_tokens: names of tokens that may be parts of markers, if they are special.
        """
        self._tokens = special_tokens
        inner = [re.escape(token) for token in inner_tokens if token in special_tokens]
        self._inner = re.compile(f"({'|'.join(inner)})") if inner else None
        self._lines = [f"{ANYTHING}: /(?s:.*)/"]

    def rule(self, body: str, options: str = "") -> str:
        """Add a rule, and return its name."""
        name = f"part_{len(self._lines)}"
        self._lines.append(f"{name}{options}: {body}")
        return name

    def text(self, *parts: str) -> str:
        """Return the expression for `parts` in sequence. A part that equals a special token's name means that token."""
        return " ".join(map(self._part, self._pieces(parts)))

    def until(self, marker: str) -> str:
        """Return the expression for any text up to and including the first `marker`."""
        first, *others = self._pieces([marker])
        if first in self._tokens:
            return f"{ANYTHING} {self.text(first, *others)}"
        if others:  # the first of them is a token
            return f"/(?s:.*){_pattern(first)}/ {self.text(*others)}"
        return self.rule(ANYTHING, f"[suffix={json.dumps(marker)}]")

    def matching(self, grammar: Grammar, marker: str) -> str:
        """Return the expression for a text that matches a grammar, without the first `marker` after it.

        Raises:
            RequestError: the grammar cannot be escaped, so that it might run into the marker.
        """
        if next(self._pieces([marker])) in self._tokens:
            return embedded(grammar)
        escaping = before(marker)
        if grammar.kind is GrammarKind.REGEX:
            return escaped_regex(escaping, grammar.source)
        return embedded(grammar.replaced(source=escaped_lark(escaping, grammar.source)))

    def several(self, expressions: list[str], separator: str, *, parallel: bool) -> str:
        """Return the expression for one of `expressions`, or for several with `separator` between if `parallel`."""
        one = self.rule(either(expressions))
        return f"{one} ({separator} {one})*" if parallel else one

    def grammar(self, start: str) -> Grammar:
        """Return the grammar that matches `start`."""
        return Grammar(GrammarKind.LARK, "\n".join([f"start: {start}", *self._lines]))

    def _pieces(self, parts: Iterable[str]) -> Iterator[str]:
        for part in parts:
            yield from filter(None, self._inner.split(part) if self._inner else (part,))

    def _part(self, text: str) -> str:
        return f"<[{self._tokens[text]}]>" if text in self._tokens else json.dumps(text)


def json_value(schema: Mapping[str, Any]) -> str:
    """Return the expression for JSON that matches `schema`."""
    return f"%json {json.dumps(schema)}"


def arguments(tool: Tool) -> str:
    """Return the expression for arguments: a JSON object that matches a tool's schema. Without properties it is empty.

    Raises:
        RequestError: as in `json_text`.
    """
    if tool.grammar is None:
        schema = {"properties": {}, **tool.parameters, "type": "object"}
        return json_value(strict_schema(schema) if tool.strict else schema)
    (name,) = tool.parameters["required"]
    return f"{json.dumps(f'{{{json.dumps(name)}: ')} {json_text(tool.grammar)} {json.dumps('}')}"


def json_text(grammar: Grammar) -> str:
    """Return the expression for a JSON string whose text matches a grammar.

    Raises:
        RequestError: the grammar cannot be escaped.
    """
    if grammar.kind is GrammarKind.REGEX:
        return json_value(strict_schema({"type": "string", "pattern": f"^(?:{grammar.source})$"}))
    quote = json.dumps('"')
    return f"{quote} {embedded(Grammar(grammar.kind, escaped_lark(IN_JSON, grammar.source)))} {quote}"


def either(expressions: list[str]) -> str:
    """Return the expression for one of `expressions`."""
    return f"({' | '.join(expressions)})"


def embedded(grammar: Grammar) -> str:
    """Return a grammar of any other kind as an expression.

    Raises:
        RequestError: for GBNF, which cannot be embedded in Lark.
    """
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return f"%json {grammar.source}"
        case GrammarKind.REGEX:
            return f"/{_SLASH.sub(_slash_escaped, grammar.source)}/" if grammar.source else '""'
        case GrammarKind.LARK:
            return f"%lark {{\n{grammar.source}\n}}"
        case GrammarKind.GBNF:
            message = "A GBNF grammar cannot constrain an answer that comes after reasoning; give it in Lark."
            raise RequestError(message, param="grammar")


def _pattern(text: str) -> str:
    """Return a pattern of a text without line breaks."""
    return _SLASH.sub(_slash_escaped, re.escape(text))


def _slash_escaped(found: re.Match[str]) -> str:
    return r"\/" if found.group() == "/" else found.group()
