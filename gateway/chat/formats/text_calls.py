"""Tool calls and their results as text, for templates that render neither."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.chat.formats.parser import Tags
from gateway.chat.template_capabilities import TemplateMessage

_NEWLINE, _PARAGRAPH = "\n", "\n\n"

Call: TypeAlias = tuple[str, str]
"""Name of a function, and its arguments as JSON text."""


@dataclass(frozen=True, slots=True)
class TextCalls:
    """Notation of a family for calls and results in the text of messages."""

    write: Callable[[Sequence[Call]], str]
    """Renders the calls of a message."""
    result: Tags | None
    """Tags around a result, which the user says then; None if the template renders results."""

    def render(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """Return the messages with calls as content, and results that have tags as messages of the user.

        Consecutive results and the user's next message become one message, since many templates require the roles to
        alternate.
        """
        rendered: list[TemplateMessage] = []
        after_result = False  # the last rendered message holds results
        for message in messages:
            result = message["role"] == "tool" and self.result is not None
            content = self._result(message) if result else self._content(message)
            if after_result and message["role"] in {"tool", "user"}:
                rendered[-1] = {**rendered[-1], "content": f"{rendered[-1]['content']}{_PARAGRAPH}{content}"}
            elif result:
                rendered.append({"role": "user", "content": content})
            else:
                others = {name: value for name, value in message.items() if name != "tool_calls"}
                rendered.append({**others, "content": content})
            after_result = result
        return rendered

    def _content(self, message: TemplateMessage) -> str | None:
        content: str | None = message["content"]
        functions = [call["function"] for call in message.get("tool_calls", ())]
        if not functions:
            return content
        calls = self.write([(function["name"], function["arguments"]) for function in functions])
        return f"{content}\n{calls}" if content else calls

    def _result(self, message: TemplateMessage) -> str:
        content: str = message["content"]
        return _between(self.result, content) if self.result else content


def _between(tags: Tags, text: str) -> str:
    return f"{tags.opening}\n{text}\n{tags.closing}"


def _each(tags: Tags, write: Callable[[Call], str]) -> Callable[[Sequence[Call]], str]:
    """Return a renderer of calls that have tags around each."""
    return lambda calls: _NEWLINE.join(_between(tags, write(call)) for call in calls)


def _json_call(call: Call) -> str:
    name, arguments = call
    return f'{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'


def _python_call(call: Call) -> str:
    """Return a call in Python syntax. Arguments that are not a JSON object stay unchanged."""
    name, arguments = call
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if isinstance(given, dict):
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return f"{name}({arguments})"


def _python_list(calls: Sequence[Call]) -> str:
    return f"<|tool_call_start|>[{', '.join(map(_python_call, calls))}]<|tool_call_end|>"


IN_JSON = TextCalls(_each(Tags("<tool_call>", "</tool_call>"), _json_call), Tags("<tool_response>", "</tool_response>"))
"""Notation of Hermes, which models without training for calls follow best."""

IN_PYTHON = TextCalls(_each(Tags("```tool_code", "```"), _python_call), Tags("```tool_output", "```"))
"""Notation for Gemma 3, from Google's guide."""

IN_LFM2 = TextCalls(_python_list, None)
"""Notation of LFM2, whose templates render results."""

IN_OLMO = TextCalls(
    lambda calls: f"<function_calls>{_NEWLINE.join(map(_python_call, calls))}</function_calls>",
    Tags("<tool_response>", "</tool_response>"),
)
"""Notation of Olmo 3."""
