"""Results of calls in prompts for the first template of Gemma 4."""

from typing import Any

from engine import text_of
from gateway.chat.conversation import ChatModel, Conversation
from gateway.chat.template_key import TemplateKey

TEMPLATE = """
{%- for message in messages %}{{ message.role }}:
  {%- for call in message.tool_calls or [] %}{{ call.function.name + (call.function.arguments | tojson) }}{% endfor %}
  {%- for result in message.tool_responses or [] %}={{ result.name }}:{{ result.response }}{% endfor %}
  {{- message.content }};
{%- endfor %}"""
ASKED = {"role": "user", "content": "Hi"}
DONE = {"role": "assistant", "content": "Done."}


def _called(content: str | None, **calls: str) -> dict[str, Any]:
    functions = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}} for id_, name in calls.items()
    ]
    return {"role": "assistant", "content": content, "tool_calls": functions}


def _result(id_: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def _text(*messages: dict[str, Any]) -> str:
    return text_of(ChatModel(TemplateKey(TEMPLATE)).prompt(Conversation(messages=messages)).text)


def test_results_and_the_answer_to_them_are_in_the_message_of_their_calls() -> None:
    text = _text(ASKED, _called(None, a="f", b="g"), _result("b", "2"), _result("a", "1"), DONE, ASKED)
    assert text == "user:Hi;assistant:f{}g{}=g:2=f:1Done.;user:Hi;"


def test_text_beside_calls_is_before_them() -> None:
    text = _text(ASKED, _called("I look.", a="f"), _result("a", "1"), _called("", b="g"), _result("b", "2"))
    assert text == "user:Hi;assistant:I look.;assistant:f{}=f:1;assistant:g{}=g:2;"


def test_only_one_text_of_the_assistant_answers_results() -> None:
    begun = (ASKED, _called("", a="f"), _result("a", "1"))
    assert _text(*begun, ASKED) == "user:Hi;assistant:f{}=f:1;user:Hi;"
    assert _text(*begun, DONE, DONE) == "user:Hi;assistant:f{}=f:1Done.;assistant:Done.;"


def test_a_result_may_be_empty_or_of_no_call() -> None:
    assert _text(ASKED, _called("", a="f"), {**_result("b", ""), "content": None}).endswith("f{}=unknown:;")


def test_what_has_no_calls_before_it_stays() -> None:
    assert _text(ASKED, DONE, _result("a", "1"), DONE) == "user:Hi;assistant:Done.;tool:1;assistant:Done.;"
    assert _text(ASKED, _called("", a="f"), DONE) == "user:Hi;assistant:f{};assistant:Done.;"
