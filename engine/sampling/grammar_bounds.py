"""Bounds on grammars, for costs that llguidance's own limits detect too late."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

_MOST_PROPERTY_PAIRS = 2_500**2
"""Pairs of properties of the objects of a schema. The cost of optional properties is quadratic: 0.5 s for this many."""
_MOST_REGEX = 16_384
"""Characters of all regular expressions of a grammar. The cost of optional parts is quadratic."""
_MOST_GBNF_RULES = 500
"""Rules of a GBNF grammar. The cost of its conversion may be quadratic."""
_MOST_RULES = 4_000
"""Rules of a Lark grammar. The compiler recurses along chains of them."""
_MOST_NAMES = 6_500
"""Names in the rules of a grammar. The cost of rules that allow the empty text is quadratic."""
_MOST_CLASSES = 4_000
"""Classes of characters of a GBNF grammar. Each has a lexer state of its own."""
_MOST_REPETITIONS = 1_500
"""Marks of repetition in the rules of a grammar. Their cost is quadratic, too."""
_MOST_REFERENCES = 2_000
"""References of the schemas of a grammar. The compiler recurses along chains of them."""
_MOST_INTERSECTED = 8
"""Regular expressions that a text may have to match at once. The cost doubles with each."""
_MOST_MULTIPLES = 20_000
"""States of the remainders of all multiples in a schema. 20,000 take 0.2 s."""
_MOST_MATCHED_NAMES = 2_000
"""Property names matched against patterns: some 0.1 ms each."""
_LEAST_NUMBER = -(2**63) + 513
"""Least number of a schema. Smaller ones become the least integer of 64 bits, whose ranges the compiler divides without
an end, until the stack overflows and the process dies."""

_NO_CONDITIONS = {"allOf", "$ref", "$defs", "definitions", "title", "description", "default", "examples", "deprecated"}
_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<comment>(?://|\#)[^\n]*)
    |(?P<regex>/(?:\\.|[^/\\])+/)
    |(?P<special><[^<>\s]+>)
    |(?P<json>%json\s*)
    |(?P<open>"[^\n]*|/[\s\S]*)""",
    re.VERBOSE,
)
"""Part of a Lark grammar. A literal without an end takes the rest: if each quote in it were tried as a beginning, that
would be quadratic."""
_GBNF_LITERAL = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<class>\[(?:\\.|[^\]\\\n])*\])
    |(?P<open>["\[][^\n]*)""",
    re.VERBOSE,
)
"""The same for GBNF."""
_RULE = re.compile(r"^[^\S\n]*[?!]?\w+(?:\.-?\d+)?(?:\[[^\]\n]*\])?\s*:", re.MULTILINE)
_NAME = re.compile(r"[^\W\d]\w*")
_REPETITION = re.compile(r"[?*+{~]")


class GrammarError(Exception):
    """A grammar cannot be used. The message says why."""


class InlineSchema(NamedTuple):
    """JSON schema in a Lark grammar."""

    schema: object
    """The schema."""
    begin: int
    """Index of its first character."""
    end: int
    """Index behind its last character."""


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
        GrammarError: it has an intersection or a literal without an end, is too large, or has such schemas.
    """
    schemas = list(inline_schemas(source))
    ends = [0, *(inline.end for inline in schemas)]
    begins = [*(inline.begin for inline in schemas), len(source)]
    rules = " ".join(source[end:begin] for end, begin in zip(ends, begins, strict=True))
    found = list(_TOKEN.finditer(rules))
    if any(token["open"] for token in found):
        raise GrammarError("a text or a regular expression in it has no end")
    check_regex(*(token["regex"] for token in found if token["regex"]))
    rules = _TOKEN.sub(lambda token: token["special"] or token["json"] or "", rules)
    if "&" in rules:
        raise GrammarError("it uses &, whose cost has no bound")
    if len(_RULE.findall(rules)) > _MOST_RULES:
        raise GrammarError(f"it has more than {_MOST_RULES} rules")
    _check_size(rules)
    check_schemas(*(inline.schema for inline in schemas))


def check_gbnf(source: str) -> None:
    """Check the size of a GBNF grammar.

    Raises:
        GrammarError: it is too large.
    """
    if source.count("::=") > _MOST_GBNF_RULES:
        raise GrammarError(f"it has more than {_MOST_GBNF_RULES} rules")
    if sum(_classes(literal) for literal in _GBNF_LITERAL.finditer(source)) > _MOST_CLASSES:
        raise GrammarError(f"it has more than {_MOST_CLASSES} classes of characters")
    _check_size(_GBNF_LITERAL.sub(lambda literal: literal["open"] or "", source))


def _classes(literal: re.Match[str]) -> int:
    return literal["open"].count("[") if literal["open"] else bool(literal["class"])


def _check_size(rules: str) -> None:
    """Check the size of rules without their literals.

    Raises:
        GrammarError: they are too large.
    """
    if len(_NAME.findall(rules)) > _MOST_NAMES:
        raise GrammarError(f"its rules have more than {_MOST_NAMES} names")
    if len(_REPETITION.findall(rules)) > _MOST_REPETITIONS:
        raise GrammarError(f"its rules have more than {_MOST_REPETITIONS} repetitions")


def inline_schemas(source: str) -> Iterator[InlineSchema]:
    """Yield the JSON schemas in a Lark grammar, up to one that is not JSON, which the compiler refuses.

    Raises:
        GrammarError: a number is too long to be read.
    """
    end = 0
    while found := _TOKEN.search(source, end):
        end = begin = found.end()
        if found["json"]:
            try:
                schema, end = json.JSONDecoder().raw_decode(source, begin)
            except (json.JSONDecodeError, RecursionError):
                return
            except ValueError as error:
                raise GrammarError("a number in its JSON schemas has too many digits") from error
            yield InlineSchema(schema, begin, end)


def check_schemas(*schemas: object) -> None:
    """Check the cost of the JSON schemas of a grammar.

    Raises:
        GrammarError: one combines too many conditions, or all together cost too much.
    """
    costs = [_cost(schema) for schema in schemas]
    if sum(cost.pairs for cost in costs) > _MOST_PROPERTY_PAIRS:
        raise GrammarError("its objects have too many properties")
    if sum(cost.matched for cost in costs) > _MOST_MATCHED_NAMES:
        raise GrammarError("it has too many properties beside its patternProperties")
    if sum(cost.multiples for cost in costs) > _MOST_MULTIPLES:
        raise GrammarError("its multipleOf are too many or too large")
    if sum(cost.references for cost in costs) > _MOST_REFERENCES:
        raise GrammarError(f"it has more than {_MOST_REFERENCES} $ref")


def check_numbers(schema: object) -> None:
    """Check that the compiler can represent the numbers of a JSON schema.

    Raises:
        GrammarError: one is too small.
    """
    if any(isinstance(value, int | float) and value < _LEAST_NUMBER for value in json_values(schema)):
        raise GrammarError(f"a number in its JSON schemas is less than {_LEAST_NUMBER}")


class _Cost(NamedTuple):
    """Cost of one schema, in the units of the bounds."""

    pairs: int
    """Pairs of properties."""
    matched: int
    """Names matched against patterns."""
    multiples: int
    """States of the remainders."""
    references: int
    """References."""


def _cost(schema: object) -> _Cost:
    """Return the cost of a schema.

    Raises:
        GrammarError: it combines too many conditions, or its regular expressions are too long.
    """
    parts = list(_objects(schema))
    names = [name for part in parts for name in _mapping(part, "patternProperties")]
    properties = [len(_mapping(part, "properties")) for part in parts]
    expressions = len(names) + sum(isinstance(part.get(key), str) for part in parts for key in ("pattern", "format"))
    check_regex(*names, *(part["pattern"] for part in parts if isinstance(part.get("pattern"), str)))
    conjunctions = 1 + len(names) + sum(_conjunctions(part) for part in parts)
    if min(expressions, conjunctions) > _MOST_INTERSECTED:
        raise GrammarError(f"more than {_MOST_INTERSECTED} patterns or formats may apply to one text")
    multiples = [_coefficient(part["multipleOf"]) for part in parts if _is_number(part.get("multipleOf"))]
    return _Cost(
        pairs=sum(count**2 for count in properties),
        matched=len(names) * (len(names) + sum(properties)),
        multiples=math.lcm(*multiples) * len(multiples),
        references=sum("$ref" in part for part in parts),
    )


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value, itself included."""
    return (one for one in json_values(value) if isinstance(one, dict))


def json_values(value: object) -> Iterator[object]:
    """Yield every JSON value in a value, itself included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, dict):
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
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < abs(value) < math.inf


def _coefficient(number: float) -> int:
    """Return the digits of a number without leading and trailing zeros, because powers of ten are free."""
    digits = "".join(map(str, Decimal(str(number)).as_tuple().digits))
    return int(digits.strip("0"))
