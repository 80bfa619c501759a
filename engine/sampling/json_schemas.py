"""JSON schemas for generation: what they leave open, and a weak model would fill without an end, is closed.

Every text of a closed schema matches the original one, too, except for what cannot be enforced. llama.cpp's grammars
close the same things.
"""

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeAlias

from engine.sampling.grammar_bounds import GrammarError, json_values

Schema: TypeAlias = dict[str, Any]

_OPTIONS = "x-guidance"
_WHITESPACE = r" |\n[ \t]{0,20}"
"""One blank, or a line break and an indentation. Longer runs cost tokens and say nothing."""
_WHITESPACE_OPTIONS = {"whitespace_pattern", "whitespace_flexible"}

_ONE = ("items", "additionalProperties")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords with one schema, with several, and with named ones."""
_COMBINING = {"$ref", "$dynamicRef", "anyOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties"}
_OF_OBJECTS = {"properties", "patternProperties", "additionalProperties", "required", "minProperties"}
_NOTES = ("default", "examples")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")

_BOUNDS = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
_ENDS = (
    ("minimum", "exclusiveMinimum", ("maximum", "exclusiveMaximum"), 1),
    ("maximum", "exclusiveMaximum", ("minimum", "exclusiveMinimum"), -1),
)
"""The bounds at each end of a range, those at the opposite end, and the sign of the way there."""
_LARGEST = 9 * 10**18
"""Largest integer. Those of 64 bits end soon after it, and llguidance has no wider ranges."""
_EXACT_DOUBLES = 2**63
"""Integers below are written with all digits of their double, larger ones with 17 at most. Those below the integers of
64 bits are refused."""
_WHOLE_DOUBLES = 2**52
"""All doubles from here on are whole numbers."""
_MOST_MULTIPLES = 500
"""Sum of the divisors of integers that are bounded. Bounds multiply the states of the remainders."""
_NARROWING = 1e-9
"""Share of a range that is left out where a whole number ends it."""
_OF_SPECIAL_INTEGERS = {"enum", "const", "allOf", *_COMBINING}


def closed(schema: Schema) -> Schema:
    """Return a schema for llguidance. The parts of the given one are changed.

    - Whitespace is bounded, unless the `x-guidance` of the schema has a rule for it.
    - Objects have only the properties that the schema names, unless it says `additionalProperties`, or combines several
      schemas for one object.
    - Integers have at most 19 digits, unless they must be multiples of large or many numbers.
    - Values that limit no text, as a `default`, are left out.
    - Bounds of numbers are left out if they are wider than those of 64-bit integers.
    - Ranges of numbers within one unit are a little narrower at a whole number that they exclude.
    - What cannot be enforced is left out, and overlapping alternatives of `oneOf` are those of `anyOf`, unless the
      `x-guidance` has `lenient` false.

    An `x-guidance` that is not an object is left as it is. The compiler reports it.

    Raises:
        GrammarError: an integer of a constant cannot be enforced, and the `x-guidance` has `lenient` false.
    """
    parts = list(_parts(schema))
    if not any(map(_combines, parts)):
        for part in parts:
            _close_object(part)
    options = schema.get(_OPTIONS, {})
    lenient = not isinstance(options, dict) or options.get("lenient", True)
    if not lenient and any(map(_changed_constants, parts)):
        raise GrammarError("const or enum in its JSON schemas has an integer that would be rounded to a double")
    for part in parts:
        _drop_notes(part)
    for part in parts if lenient else ():
        _drop_changed_constants(part)
        _drop_wide_bounds(part)
        _drop_look_around(part)
    for part in parts:
        _exclude_whole_bounds(part)
    _bound_integers(schema, parts)
    if not isinstance(options, dict):
        return schema
    whitespace = {} if options.keys() & _WHITESPACE_OPTIONS else {"whitespace_pattern": _WHITESPACE}
    schema[_OPTIONS] = {"lenient": lenient, "coerce_one_of": lenient, **whitespace, **options}
    return schema


def _parts(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all schemas inside it."""
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [part.get(key) for key in _ONE]
            waiting += [one for key in _LISTED if isinstance(some := part.get(key), list) for one in some]
            waiting += [one for key in _NAMED if isinstance(some := part.get(key), dict) for one in some.values()]


def _combines(part: Schema) -> bool:
    """Return whether several schemas may apply to one object: then none of them may exclude the others' properties."""
    together = part.get("allOf", ())
    branches = len(together) if isinstance(together, list) else 0
    return branches + len(part.keys() & _COMBINING) + bool(part.keys() & _OF_OBJECTS) > 1


def _close_object(part: Schema) -> None:
    """Exclude other properties than those that an object's schema names, unless it needs some of them."""
    named = part.get("properties", {})
    if "additionalProperties" in part or not isinstance(named, dict):
        return
    required, least = part.get("required", []), part.get("minProperties", 0)
    are_named = isinstance(required, list) and all(isinstance(name, str) and name in named for name in required)
    is_enough = isinstance(least, int) and len(named) >= least
    if "patternProperties" in part or ("properties" in part and are_named and is_enough):
        part["additionalProperties"] = False


def _drop_notes(part: Schema) -> None:
    """Drop the values that limit no text, so that a number in them is not refused."""
    for key in _NOTES:
        part.pop(key, None)


def _drop_changed_constants(part: Schema) -> None:
    """Drop constants that llguidance would change. If they are integers, any integer takes their place."""
    for key in _changed_constants(part):
        allowed = part.pop(key)
        if all(isinstance(value, int) for value in (allowed if key == "enum" else [allowed])):
            part.setdefault("type", "integer")


def _changed_constants(part: Schema) -> list[str]:
    """Return the keywords with an integer that llguidance would round, because it takes each number for a double.

    An `enum` that is no list is left as it is. The compiler reports it.
    """
    keys = ("const", "enum") if isinstance(part.get("enum"), list) else ("const",)
    return [key for key in keys if any(map(_is_rounded, json_values(part.get(key))))]


def _is_rounded(value: object) -> bool:
    if not isinstance(value, int):
        return False
    try:
        double = float(value)
    except OverflowError:
        return True
    return value != (double if value < _EXACT_DOUBLES else Decimal(repr(double)))


def _drop_wide_bounds(part: Schema) -> None:
    """Drop bounds of a number beyond the widest range of integers, because llguidance cannot compile them."""
    lower, upper = _BOUNDS
    for key in part.keys() & (lower | upper):
        bound = part[key]
        if isinstance(bound, int | float) and (bound <= -_LARGEST if key in lower else bound >= _LARGEST):
            del part[key]


def _exclude_whole_bounds(part: Schema) -> None:
    """Narrow a range within one unit that excludes a whole number at its end: llguidance would allow this number."""
    for included, excluded, opposite, sign in _ENDS:
        far = [part[key] for key in opposite if key in part]
        bound: Any = part.get(excluded)
        if not far or not all(map(_has_fractions, [bound, part.get(included, 0), *far])) or bound % 1:
            continue
        width = min(sign * (end - bound) for end in far)
        if 0 < width < 1:
            del part[excluded]
            narrowed = bound + sign * max(width * _NARROWING, math.ulp(bound))
            part[included] = sign * max(sign * narrowed, sign * part.get(included, narrowed))


def _has_fractions(value: Any) -> bool:  # noqa: ANN401 (what a schema has)
    """Return whether a value is a number, and no double so large that all near it are whole."""
    return type(value) in (int, float) and abs(value) < _WHOLE_DOUBLES


def _drop_look_around(part: Schema) -> None:
    """Drop a regular expression that llguidance cannot compile, and does not leave out by itself."""
    pattern = part.get("pattern")
    if isinstance(pattern, str) and _LOOK_AROUND.search(pattern):
        del part["pattern"]


def _bound_integers(schema: Schema, parts: list[Schema]) -> None:
    """Bound the integers that lack a bound. Equal ones share a definition, because each range takes time to compile."""
    definitions = schema.get("$defs", {})
    if not isinstance(definitions, dict) or any("$id" in part for part in parts[1:]):  # references would not reach it
        return
    ranges: dict[tuple[tuple[str, float], ...], str] = {}
    for part in _integers(parts):
        _drop_wide_bounds(part)
        given = {key: part[key] for keys in (*_BOUNDS, {"multipleOf"}) for key in sorted(keys) if key in part}
        if _lacks_bound(given):
            for key in ("type", *given):
                del part[key]
            part["$ref"] = f"#/$defs/{ranges.setdefault(tuple(given.items()), f'llama-gateway-{len(ranges)}')}"
    if ranges:
        widest = {"type": "integer", "minimum": -_LARGEST, "maximum": _LARGEST}
        schema["$defs"] = definitions | {name: widest | dict(given) for given, name in ranges.items()}


def _integers(parts: list[Schema]) -> list[Schema]:
    """Return the schemas of integers that can be bounded. Those with a divisor can if all together cost little."""
    simple = [part for part in parts if not part.keys() & _OF_SPECIAL_INTEGERS]
    plain = [part for part in simple if part.get("type") == "integer" and "multipleOf" not in part]
    multiples = [part for part in simple if part.get("type") in ("integer", "number") and _has_divisor(part)]
    return plain + (multiples if sum(part["multipleOf"] for part in multiples) <= _MOST_MULTIPLES else [])


def _has_divisor(part: Schema) -> bool:
    """Return whether the numbers of a schema are multiples of an integer, and so integers themselves."""
    divisor = part.get("multipleOf")
    return isinstance(divisor, int) and divisor > 0


def _lacks_bound(given: dict[str, Any]) -> bool:
    """Return whether the bounds of an integer, which must be numbers within the widest range, leave one side open."""
    are_inside = all(isinstance(value, int | float) and abs(value) < _LARGEST for value in given.values())
    return are_inside and not all(given.keys() & bounds for bounds in _BOUNDS)
