"""Request bodies: the description and the body's own reader accept the same values."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine import RequestError
from gateway.apis.fields.tools import MAX_TOOLS
from gateway.apis.generate.request import GenerateBody
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.llama_server.embeddings.request import NativeEmbeddingBody
from gateway.apis.llama_server.tokenize.request import TokenizeBody
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.conversations.request import ConversationBody, ItemsBody, MetadataBody
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.apis.openai.responses.request import ResponseBody
from tests.gateway import description

ASKED = [{"role": "user", "content": "a"}]
FUNCTION = {"name": "f"}
TOOL = {"type": "function", "function": FUNCTION}
SPACED = {"type": "function", "name": "f"}
SPACE = {"type": "namespace", "name": "s", "description": "", "tools": [SPACED]}
NAMED = {"type": "function", "function": {"name": "f"}}
TEXT = {"prompt_string": "a", "id": 1, "multimodal_data": []}
TEXTS = {"content": [{"type": "text", "text": "a"}], "id": 1}
THOUGHT: dict[str, Any] = {"type": "reasoning", "summary": [], "content": None}


def each(*values: Any) -> tuple[Any, ...]:
    """Return values of any types."""
    return values


TAKEN: list[tuple[type[BaseModel], dict[str, Any]]] = [
    *((CompletionBody, {"prompt": prompt}) for prompt in each("a", ["a", "b"], [1, 2], [[1], [2, 3]], ["a", [1]])),
    *((GenerateBody, {"prompt": prompt}) for prompt in each("a", ["a"], [1, 2], [[1, 2]])),
    *((EmbeddingBody, {"input": given}) for given in each("a", ["a"] * 2048, [1, 2])),
    *((NativeCompletionBody, {"prompt": prompt}) for prompt in each("", ["a", 1], TEXT, TEXTS, [TEXT, TEXTS, [1]])),
    *((NativeEmbeddingBody, {"content": given}) for given in each("", ["a", 1], TEXT, TEXTS, [TEXT, TEXTS, [1]])),
    *((CompletionBody, {"prompt": "a", "stop": stop}) for stop in each(None, "a", [], ["a", "b"])),
    *((CompletionBody, {"prompt": "a", "logit_bias": bias}) for bias in each(None, {}, {"5": -100, "0": 1.5})),
    *((CompletionBody, {"prompt": "a", "seed": seed}) for seed in each(-(2**63), -1, 2**64 - 1)),
    *((CompletionBody, {"prompt": prompt, "n": 1.0}) for prompt in each([1.0, 2], [[1.0], [2.0]], ["a", [1.0]])),
    *((NativeCompletionBody, {"prompt": prompt}) for prompt in each(["a", 1.0], [1.0, 2], [[1.0], TEXT])),
    (CompletionBody, {"prompt": "a", "n": None, "stream": None, "json_schema": None, "unknown": {}}),
    (CompletionBody, {"prompt": "a", "json_schema": '{"type":"object"}'}),
    (CompletionBody, {"prompt": "a", "structured_outputs": {"regex": "a", "structural_tag": None}}),
    (CompletionBody, {"prompt": "a", "stream": True, "stream_options": {"include_usage": None}}),
    (CompletionBody, {"prompt": "a", "timings_per_token": False}),
    *(
        (ChatBody, {"messages": [{"role": "user", "content": content}]})
        for content in each("", [{"type": "text", "text": "a"}])
    ),
    (ChatBody, {"messages": [{"role": "assistant", "content": None, "refusal": "no", "audio": None}]}),
    (ChatBody, {"messages": ASKED, "tools": [TOOL], "tool_choice": NAMED, "functions": None}),
    (ChatBody, {"messages": ASKED, "functions": [FUNCTION], "function_call": {"name": "f"}}),
    (ChatBody, {"messages": ASKED, "audio": None, "modalities": ["text"], "chat_template_kwargs": {"a": 1}}),
    (ResponseBody, {"input": "a", "truncation": "disabled", "conversation": None}),
    *((ResponseBody, {"conversation": named}) for named in each("conv_1", {"id": "conv_1"})),
    *((ConversationBody, body) for body in each({}, {"metadata": None, "items": None}, {"items": [], "metadata": {}})),
    *((MetadataBody, {"metadata": metadata}) for metadata in each(None, {}, {"a": "b"})),
    *((ItemsBody, {"items": items}) for items in each([], [{"role": "user", "content": "a"}] * 20)),
    (ResponseBody, {"input": "a", "truncation": "auto"}),
    (
        ResponseBody,
        {"input": [{"role": "user", "content": "a"}, {"id": "msg_1"}, {"type": "item_reference", "id": "x"}]},
    ),
    *(
        (ResponseBody, {"input": [{"role": "assistant", "content": "a", "phase": phase}]})
        for phase in each("commentary", None)
    ),
    (ResponseBody, {"input": "a", "tools": [{"type": "function", "name": "f", "defer_loading": False}]}),
    (ResponseBody, {"input": "a", "tools": [SPACE, {"type": "web_search", "filters": {}}]}),
    (ResponseBody, {"input": "a", "tools": [SPACE], "tool_choice": {**SPACED, "namespace": "s"}}),
    (
        ResponseBody,
        {"input": "a", "tools": [SPACE], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [SPACED]}},
    ),
    (ResponseBody, {"input": "a", "metadata": {"k" * 64: "v" * 512}}),
    (TokenizeBody, {"content": "", "prompt": None}),
    (ResponseBody, {"input": None, "previous_response_id": "resp_1"}),
    (ResponseBody, {"input": [THOUGHT, {"role": "user", "content": ""}]}),
    *((ResponseBody, {"input": items, "previous_response_id": "resp_1"}) for items in each([], [THOUGHT])),
    (ResponseBody, {"input": [], "conversation": "conv_1"}),
    (ResponseBody, {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]}]}),
    (ResponseBody, {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "plain.aG0="}]}),
    (ResponseBody, {"input": "a", "text": {"format": {"type": None}}}),
    (CompletionBody, {"prompt": "a", "response_format": {"type": "json_schema", "schema": {}}}),
]
REFUSED: list[tuple[type[BaseModel], dict[str, Any]]] = [
    *((ResponseBody, body) for body in each({}, *({"input": given} for given in (None, [], [THOUGHT], [THOUGHT] * 2)))),
    *((ResponseBody, {"conversation": named}) for named in each("", {}, {"id": 5}, 5, [])),
    *((MetadataBody, body) for body in each({}, {"metadata": {"a": 1}}, {"metadata": []})),
    *((ItemsBody, body) for body in each({}, {"items": None}, {"items": "a"}, {"items": [{"role": "user"}]})),
    (ItemsBody, {"items": [{"role": "user", "content": "a"}] * 21}),
    (CompletionBody, {}),
    *(
        (CompletionBody, {"prompt": prompt})
        for prompt in each(
            None, "", [], [""], [[]], [1, "a"], ["a", 1], [1.5], [True], [-1], [2**31], ["a"] * 129, {}, 5
        )
    ),
    *((GenerateBody, {"prompt": prompt}) for prompt in each(["a", "b"], [[1], [2]])),
    *((EmbeddingBody, {"input": given}) for given in each("", ["a"] * 2049)),
    *((NativeCompletionBody, {"prompt": prompt}) for prompt in each([], {}, [{}], [1, TEXT], {"prompt_string": 1})),
    *((NativeCompletionBody, {"prompt": {**TEXT, "multimodal_data": data}}) for data in each(False, {}, ["x"])),
    *((NativeCompletionBody, {"prompt": {**TEXTS, "multimodal_data": data}}) for data in each(False, {}, ["x"])),
    *((NativeCompletionBody, {"prompt": {"content": parts}}) for parts in each("a", [], ["a"], [{"text": "a"}])),
    *((NativeEmbeddingBody, {"content": given}) for given in each([], {}, [{}], [1, TEXT], {"prompt_string": 1})),
    *((CompletionBody, {"prompt": "a", "stop": stop}) for stop in each("", [""], ["a"] * 1025, "a" * 1025, [5], {})),
    *(
        (CompletionBody, {"prompt": "a", "logit_bias": bias})
        for bias in each([], {"a": 1}, {"05": 1}, {"5": 101}, {"5": True}, {"5": None})
    ),
    *((CompletionBody, {"prompt": "a", "seed": seed}) for seed in each(-(2**63) - 1, 1.5, True, "1")),
    (CompletionBody, {"prompt": "a", "structured_outputs": {"regex": "a", "structural_tag": {}}}),
    (GenerateBody, {"prompt": "a", "timings_per_token": True}),
    *((ChatBody, {"messages": messages}) for messages in each(None, [], {}, [{"role": "bird", "content": "a"}], ["a"])),
    *(
        (ChatBody, {"messages": [{"role": "user", "content": content}]})
        for content in each(None, [], 5, [{"type": "image_url"}])
    ),
    (ChatBody, {"messages": [{"role": "assistant", "content": "a", "audio": {"id": "x"}}]}),
    (ChatBody, {"messages": ASKED, "tools": [TOOL] * (MAX_TOOLS + 1)}),
    (ChatBody, {"messages": ASKED, "tools": [TOOL], "tool_choice": {"type": "bird"}}),
    (ChatBody, {"messages": ASKED, "functions": []}),
    *(
        (ChatBody, {"messages": ASKED, field: {}})
        for field in each("audio", "web_search_options", "moderation", "chat_template")
    ),
    *(
        (body, {**asked, "use_beam_search": True})
        for body, asked in ((ChatBody, {"messages": ASKED}), (CompletionBody, {"prompt": "a"}))
    ),
    (ChatBody, {"messages": ASKED, "modalities": ["text", "audio"]}),
    (ChatBody, {"messages": ASKED, "chat_template_kwargs": {"messages": []}}),
    *((ResponseBody, {"input": "a", field: {}}) for field in each("conversation", "prompt", "moderation")),
    (ResponseBody, {"input": [{"type": "bird"}]}),
    (ResponseBody, {"input": "a", "truncation": "always"}),
    (ResponseBody, {"input": "a", "tools": [{"type": "function", "name": "f", "defer_loading": True}]}),
    (ResponseBody, {"input": "a", "tools": [{**SPACE, "tools": []}]}),
    (ResponseBody, {"input": "a", "tools": [{"type": "file_search"}]}),
    (ResponseBody, {"input": "a", "metadata": {"k" * 65: "v"}}),
    (TokenizeBody, {}),
    (TokenizeBody, {"content": None}),
    (TokenizeBody, {"content": "a", "prompt": "b"}),
    (ResponseBody, {}),
    (ResponseBody, {"input": None}),
    (ResponseBody, {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}),
    (ResponseBody, {"input": [{"role": "user", "content": [{"type": "refusal", "text": "a"}]}]}),
    (ResponseBody, {"input": "a", "text": {"format": {"type": "json_schema", "name": "a"}}}),
    (ChatBody, {"messages": [{"role": "user", "content": [{"type": "text", "refusal": "a"}]}]}),
    (ChatBody, {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}),
    (CompletionBody, {"prompt": "a", "response_format": {"type": "json_schema"}}),
    (CompletionBody, {"prompt": "a", "structured_outputs": {"regex": "a", "json_object": True}}),
    (CompletionBody, {"prompt": "a", "structured_outputs": {"json_object": False}}),
]


def described(model: type[BaseModel], body: dict[str, Any]) -> bool:
    return description.validator(("components", "schemas", model.__name__)).is_valid(body)


@pytest.mark.parametrize(("model", "body"), TAKEN)
def test_a_valid_body_is_accepted_and_described(model: type[BaseModel], body: dict[str, Any]) -> None:
    model.model_validate(body)
    assert described(model, body)


@pytest.mark.parametrize(("model", "body"), REFUSED)
def test_an_invalid_body_is_refused_and_not_described(model: type[BaseModel], body: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, RequestError)):
        model.model_validate(body)
    assert not described(model, body)
