"""The chat template: the text of turns, tools, calls and results."""

from engine.embedded.training.template import Message, render

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"<a>": {}}}}}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
WRITTEN = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_every_message_is_one_turn() -> None:
    shown = render([turn("system", "Be brief."), turn("user", "Hi")], ask=True)
    assert shown == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_a_developer_message_is_a_system_message() -> None:
    assert render([turn("developer", "x")], ask=False) == render([turn("system", "x")], ask=False)


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render([{"role": "user", "content": parts}], ask=False) == render([turn("user", "ab")], ask=False)


def test_tools_follow_the_system_message_in_one_turn() -> None:
    shown = render([turn("system", "Be brief."), turn("user", "Hi")], [TOOL], ask=False)
    assert shown.count("<|im_start|>system") == 1
    assert shown.startswith("<|im_start|>system\nBe brief.\n\nYou may call")
    described = (
        '{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"<a>": {}}}}}'
    )
    assert f"<tools>\n{described}\n</tools>" in shown
    assert shown.endswith("<|im_start|>user\nHi<|im_end|>\n")


def test_calls_are_written_the_same_whether_arguments_are_text_or_an_object() -> None:
    as_object = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    for call in (CALL, as_object):
        shown = render([{"role": "assistant", "content": None, "tool_calls": [call]}], ask=False)
        assert shown == f"<|im_start|>assistant\n{WRITTEN}<|im_end|>\n"


def test_several_calls_share_one_turn_and_a_result_has_its_own() -> None:
    messages: list[Message] = [{"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]}, turn("tool", "3")]
    shown = render(messages, ask=False)
    assert shown == f"<|im_start|>assistant\nSo:\n{WRITTEN}\n{WRITTEN}<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n"
