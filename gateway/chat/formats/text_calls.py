"""Calls and what they gave as text, for templates that show neither."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.chat.formats.parser import Tags
from gateway.chat.template_capabilities import TemplateMessage

_PARAGRAPH = "\n\n"


@dataclass(frozen=True, slots=True)
class TextCalls:
    """How a family is rendered of calls in a conversation.

    Attributes:
        call: what stands around a call.
        result: what stands around what it gave.
        write: a call, given its function's name and its arguments as JSON text.
    """

    call: Tags
    result: Tags
    write: Callable[[str, str], str]

    def render(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """The messages with calls in their content, and results said by the user.

        Results in a row are one message, with what the user says next: many templates want the roles to alternate.
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
    """What is no object of arguments stands as it is."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if isinstance(given, dict):
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return f"{name}({arguments})"


IN_JSON = TextCalls(Tags("<tool_call>", "</tool_call>"), Tags("<tool_response>", "</tool_response>"), _json_call)
"""Hermes' way, which models know best that were not trained to call."""

IN_PYTHON = TextCalls(Tags("```tool_code", "```"), Tags("```tool_output", "```"), _python_call)
"""Gemma 3's, by Google's guide to it."""
