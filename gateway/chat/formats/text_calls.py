"""Tool calls and their results as text, for templates that render neither."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.chat.formats.parser import Tags
from gateway.chat.template_capabilities import TemplateMessage

_PARAGRAPH = "\n\n"


@dataclass(frozen=True, slots=True)
class TextCalls:
    """Notation of a family for calls and results in the text of messages."""

    call: Tags
    """Tags around a call."""
    result: Tags
    """Tags around a result."""
    write: Callable[[str, str], str]
    """Renders a call from its function's name and its arguments as JSON text."""

    def render(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """Return the messages with calls as content, and results as messages of the user.

        Consecutive results and the user's next message become one message, since many templates require the roles to
        alternate.
        """
        rendered: list[TemplateMessage] = []
        after_result = False  # the last rendered message holds results
        for message in messages:
            result = message["role"] == "tool"
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
        calls = [_between(self.call, self.write(function["name"], function["arguments"])) for function in functions]
        return "\n".join([content, *calls] if content else calls)

    def _result(self, message: TemplateMessage) -> str:
        return _between(self.result, message["content"])


def _between(tags: Tags, text: str) -> str:
    return f"{tags.opening}\n{text}\n{tags.closing}"


def _json_call(name: str, arguments: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'


def _python_call(name: str, arguments: str) -> str:
    """Return a call in Python syntax. Arguments that are not a JSON object stay unchanged."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if isinstance(given, dict):
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return f"{name}({arguments})"


IN_JSON = TextCalls(Tags("<tool_call>", "</tool_call>"), Tags("<tool_response>", "</tool_response>"), _json_call)
"""Notation of Hermes, which models without training for calls follow best."""

IN_PYTHON = TextCalls(Tags("```tool_code", "```"), Tags("```tool_output", "```"), _python_call)
"""Notation for Gemma 3, from Google's guide."""

IN_LFM2 = TextCalls(
    Tags("<|tool_call_start|>", "<|tool_call_end|>"),
    Tags("<|tool_response_start|>", "<|tool_response_end|>"),
    lambda name, arguments: f"[{_python_call(name, arguments)}]",
)
"""Notation of LFM2."""
