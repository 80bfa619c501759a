"""Bounds on grammars, for costs that llguidance's own limits detect too late."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

_MOST_PROPERTY_PAIRS = 2_500**2
"""Pairs of properties of the objects of a schema. The cost of optional properties is quadratic: 0.5 s for this many."""
_MOST_REGEX = 16_384
"""Characters of all regular expressions of a grammar. The cost of optional parts is quadratic."""
_MOST_RULES = 500
"""Rules of a GBNF grammar. The cost of its conversion may be quadratic."""
_MOST_INTERSECTED = 8
"""Regular expressions that a text may have to match at once. The cost doubles with each."""
_MOST_MULTIPLES = 20_000
"""States of the remainders of all multiples in a schema. 20,000 take 0.2 s."""
_MOST_MATCHED_NAMES = 2_000
"""Property names matched against patterns: some 0.1 ms each."""

_NO_CONDITIONS = {"allOf", "$ref", "$defs", "definitions", "title", "description", "default", "examples", "deprecated"}
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')
_INLINE_SCHEMA = re.compile(r"%json\s*")


class GrammarError(Exception):
    """A grammar cannot be used. The message says why."""


def check_regex(*sources: str) -> None:
    """Check the total length of regular expressions.

    Raises:
        GrammarError: they are too long.
    """
    if sum(map(len, sources)) > _MOST_REGEX:
        raise GrammarError(f"its regular expressions have more than {_MOST_REGEX} characters")


def check_lark(source: str) -> None:
    """Check a Lark grammar and the JSON schemas in it.

    Raises:
        GrammarError: it has too many intersections, or such a schema.
    """
    if _LITERAL.sub("", source).count("&") >= _MOST_INTERSECTED:
        raise GrammarError(f"it uses & more than {_MOST_INTERSECTED - 1} times")
    check_regex(*(literal for literal in _LITERAL.findall(source) if literal.startswith("/")))
    for found in _INLINE_SCHEMA.finditer(source):
        try:
            schema, _ = json.JSONDecoder().raw_decode(source, found.end())
        except (ValueError, RecursionError):
            continue  # the compiler reports it
        check_schema(schema)


def check_gbnf(source: str) -> None:
    """Check the number of rules of a GBNF grammar.

    Raises:
        GrammarError: there are too many.
    """
    if source.count("::=") > _MOST_RULES:
        raise GrammarError(f"it has more than {_MOST_RULES} rules")


def check_schema(schema: object) -> None:
    """Check the cost of a JSON schema.

    Raises:
        GrammarError: it combines too many conditions.
    """
    parts = list(_objects(schema))
    names = [name for part in parts for name in _mapping(part, "patternProperties")]
    properties = sum(len(_mapping(part, "properties")) for part in parts)
    expressions = len(names) + sum(isinstance(part.get(key), str) for part in parts for key in ("pattern", "format"))
    check_regex(*names, *(part["pattern"] for part in parts if isinstance(part.get("pattern"), str)))
    conjunctions = 1 + len(names) + sum(_conjunctions(part) for part in parts)
    if min(expressions, conjunctions) > _MOST_INTERSECTED:
        raise GrammarError(f"more than {_MOST_INTERSECTED} patterns or formats may apply to one text")
    if sum(len(_mapping(part, "properties")) ** 2 for part in parts) > _MOST_PROPERTY_PAIRS:
        raise GrammarError("its objects have too many properties")
    if len(names) * (len(names) + properties) > _MOST_MATCHED_NAMES:
        raise GrammarError("it has too many properties beside its patternProperties")
    multiples = [_coefficient(part["multipleOf"]) for part in parts if _is_number(part.get("multipleOf"))]
    if math.lcm(*multiples) * len(multiples) > _MOST_MULTIPLES:
        raise GrammarError("its multipleOf are too many or too large")


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value, itself included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _mapping(part: dict[str, Any], key: str) -> dict[str, Any]:
    value = part.get(key)
    return value if isinstance(value, dict) else {}


def _conjunctions(part: dict[str, Any]) -> int:
    """Return the number of other schemas that apply to the same text because of this one."""
    branches = part.get("allOf")
    together = len(branches) if isinstance(branches, list) else 0
    together += ("$ref" in part) + bool(part.keys() - _NO_CONDITIONS)
    return max(together - 1, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value != 0


def _coefficient(number: float) -> int:
    """Return the digits of a number without leading and trailing zeros, because powers of ten are free."""
    digits = "".join(map(str, Decimal(str(number)).as_tuple().digits))
    return int(digits.strip("0"))
