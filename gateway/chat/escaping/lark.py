"""Lark grammars of texts that are inside of JSON strings, as `gateway.chat.escaping.regex` makes expressions of them.

All terminals become rules, because a terminal with escapes is more than one lexeme.
"""

import json
import re
from collections.abc import Callable

from engine import RequestError
from gateway.chat.escaping.regex import escaped_class, escaped_regex, escaped_text

_IMPORTED = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "SQL_COMMENT": r"--[^\n]*",
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "DECIMAL": r"([0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": r"([0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?)",
    "NUMBER": r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+\-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[a-zA-Z]",
    "WORD": r"[a-zA-Z]+",
    "CNAME": r"[a-zA-Z_][a-zA-Z0-9_]*",
}
"""The terminals of Lark's library `common`."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?P<comment>(?://|\#)[^\n]*)
    |(?P<import>%import\s+common\s*(?:\.\s*\w+(?:\s*->\s*\w+)?|\([\w\s,]*\)))
    |(?P<range>{_STRING}\s*\.\.\s*{_STRING})
    |(?P<string>{_STRING}i?)
    |(?P<regex>/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*)
    |(?P<alias>->\s*\w+)
    |(?P<terminal>\b_*[A-Z]\w*(?:\.\d+(?=\s*:))?)
    |(?P<foreign>%\w+|<[^>\n]*>|~(?!\s*\d)|&|^\s*\w+\[[^\]\n]*\])""",
    re.VERBOSE | re.MULTILINE,
)


def escaped_lark(source: str) -> str:
    """Return the grammar of the texts of another grammar inside of a JSON string, without the quotes around them.

    Raises:
        RequestError: the grammar uses extensions of Lark, or cannot be escaped.
    """
    return _TOKEN.sub(lambda found: _ESCAPES[found.lastgroup or "foreign"](found.group()), source)


def _string(literal: str) -> str:
    quoted, _, flags = literal.rpartition('"')
    return escaped_text(_decoded(f'{quoted}"'), flags)


def _decoded(literal: str) -> str:
    try:
        text: str = json.loads(literal, strict=False)
    except ValueError as error:
        raise _refused(f"the literal {literal[:100]} is invalid") from error
    return text


def _range(given: str) -> str:
    first, last = (_decoded(literal) for literal in re.findall(_STRING, given))
    if len(first) != 1 or len(last) != 1:
        raise _refused(f"the range {given[:100]} is not between two characters")
    return escaped_class(f"[{re.escape(first)}-{re.escape(last)}]")


def _regex(given: str) -> str:
    pattern, _, flags = given[1:].rpartition("/")
    return escaped_regex(pattern, flags)


def _import(given: str) -> str:
    names: list[str] = re.findall(r"\w+(?:\s*->\s*\w+)?", given.split("common", 1)[1])
    return "\n".join(map(_imported, names))


def _imported(name: str) -> str:
    """Return the definition of an imported terminal."""
    original, _, alias = (part.strip() for part in name.partition("->"))
    if original not in _IMPORTED:
        raise _refused(f"common.{original[:100]} cannot be imported")
    return f"{_rule(alias or original)}: {escaped_regex(_IMPORTED[original])}"


def _rule(terminal: str) -> str:
    """Return the name of the rule in place of a terminal."""
    return f"terminal_{terminal.partition('.')[0].lower()}"


def _foreign(given: str) -> str:
    raise _refused(f"this model's calls cannot have {given.strip()[:100]}")


def _refused(reason: str) -> RequestError:
    return RequestError(f"The grammar of a custom tool: {reason}.", code="invalid_value", param="tools")


_ESCAPES: dict[str, Callable[[str], str]] = {
    "comment": lambda _: "",
    "import": _import,
    "range": _range,
    "string": _string,
    "regex": _regex,
    "alias": lambda _: "",
    "terminal": _rule,
    "foreign": _foreign,
}
