"""Grammars for the engine in llguidance's Lark, for texts whose markers may be single tokens of the model.

llguidance keeps special tokens and text apart: a marker that is a token of its own is matched by the token's id only,
and any other by its text only. So the vocabulary decides how a marker is written.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from engine import Grammar, GrammarKind, RequestError

ANYTHING = "ANYTHING"
"""Any text, without special tokens."""

_SLASH = re.compile(r"\\.|/", re.DOTALL)

_WHITESPACE = r"[ \t\r\n]{1,32}"
"""In JSON between two tokens; bounded, lest a model that falls into a run of spaces stays in it."""


class Rules:
    """The rules of one grammar. What its methods return are expressions to put into others."""

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        """`special_tokens`: ids of the tokens that stand for more than their text, by their names."""
        self._tokens = special_tokens
        self._lines = [f"{ANYTHING}: /(?s:.*)/"]

    def rule(self, body: str, options: str = "") -> str:
        """A rule of its own."""
        name = f"part_{len(self._lines)}"
        self._lines.append(f"{name}{options}: {body}")
        return name

    def text(self, *parts: str) -> str:
        """These texts in a row. A part that is a special token's whole name means that token."""
        return " ".join(map(self._part, filter(None, parts)))

    def until(self, marker: str) -> str:
        """Any text up to the first `marker`, and that."""
        if marker in self._tokens:
            return f"{ANYTHING} {self._part(marker)}"
        return self.rule(ANYTHING, f"[suffix={json.dumps(marker)}]")

    def several(self, expressions: list[str], separator: str, *, parallel: bool) -> str:
        """One of them; where `parallel`, perhaps more of them, with `separator` between."""
        one = self.rule(either(expressions))
        return f"{one} ({separator} {one})*" if parallel else one

    def grammar(self, start: str) -> Grammar:
        """The grammar that matches `start`."""
        return Grammar(GrammarKind.LARK, "\n".join([f"start: {start}", *self._lines]))

    def _part(self, text: str) -> str:
        return f"<[{self._tokens[text]}]>" if text in self._tokens else json.dumps(text)


def json_value(schema: Mapping[str, Any]) -> str:
    """JSON that matches `schema`."""
    given = schema.get("x-guidance")
    options = {"whitespace_pattern": _WHITESPACE, **(given if isinstance(given, Mapping) else {})}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def arguments(parameters: Mapping[str, Any]) -> str:
    """An object that matches a tool's schema."""
    return json_value({"type": "object", **parameters})


def either(expressions: list[str]) -> str:
    """One of them."""
    return f"({' | '.join(expressions)})"


def embedded(grammar: Grammar) -> str:
    """A grammar of any kind as an expression. Raises `RequestError` for GBNF, which has no place in Lark."""
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return _from_json(grammar.source)
        case GrammarKind.REGEX:
            return f"/{_SLASH.sub(_slash_escaped, grammar.source)}/" if grammar.source else '""'
        case GrammarKind.LARK:
            return f"%lark {{\n{grammar.source}\n}}"
        case GrammarKind.GBNF:
            message = "A GBNF grammar cannot constrain an answer that comes after reasoning; give it in Lark."
            raise RequestError(message, param="grammar")


def _from_json(source: str) -> str:
    """The compiler tells what is wrong with a schema that is none."""
    try:
        schema = orjson.loads(source)
    except orjson.JSONDecodeError:
        schema = None
    return json_value(schema) if isinstance(schema, dict) else f"%json {source}"


def _slash_escaped(found: re.Match[str]) -> str:
    return r"\/" if found.group() == "/" else found.group()
