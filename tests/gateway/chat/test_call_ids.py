"""Ids of calls in prompts for Kimi K2."""

from typing import Any

from engine import text_of
from gateway.chat.conversation import ChatModel, Conversation
from gateway.chat.template_key import TemplateKey

TEMPLATE = """
{%- for message in messages %}
  {%- if message.tool_calls %}<|tool_calls_section_begin|>
    {%- for call in message.tool_calls %}
      {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' + (call.function.arguments | tojson) }}
      {{- '<|tool_call_end|>' }}
    {%- endfor %}<|tool_calls_section_end|>
  {%- elif message.role == 'tool' %}{{ '## Return of ' + message.tool_call_id + '\\n' + message.content }}
  {%- else %}{{ message.content }}{% endif %}
{%- endfor %}"""


def _called(*calls: tuple[str, str]) -> dict[str, Any]:
    functions = [{"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}} for id_, name in calls]
    return {"role": "assistant", "content": None, "tool_calls": functions}


def _answered(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "name": "f", "content": "x"}


def _ids(*messages: dict[str, Any]) -> list[str]:
    conversation = Conversation(messages=({"role": "user", "content": "Hello"}, *messages))
    words = (
        text_of(ChatModel(TemplateKey(TEMPLATE)).prompt(conversation).text)
        .replace("<|", " <| ")
        .replace("|>", " |> ")
        .split()
    )
    return [word for word in words if word.startswith(("functions", "call"))]


def test_calls_are_counted_through_the_conversation_and_results_name_them() -> None:
    first, second = _called(("call_a", "f"), ("call_b", "g")), _called(("call_c", "f"))
    ids = _ids(first, _answered("call_b"), _answered("call_a"), second, _answered("call_c"))
    assert ids == ["functions.f:0", "functions.g:1", "functions.g:1", "functions.f:0", "functions.f:2", "functions.f:2"]


def test_ids_of_the_form_stay() -> None:
    assert _ids(_called(("functions.f:7", "f"), ("functions.f:x", "f"))) == ["functions.f:7", "functions.f:1"]


def test_a_repeated_id_is_that_of_the_last_call() -> None:
    ids = _ids(_called(("call_a", "f")), _answered("call_a"), _called(("call_a", "g")), _answered("call_a"))
    assert ids == ["functions.f:0", "functions.f:0", "functions.g:1", "functions.g:1"]
