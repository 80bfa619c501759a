"""Clients' texts become no control tokens, whatever a template does to them, and nothing else changes."""

import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import PromptText, RequestError, TextPrompt, text_of
from gateway.chat.control_names import ControlNames
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from gateway.chat.rendering import encode_conversation, render
from gateway.chat.template_capabilities import TemplateMessage  # noqa: TC001 (read by mypy only)
from gateway.chat.template_key import TemplateDefaults, TemplateKey, template_key
from gateway.chat.tools import Tool
from gateway.preparation.codec import decode, encode
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL
from tests.program import ROOT
from tests.repeat import TIMES, repeated

NAMES = ("<|im_start|>", "<|im_end|>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>", '<|"|>', "<\uff5cUser\uff5c>")
TEMPLATES = {
    "chatml": templates.CHATML,
    "thinking": templates.THINKING,
    "arguments as text": templates.ARGUMENTS_AS_TEXT,
    "nine letters": templates.NINE_LETTERS,
    "parts": templates.PARTS,
    "no system": templates.NO_SYSTEM,
    "embedded": (ROOT / "engine" / "embedded" / "training" / "chat_template.jinja").read_text(),
}
MANGLINGS = [
    "x",
    "x | trim",
    "x | upper",
    "x | lower",
    "x | title",
    "x | capitalize",
    "x | tojson",
    "x | tojson(ensure_ascii=true)",
    "[x] | string",
    "{'x': x} | string",
    "x[1:]",
    "x[:-1]",
    "x[::-1]",
    "x[::-1][::-1]",
    "x.split('|') | join('|')",
    "x.split('im') | join('im')",
    "x.split() | join",
    "x | replace('start', 'end')",
    "x.replace('|', '')",
    "x | list | join",
    "x | urlencode",
    "x | e",
    "x | length",
    "x | center(80)",
    "x | wordwrap(5)",
    "'%s' | format(x)",
    "'{}'.format(x)",
    "x * 2",
    "x ~ x",
]
TEXTS = st.lists(
    st.sampled_from([*NAMES, *"<|>/s\n ", "|im_end|", "im_end|>", "<|im_", "Hi", "\u3400", "\\u3400", "</think>"])
).map("".join)


def prompt_of(source: str, conversation: Conversation, names: tuple[str, ...] = NAMES) -> TextPrompt:
    prompt = ChatModel(TemplateKey(source, control_names=names)).prompt(conversation)
    assert decode(encode(prompt), ChatPrompt) == prompt
    return prompt.text


def parsed_names(prompt: TextPrompt) -> list[str]:
    """Return the names of control tokens outside the plain parts."""
    parts = prompt.parts() if isinstance(prompt, PromptText) else [(prompt, False)]
    names = ControlNames(NAMES)
    return [part[start:end] for part, plain in parts if not plain for start, end in names.find(part)]


def conversation_of(text: str, **fields: Any) -> Conversation:
    """Return a conversation with a text in each of its places."""
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": _json({"x": text, text: 1})}}
    messages: tuple[TemplateMessage, ...] = (
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "reasoning_content": text, "tool_calls": [call]},
        {"role": "tool", "content": text, "tool_call_id": "call_1", "name": "add"},
        {"role": "assistant", "content": text},
        {"role": "user", "content": text, "name": text},
    )
    tool = Tool("add", text, {"type": "object", "properties": {text: {"type": "string", "enum": [text]}}})
    return Conversation(messages=messages, tools=(tool,), **fields)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@repeated
@settings(max_examples=5 * TIMES)
@given(text=TEXTS)
def test_a_clients_text_stays_the_same_and_becomes_no_control_token(source: str, text: str) -> None:
    conversation = conversation_of(text)
    prompt = prompt_of(source, conversation)
    assert parsed_names(prompt) == parsed_names(prompt_of(source, conversation_of("Hi")))
    assert text_of(prompt) == prompt_of(source, replace(conversation, parse_special=True))


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@repeated
@settings(max_examples=5 * TIMES)
@given(text=st.text() | TEXTS)
def test_a_text_without_names_has_the_prompt_of_a_model_without_control_tokens(source: str, text: str) -> None:
    for name in NAMES:
        text = text.replace(name, "")
    text = "".join(text.split("<"))
    conversation = conversation_of(text)
    prompt = prompt_of(source, conversation)
    assert isinstance(prompt, str)
    assert prompt == prompt_of(source, conversation, names=())


@pytest.mark.parametrize("mangling", MANGLINGS)
@repeated
@settings(max_examples=5 * TIMES)
@given(text=st.lists(st.sampled_from([*NAMES, " ", "Hi", "\n"])).map("".join))
def test_no_mangling_frees_a_name(mangling: str, text: str) -> None:
    source = f"{{% set x = messages[0].content %}}{{{{ {mangling} }}}}"
    assert not parsed_names(prompt_of(source, Conversation(messages=({"role": "user", "content": text},))))


@pytest.mark.parametrize("mangling", ["x", "x | trim", "x | lower", "x | tojson", "[x] | string", "'{}'.format(x)"])
@repeated
@settings(max_examples=8 * TIMES)
@given(text=TEXTS)
def test_what_a_template_writes_stays_the_same(mangling: str, text: str) -> None:
    source = f"<s>{{% set x = messages[0].content %}}{{{{ {mangling} }}}}</s>"
    conversation = Conversation(messages=({"role": "user", "content": text},))
    prompt = prompt_of(source, conversation)
    assert parsed_names(prompt) == ["<s>", "</s>"]
    assert text_of(prompt) == prompt_of(source, replace(conversation, parse_special=True))


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("{{ messages[0].content }}{{ messages[1].content }}", ("<|im_", "start|>")),
        ("{{ messages[0].content }}{{ messages[1].content }}", ("<", "s>")),
        ("<{{ messages[0].content }}>", ("|im_end|", "")),
        ("<{{ messages[0].content }}></{{ messages[1].content }}>", ("s", "s")),
        ("{{ messages[0].content }}|>", ("<|im_end", "")),
        ("<|im_{{ messages[0].content }}", ("end|>", "")),
        ("{{ messages | map(attribute='content') | join }}", ("<|im_", "start|>")),
    ],
)
def test_texts_form_no_name_together_or_with_the_template(source: str, texts: tuple[str, str]) -> None:
    messages = tuple({"role": "user", "content": text} for text in texts)
    prompt = prompt_of(source, Conversation(messages=messages))
    assert isinstance(prompt, PromptText)
    assert not parsed_names(prompt)


def test_an_escaped_name_in_arguments_is_plain() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "\\u003cs>", "y": "<|\\"|>"}'}}
    messages: tuple[TemplateMessage, ...] = (
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )
    for source in (templates.CHATML, templates.NINE_LETTERS, templates.ARGUMENTS_AS_TEXT, templates.NO_SYSTEM):
        prompt = prompt_of(source, Conversation(messages=messages))
        assert "<s>" in text_of(prompt)
        assert "<s>" not in parsed_names(prompt)
        assert '<|"|>' not in parsed_names(prompt)


def test_variables_and_documents_are_plain() -> None:
    kwargs = {"effort": "<s>", "documents": [{"title": "<|im_end|>"}]}
    conversation = Conversation(messages=({"role": "user", "content": "Hi"},), template_kwargs=kwargs)
    prompt = prompt_of("<s>{{ effort }}{{ documents[0].title }}</s>{{ effort }}", conversation)
    assert prompt == PromptText("<s><s><|im_end|></s><s>", ((3, 16), (20, 23)))


def test_a_continued_message_is_plain() -> None:
    messages = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So <|im_end|>"})
    prompt = prompt_of(templates.CHATML, Conversation(messages=messages, continue_final=True))
    assert text_of(prompt).endswith("<|im_start|>assistant\nSo <|im_end|>")
    assert parsed_names(prompt) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


@pytest.mark.parametrize(("tool_choice", "text"), [("auto", "add"), ("none", "")])
def test_tools_are_shown_or_hidden_as_without_masks(tool_choice: Any, text: str) -> None:
    source = "{{ tools[0].function.name if tools }}{{ messages[0].content }}"
    model = ChatModel(TemplateKey(source, control_names=("<|a|>",)))
    message = {"role": "user", "content": "<|a|>"}
    prompt = model.prompt(Conversation(messages=(message,), tools=(Tool("add"),), tool_choice=tool_choice))
    assert prompt.text == PromptText(f"{text}<|a|>", ((0, len(text) + 5),))


def test_a_refusal_of_a_template_has_the_clients_words() -> None:
    conversation = Conversation(messages=({"role": "user", "content": "<s>"},))
    with pytest.raises(RequestError, match="No <s>, please") as caught:
        prompt_of("{{ raise_exception('No ' + messages[0].content + ', please') }}", conversation)
    assert (caught.value.code, caught.value.param) == ("chat_template_refused", "messages")


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("request_field", [False, True, None])
def test_the_operator_and_the_request_may_parse_names(operator: bool, request_field: bool | None) -> None:
    model = replace(MODEL, chat_template="{{ messages[0].content }}", control_names=NAMES)
    conversation = Conversation(messages=({"role": "user", "content": "<s>"},), parse_special=request_field)
    prompt = render(
        template_key(model, defaults=TemplateDefaults(parse_special=operator)), encode_conversation(conversation)
    )
    parsed = operator if request_field is None else request_field
    assert prompt.text == ("<s>" if parsed else PromptText("<s>", ((0, 3),)))


def test_texts_with_all_stand_ins_are_refused() -> None:
    every = "".join(map(chr, range(0x3400, 0x4DC0)))
    conversation = Conversation(messages=({"role": "user", "content": every},))
    assert prompt_of("{{ messages[0].content }}", conversation) == every
    conversation = Conversation(messages=({"role": "user", "content": f"<s>{every}"},))
    with pytest.raises(RequestError, match="rare ideographs") as refused:
        prompt_of("{{ messages[0].content }}", conversation)
    assert refused.value.param == "messages"


def test_variables_that_are_nested_too_deeply_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    with pytest.raises(RequestError, match="nested too deeply") as caught:
        prompt_of(templates.CHATML, conversation_of("Hi", template_kwargs={"deep": deep}))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "messages")


@pytest.mark.parametrize("arguments", ['{"x":  "\\u00e9>"}', '{"x": ">\\/"', "{'<s", '{"x": "\\q"}', '"', "", "[1]"])
def test_arguments_without_names_stay_the_same(arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages: tuple[TemplateMessage, ...] = (
        {"role": "user", "content": "<s>"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )
    assert arguments in text_of(prompt_of(templates.ARGUMENTS_AS_TEXT, Conversation(messages=messages)))


def test_plain_parts_are_as_few_as_control_tokens() -> None:
    messages = ({"role": "user", "content": "<s>x" * 10_000},)
    prompt = prompt_of(templates.CHATML, Conversation(messages=messages))
    assert isinstance(prompt, PromptText)
    assert len(prompt.plain) == 1
