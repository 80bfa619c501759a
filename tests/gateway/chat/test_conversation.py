"""Conversations become prompts, with the parser and the grammar of the answer."""

from dataclasses import replace
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from engine import Grammar, GrammarKind, ModelInfo, RequestError, text_of
from gateway.chat.conversation import ChatPrompt, Conversation
from gateway.chat.custom_inputs import custom_tool
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, ReasoningDelta
from gateway.chat.rendering import encode_conversation, render
from gateway.chat.template_capabilities import TemplateMessage
from gateway.chat.template_key import template_key
from gateway.chat.tools import Named, Tool
from gateway.preparation.codec import decode, encode
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL

ASKED: TemplateMessage = {"role": "user", "content": "Hi"}
SAID: TemplateMessage = {"role": "assistant", "content": "Well "}
ADD = Tool("add", "Adds.", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
SUB = Tool("sub", "Subtracts.")
OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object","properties":{"y":{"const":1}},"required":["y"]}')
CALL = '<tool_call>\n{"name": "add", "arguments": {"x":1}}\n</tool_call>'
TWO_CALLS = f"{CALL}\n{CALL}"


def prompt_of(source: str | None, *messages: TemplateMessage, **fields: Any) -> ChatPrompt:
    return prompt_for(replace(MODEL, chat_template=source), Conversation(messages=messages or (ASKED,), **fields))


def prompt_for(model: ModelInfo, conversation: Conversation, override: str | None = None) -> ChatPrompt:
    prompt = render(template_key(model, override), encode_conversation(conversation))
    assert decode(encode(prompt), ChatPrompt) == prompt
    return prompt


def text_from(source: str | None, *messages: TemplateMessage, **fields: Any) -> str:
    return text_of(prompt_of(source, *messages, **fields).text)


def matches(grammar: Grammar | None, text: str) -> bool:
    assert grammar is not None
    source = grammar.source
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        source = f"start: %json {source}"
    matcher = LLMatcher(LLTokenizer("byte"), source)
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def test_a_prompt_ends_where_the_answer_begins() -> None:
    prompt = prompt_of(templates.CHATML)
    assert prompt.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.grammar is None
    assert prompt.parsing.parser() is not prompt.parsing.parser()


def test_a_template_that_loops_over_tools_takes_a_conversation_without_them() -> None:
    source = "{% for tool in tools %}{{ tool.function.name }};{% endfor %}{{ messages[0].content }}"
    assert text_from(source) == "Hi"
    assert text_from(source, tools=(ADD,)) == "add;Hi"
    assert text_from("{% if tools is not none %}tools{% endif %}") == ""


@pytest.mark.parametrize(("content", "words"), [("Well.", "Well."), (None, "")])
def test_reasoning_becomes_a_part_where_the_template_takes_it_so(content: str | None, words: str) -> None:
    thought: TemplateMessage = {"role": "assistant", "content": content, "reasoning_content": "Hm."}
    assert text_from(templates.THINKING_PARTS, ASKED, thought).strip() == f"Hi;[THINK]Hm.[/THINK]{words};"


def test_a_template_may_read_what_a_tool_lacks() -> None:
    source = "{% for t in tools %}{{ t.function.description + t.function.parameters.properties | tojson }}{% endfor %}"
    assert text_from(source, tools=(Tool("now", None, {"type": "object"}),)) == "{}"
    assert text_from(source, tools=(Tool("now", "Time.", {"type": "object"}),)) == "Time.{}"
    assert text_from(source, tools=(replace(ADD, description=None),)) == '{"x": {"type": "integer"}}'


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{{ tools }}]<]minimax[>[",
            '<invoke name="f"><at><zip>0150</zip><n>1</n></at></invoke>'.replace("<", "]<]minimax[>[<"),
        ),
        (
            "{{ tools }}<tool_call>",
            '<tool_call>{"name": "f", "arguments": {"at": {"zip": "0150", "n": 1}}}</tool_call>',
        ),
    ],
)
def test_members_of_an_argument_have_the_types_of_its_schema(source: str, text: str) -> None:
    at = {"type": "object", "properties": {"zip": {"type": "string"}, "n": {"type": "integer"}}}
    parser = prompt_of(source, tools=(Tool("f", None, {"properties": {"at": at}}),)).parsing.parser()
    began, *arguments = [*parser.feed(text), *parser.finish()]
    assert began == CallBegan(0, "f")
    assert arguments == [CallArguments(0, '{"at": {"zip": "0150", "n": 1}}')]


def test_only_parsers_of_nested_values_keep_schemas() -> None:
    for source, kept in (("{{ tools }}]<]minimax[>[", ADD.parameters), (templates.CHATML, {})):
        (tool,) = prompt_of(source, tools=(ADD,)).parsing.tools
        assert tool.parameters == kept


def test_a_parser_knows_custom_tools_and_whether_reasoning_is_content() -> None:
    parsing = prompt_of(templates.CHATML, tools=(ADD, custom_tool("run", None, None)), reasoning_inline=True).parsing
    assert (parsing.custom, parsing.inline) == (("run",), True)
    parsing = prompt_of(templates.CHATML, tools=(ADD,)).parsing
    assert (parsing.custom, parsing.inline) == ((), False)


@pytest.mark.parametrize(
    ("fields", "call"),
    [({}, "<tool_call>"), ({"tool_choice": "required"}, ""), ({"tools": ()}, "")],
    ids=["free", "forced", "without tools"],
)
def test_a_call_ends_reasoning_unless_a_grammar_forces_its_end(fields: dict[str, Any], call: str) -> None:
    prompt = prompt_of(f"{templates.CHATML}{{# <think></think> #}}", **{"tools": (ADD,), **fields})
    assert prompt.reasoning is not None
    assert prompt.reasoning.call == call
    assert prompt.parsing.drafts == ("tool_choice" in fields)


@pytest.mark.parametrize("call", ["<|tool_call>", "<\uff5ctool▁calls▁begin\uff5c>"], ids=["Gemma 4", "DeepSeek"])
def test_the_marker_that_ends_reasoning_is_that_of_the_family(call: str) -> None:
    reasoning = prompt_of(f"{templates.CHATML}{{# {call}<think></think> #}}", tools=(ADD,)).reasoning
    assert reasoning is not None
    assert reasoning.call == call


def test_open_answer_controls_the_generation_prompt() -> None:
    ended = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell <|im_end|>\n"
    assert prompt_of(templates.CHATML, ASKED, SAID, open_answer=False).text == ended
    assert prompt_of(templates.CHATML, ASKED, SAID).text == ended + "<|im_start|>assistant\n"


@pytest.mark.parametrize("source", [templates.CHATML, templates.PARTS, templates.NO_SYSTEM])
def test_a_last_message_goes_on_where_it_ended(source: str) -> None:
    text = text_from(source, ASKED, SAID, continue_final=True)
    assert text.endswith("Well ")
    assert text_from(source, ASKED, {**SAID, "content": None}, continue_final=True) == text.removesuffix("Well ")
    assert text_from(source, ASKED, {**SAID, "content": "Well Hi Well "}, continue_final=True).endswith(" Hi Well ")


@pytest.mark.parametrize("reasons", ["", "{# <think> </think> #}"])
def test_a_template_that_hides_the_last_message_cannot_continue_it(reasons: str) -> None:
    with pytest.raises(RequestError, match="does not show the last message") as caught:
        prompt_of("{{ messages[0].content }}" + reasons, ASKED, SAID, continue_final=True)
    assert (caught.value.code, caught.value.param) == ("chat_template_refused", "messages")


def test_the_operators_template_wins() -> None:
    model = replace(
        MODEL, chat_template="{{ raise_exception('Mine.') }}", tool_template="Theirs.", bos="<s>", eos="</s>"
    )
    source = "{{ bos_token }}{{ tools[0].function.name }}{{ eos_token }}"
    prompt = prompt_for(model, Conversation(messages=(ASKED,), tools=(ADD,)), source)
    assert prompt.text == "<s>add</s>"


def test_tools_use_their_own_template() -> None:
    model = replace(MODEL, chat_template="plain", tool_template="{{ tools | map(attribute='function.name') | join }}")
    assert prompt_for(model, Conversation(messages=(ASKED,), tools=(ADD, SUB))).text == "addsub"
    assert prompt_for(model, Conversation(messages=(ASKED,))).text == "plain"
    assert prompt_for(model, Conversation(messages=(ASKED,), tools=(ADD,), tool_choice="none")).text == "plain"


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (None, "chat_template_missing", "--chat-template"),
        ("", "chat_template_missing", "--chat-template"),
        ("Hi\n{% if %}", "chat_template_invalid", "line 2"),
        ("{{ raise_exception('Be polite.') }}", "chat_template_refused", "Be polite."),
    ],
)
def test_a_model_without_a_template_cannot_chat(source: str | None, code: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        prompt_of(source)
    assert (caught.value.code, caught.value.param) == (code, "messages")


def test_a_model_that_does_not_generate_is_not_said_to_lack_a_template() -> None:
    embedder = replace(MODEL, chat_template=None, generates=False)
    with pytest.raises(RequestError, match="does not generate text") as caught:
        prompt_for(embedder, Conversation(messages=(ASKED,)))
    assert (caught.value.code, caught.value.param) == ("unsupported_model", "model")


def test_variables_reach_the_template() -> None:
    text = prompt_of(
        "{{ effort }}{{ documents[0].title }}", template_kwargs={"effort": "low", "documents": [{"title": "T"}]}
    )
    assert text.text == "lowT"


def test_tools_are_passed_in_openais_form() -> None:
    text = text_from("{{ tools | tojson }}", tools=(ADD, Tool("sub")))
    described = (
        '{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"'
    )
    assert text.startswith(f"[{described}")
    assert '{"name": "sub", "parameters": {"type": "object", "properties": {}}}' in text
    assert prompt_of("{{ tools is none }}").text == "True"


def test_tools_are_added_to_the_first_message_if_the_template_does_not_show_them() -> None:
    text = text_from(templates.NO_SYSTEM, tools=(ADD,))
    assert text.startswith("<start_of_turn>user\n")
    assert '"add"' in text
    assert text.endswith("Hi<end_of_turn>\n")
    assert '"add"' not in text_from(templates.NO_SYSTEM, tools=(ADD,), tool_choice="none")


def test_an_answer_may_begin_inside_reasoning() -> None:
    parser = prompt_of(templates.THINKING).parsing.parser()
    assert parser.feed("Hm.\n</think>\n\nWell.") + parser.finish() == [ReasoningDelta("Hm."), ContentDelta("Well.")]
    parser = prompt_of(templates.THINKING, template_kwargs={"enable_thinking": False}).parsing.parser()
    assert parser.feed("Well.") + parser.finish() == [ContentDelta("Well.")]


def test_calls_are_found_where_tools_are_offered() -> None:
    parser = prompt_of(templates.CHATML, tools=(ADD,)).parsing.parser()
    call = [CallBegan(0, "add"), CallArguments(0, '{"x":1}')]
    assert parser.feed(TWO_CALLS) + parser.finish() == [*call, CallBegan(1, "add"), CallArguments(1, '{"x":1}')]
    one = prompt_of(templates.CHATML, tools=(ADD,), parallel_tool_calls=False).parsing.parser()
    assert one.feed(TWO_CALLS) + one.finish() == call
    none = prompt_of(templates.CHATML, tools=(ADD,), tool_choice="none").parsing.parser()
    assert none.feed(CALL) + none.finish() == [ContentDelta(CALL)]


@pytest.mark.parametrize(
    ("fields", "matched", "unmatched"),
    [
        ({"tool_choice": "required"}, [CALL, TWO_CALLS], ["Hi", '{"y":1}']),
        ({"tool_choice": "required", "parallel_tool_calls": False}, [CALL], [TWO_CALLS]),
        ({"tool_choice": Named("add")}, [CALL], [CALL.replace("add", "sub"), "Hi"]),
        ({"tool_choice": Named("add"), "grammar": OBJECT}, [CALL], ['{"y":1}']),
        ({"tool_choice": "none", "grammar": OBJECT}, ['{"y":1}'], [CALL, "Hi"]),
        ({"tool_choice": "auto", "grammar": OBJECT}, ['{"y":1}', CALL], ["Hi", '{"y":2}', CALL + "x"]),
        ({"tools": (), "grammar": OBJECT}, ['{"y":1}'], [CALL]),
    ],
)
def test_the_grammar_follows_tool_choice_and_response_format(
    fields: dict[str, Any], matched: list[str], unmatched: list[str]
) -> None:
    grammar = prompt_of(templates.CHATML, **{"tools": (ADD, SUB), **fields}).grammar
    assert [matches(grammar, text) for text in matched] == [True] * len(matched)
    assert [matches(grammar, text) for text in unmatched] == [False] * len(unmatched)


def test_reasoning_comes_before_constrained_text() -> None:
    grammar = prompt_of(templates.THINKING, grammar=OBJECT, tools=(ADD,)).grammar
    for answer in ('{"y":1}', CALL):
        assert matches(grammar, f"Hm.</think>\n\n{answer}")
        assert not matches(grammar, answer)


def test_optional_tools_need_no_grammar() -> None:
    assert prompt_of(templates.CHATML, tools=(ADD,)).grammar is None


def test_gbnf_with_tools_is_refused() -> None:
    with pytest.raises(RequestError, match="Lark") as caught:
        prompt_of(templates.CHATML, tools=(ADD,), grammar=Grammar(GrammarKind.GBNF, 'root ::= "a"'))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "grammar")


ADDED: TemplateMessage = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}],
}
RESULT: TemplateMessage = {"role": "tool", "content": "2", "tool_call_id": "1"}


def test_calls_stay_calls_if_the_template_shows_them_beside_tools_only() -> None:
    call = "{{ m.tool_calls[0].function.arguments | tojson if tools and m.tool_calls else m.content }}"
    source = f"{{% for m in messages %}}{call};{{% endfor %}}"
    assert text_from(source, ASKED, ADDED, RESULT, tools=(ADD,)) == 'Hi;{"x": 1};2;'


def test_calls_are_written_as_text_if_the_template_does_not_show_them() -> None:
    text = text_from(templates.NO_SYSTEM, ASKED, ADDED, RESULT, tools=(ADD,))
    assert text.endswith(
        "<start_of_turn>assistant\n```tool_code\nadd(x=1)\n```<end_of_turn>\n"
        "<start_of_turn>user\n```tool_output\n2\n```<end_of_turn>\n"
    )
