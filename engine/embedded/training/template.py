"""Chat template, which renders messages and tools as the prompt text. The GGUF file has the same template."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")

Message = dict[str, Any]
Tool = dict[str, Any]


def _to_json(value: object) -> str:
    """Return JSON as in Hugging Face's templates: keys in order, characters unescaped (Jinja's own filter differs)."""
    return json.dumps(value, ensure_ascii=False)


_environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
_environment.filters["tojson"] = _to_json
_compiled = _environment.from_string(TEMPLATE)


def render(messages: Sequence[Message], tools: Sequence[Tool] = (), *, ask: bool) -> str:
    """Return the conversation as one text. With `ask`, it ends with the start of the assistant's next message."""
    return _compiled.render(messages=messages, tools=tools, add_generation_prompt=ask)
