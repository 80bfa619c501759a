"""Chat templates of the operator: files, names or texts, which are read and checked at the start."""

import os
import resource
import subprocess
import sys
from pathlib import Path

from engine import command_for, without_secrets
from gateway.chat.named_templates import NAMED_TEMPLATES
from gateway.chat.template import ChatTemplate

MAX_SECONDS = 5.0
"""Maximum time in which a template must compile."""
MAX_MEMORY = 256 * 2**20
"""Bytes that its compilation may use. Linux only."""

_MARKS = ("{{", "{%", "{#")
"""Marks of which every template has one, and hardly a path."""


def read_template(given: str) -> str:
    """Return the source of a template: of one of llama.cpp's names, of a file, or the text itself.

    Raises:
        ValueError: if the file cannot be read or is not a valid template.
    """
    if given in NAMED_TEMPLATES:
        return NAMED_TEMPLATES[given]
    source = given if any(mark in given for mark in _MARKS) else _text_of(given)
    if reason := _refusal(source):
        raise ValueError(f"this is no Jinja template: {reason}")
    return source


def _text_of(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ValueError(f"there is no such file; names of templates are {', '.join(NAMED_TEMPLATES)}") from error
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError("the file is not UTF-8") from error
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error


def main() -> None:
    """Compile the template on standard input, and print why that fails."""
    if sys.platform == "linux":  # macOS refuses less than the process has mapped
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    try:
        ChatTemplate(sys.stdin.buffer.read().decode())
    except ValueError as error:
        sys.stdout.buffer.write(str(error).encode(errors="replace"))


def _refusal(source: str) -> str:
    """Return why a template cannot be used; empty if it can.

    It is compiled in another process: the compiler computes constant expressions, such as `10**(10**9)`.
    """
    try:
        run = subprocess.run(  # noqa: S603
            command_for(__name__),
            input=source.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Python 3.12 has words there on generators that a recursion leaves behind
            timeout=MAX_SECONDS,
            check=False,
            env=without_secrets(os.environ),
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {MAX_SECONDS:g} s to compile"
    return f"its compiler ended with code {run.returncode}" if run.returncode else run.stdout.decode()
