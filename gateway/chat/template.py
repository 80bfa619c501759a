"""Chat templates: Jinja as Hugging Face's tokenizers write it, in a sandbox, and bounded."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812 (it is a class)
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine import RequestError

MOST_CHARACTERS = 2**25
"""Of one prompt. More than any slot holds; it ends what a template repeats without end."""

LONGEST_WORDS = 1000
"""Of a refusal, in characters: a template may repeat a whole message in it."""


class _Refused(TemplateError):
    """What `raise_exception` raises: the template's own words about the messages."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training, and is nothing to us."""

    tags = {"generation"}  # noqa: RUF012 (the base class annotates it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as these templates mean it: characters unescaped, keys in their order. Jinja's own filter is for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControls, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


class ChatTemplate:
    """A compiled template. May be used from several threads.

    Attributes:
        source: its text.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Args: `bos` and `eos`, the texts of the model's tokens. Raises `ValueError` for what is no template."""
        self.source = source
        try:
            self._template = _environment().from_string(source, {"bos_token": bos, "eos_token": eos})
        except TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from error

    def render(self, variables: Mapping[str, object]) -> str:
        """The text. Takes as long as the template does.

        Raises `RequestError` with the template's own words where it refuses, or fails at, the messages.
        """
        try:
            return "".join(_bounded(self._template.generate(variables)))
        except Exception as error:  # a template can raise whatever Python can
            raise _refusal(error) from error


def _bounded(parts: Iterable[str]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise _Refused(f"the prompt would be longer than {MOST_CHARACTERS} characters")
        yield part


def read_template(path: str) -> str:
    """The template in a file. Raises `ValueError` for a file that cannot be read or holds none."""
    try:
        source = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError("the file is not UTF-8") from error
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error
    try:
        ChatTemplate(source)
    except ValueError as error:
        raise ValueError(f"this is no Jinja template: {error}") from error
    return source


def _refusal(error: Exception) -> RequestError:
    words = (str(error) or type(error).__name__)[:LONGEST_WORDS]
    message = words if isinstance(error, _Refused) else f"The chat template cannot take these messages: {words}"
    return RequestError(message, code="chat_template_refused", param="messages")
