"""Chat templates: Jinja with the extensions of Hugging Face's tokenizers, in a sandbox, with bounded output."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812 (it is a class)
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

from engine import RequestError

MAX_PROMPT_CHARACTERS = 2**25
"""Maximum length of one prompt. More than any slot holds; it stops a template that repeats without end."""

MAX_SOURCE_CHARACTERS = 2**18
"""Maximum length of a template's source. The longest of known models have 20,000 characters."""

MAX_REFUSAL_CHARACTERS = 1000
"""Maximum length of a refusal's message, since a template may repeat a whole chat message in it."""

_LIST_CHANGES = frozenset({"append", "pop"})


class _Refused(TemplateError):
    """Error that `raise_exception` raises, with the template's own message about the messages."""


class _GenerationTag(Extension):
    """Parser of `{% generation %}`, which marks the assistant's text for training. The mark is ignored."""

    tags = {"generation"}  # noqa: RUF012 (the base class annotates it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def current_dates() -> dict[str, str]:
    """Return the variables with the current date that llama.cpp gives to templates."""
    return {"date_string": _strftime_now("%d %b %Y"), "datetime": _strftime_now("%b %d %Y")}


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as these templates expect it: characters unescaped, keys in order. Jinja's own filter is for HTML.

    What filters such as `map` give is an array.
    """
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=_as_array
    )


def _as_array(value: object) -> list[Any]:
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


class _Environment(ImmutableSandboxedEnvironment):
    """Sandbox in which lists can grow and shrink, as in llama.cpp: Kimi K2's template keeps a queue of calls."""

    @override
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        grows = isinstance(obj, list) and attr in _LIST_CHANGES
        return grows or super().is_safe_attribute(obj, attr, value)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControls, _GenerationTag])
    environment.filters |= {"tojson": to_json, "safe": str}  # no text is HTML, so that none has to be marked as safe
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


class ChatTemplate:
    """A compiled template. Safe to use from several threads."""

    source: str
    """The template's Jinja source."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Compile a template.

        Args:
            source: the template's Jinja source.
            bos: text of the model's token for the beginning of a sequence.
            eos: text of the model's token for the end of a sequence.

        Raises:
            ValueError: if the source is not a valid template.
        """
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise ValueError(f"it has more than {MAX_SOURCE_CHARACTERS} characters")
        self.source = source
        try:
            self._template = _environment().from_string(source, {"bos_token": bos, "eos_token": eos})
        except TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError) as error:  # Jinja compiles it to nested blocks of Python
            raise ValueError("it is nested too deep") from error
        except Exception as error:  # the compiler computes constant expressions
            raise ValueError(_words(error)) from error

    def render(self, variables: Mapping[str, object]) -> str:
        """Return the rendered text. Takes as long as the template does.

        Raises:
            RequestError: if the template refuses the messages or fails on them, with the template's own message.
        """
        try:
            return _checked("".join(_bounded(self._template.generate(variables))))
        except Exception as error:  # a template can raise any exception of Python
            raise _refusal(error) from error


def _bounded(parts: Iterable[str]) -> Iterator[str]:
    left = MAX_PROMPT_CHARACTERS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise _Refused(f"the prompt would be longer than {MAX_PROMPT_CHARACTERS} characters")
        yield part


def _checked(text: str) -> str:
    """Return the text. Raises `UnicodeEncodeError` if it has half of a surrogate pair, which no frame can carry."""
    text.encode()
    return text


def _words(error: Exception) -> str:
    """Return the message of an error, or its name, as text that can be encoded."""
    return (str(error) or type(error).__name__)[:MAX_REFUSAL_CHARACTERS].encode(errors="replace").decode()


def _refusal(error: Exception) -> RequestError:
    words = _words(error)
    message = words if isinstance(error, _Refused) else f"The chat template cannot take these messages: {words}"
    return RequestError(message, code="chat_template_refused", param="messages")
