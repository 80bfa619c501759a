"""Chat by OpenAI's own client: right answers, in its types."""

import re
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

from tests.backends import WITH_SDK
from tests.system.answers import ALIKE

pytestmark = WITH_SDK

SUM: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "What is 17 plus 25?"}],
    "temperature": 0,
}
TOLD = "17+25=42"


def content(answer: ChatCompletion) -> str | None:
    (choice,) = answer.choices
    return choice.message.content


def test_a_whole_answer_has_its_text_and_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(**SUM)
    assert (answer.object, answer.model) == ("chat.completion", "tiny")
    assert answer.id.startswith("chatcmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert choice.message.content == TOLD
    assert choice.message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_count(client: OpenAI, limit: str) -> None:
    answer = client.chat.completions.create(**{**SUM, limit: 2})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
    assert TOLD.startswith(str(content(answer)))


def test_a_stream_joins_to_the_answer(client: OpenAI) -> None:
    asked: dict[str, Any] = {
        **SUM,
        "extra_body": {"speculative": False, "cache_prompt": False},
    }  # else the usages differ
    with client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TOLD
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert last.choices == []
    assert last.usage == client.chat.completions.create(**asked).usage


def test_the_stream_helper_gives_typed_events(client: OpenAI) -> None:
    with client.chat.completions.stream(**SUM, logprobs=True) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert "".join(event.delta for event in events if event.type == "content.delta") == TOLD
    assert [event.content for event in events if event.type == "content.done"] == [TOLD]
    assert [event.type for event in events if event.type.startswith("logprobs")][-1] == "logprobs.content.done"
    assert content(final) == TOLD


def test_a_prediction_changes_the_time_and_not_the_answer(client: OpenAI) -> None:
    phrase = "the small boat waits beside the old stone bridge"
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f'Repeat: "{phrase}"'}],
        "temperature": 0,
    }
    plain = client.chat.completions.create(**asked, extra_body={"speculative": False})
    guessed = client.chat.completions.create(**asked, prediction={"type": "content", "content": phrase})
    assert content(guessed) == content(plain)
    assert plain.usage is not None
    assert guessed.usage is not None
    assert plain.usage.completion_tokens_details is not None
    assert guessed.usage.completion_tokens_details is not None
    assert plain.usage.completion_tokens_details.accepted_prediction_tokens == 0
    assert (guessed.usage.completion_tokens_details.accepted_prediction_tokens or 0) > 2


LARK = 'start: "+" DIGITS ("\\n+" DIGITS)?\nDIGITS: /[0-9]{1,3}/'
PLUS = re.compile(r"\+[0-9]{1,3}(\n\+[0-9]{1,3})?")


@pytest.mark.parametrize(("syntax", "definition"), [("lark", LARK), ("regex", PLUS.pattern)])
def test_the_input_of_a_custom_tool_follows_its_grammar(client: OpenAI, syntax: str, definition: str) -> None:
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    asked: dict[str, Any] = {
        **SUM,
        "tools": [{"type": "custom", "custom": {"name": "count", "description": "Counts.", "format": form}}],
        "tool_choice": {"type": "custom", "custom": {"name": "count"}},
        "max_tokens": 100,
    }
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "custom"
    assert PLUS.fullmatch(call.custom.input)
    pieces = [
        piece.model_dump()
        for chunk in client.chat.completions.create(**asked, stream=True)
        for piece in (chunk.choices[0].delta.tool_calls or ())
    ]
    assert "".join(piece["custom"]["input"] for piece in pieces) == call.custom.input
    output = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    messages = [*SUM["messages"], choice.message, output]
    again = client.chat.completions.create(**{**asked, "messages": messages, "tool_choice": "none"})
    assert again.choices[0].message.content is not None


async def test_the_async_client_gets_the_same_answer(async_client: AsyncOpenAI) -> None:
    assert content(await async_client.chat.completions.create(**SUM)) == TOLD
    stream = await async_client.chat.completions.create(**SUM, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == TOLD
    async with async_client.chat.completions.stream(**SUM) as helper:
        assert content(await helper.get_final_completion()) == TOLD


ASKED = SUM["messages"][0]
CONVERSATIONS: dict[str, list[Any]] = {
    "a system message": [{"role": "system", "content": "Be brief."}, ASKED],
    "a developer's message": [{"role": "developer", "content": "Be brief."}, ASKED],
    "a part": [{"role": "user", "content": [{"type": "text", "text": ASKED["content"]}]}],
    "a name": [{**ASKED, "name": "Ann"}],
    "earlier turns": [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello!"}, ASKED],
}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_conversations_of_every_form_are_answered(client: OpenAI, conversation: str) -> None:
    assert content(client.chat.completions.create(**{**SUM, "messages": CONVERSATIONS[conversation]})) == TOLD


def test_several_choices_repeat_with_the_seed(client: OpenAI) -> None:
    asked = {**SUM, "temperature": 2, "n": 3, "seed": 0, "max_tokens": 8, "extra_body": ALIKE}
    first, second = (client.chat.completions.create(**asked) for _ in range(2))
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert [choice.message for choice in first.choices] == [choice.message for choice in second.choices]
    assert len({choice.message.content for choice in first.choices}) > 1


def test_log_probabilities_are_returned(client: OpenAI) -> None:
    (choice,) = client.chat.completions.create(**SUM, logprobs=True, top_logprobs=3).choices
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert "".join(token.token for token in tokens) == TOLD
    for token in tokens:
        assert bytes(token.bytes or []) == token.token.encode()
        assert [top.logprob for top in token.top_logprobs] == sorted(
            (t.logprob for t in token.top_logprobs), reverse=True
        )
        assert token.top_logprobs[0].token == token.token


def test_raw_responses_have_headers(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(**SUM, extra_body={"no_such_field": 1})
    assert raw.headers["x-llama-gateway-ignored"] == "no_such_field"
    answer = raw.parse()
    assert content(answer) == TOLD
    assert raw.headers["x-request-id"] == answer._request_id


async def test_streaming_responses_are_read_as_they_come(client: OpenAI, async_client: AsyncOpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(**SUM, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    async with async_client.chat.completions.with_streaming_response.create(**SUM) as whole:
        assert whole.headers["content-type"] == "application/json"
        assert content(await whole.parse()) == TOLD


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "no such role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        "messages[0].content[0]",
    ),
    "log-probabilities without saying so": ({"top_logprobs": 2}, "top_logprobs"),
    "absurd": ({"temperature": 3}, "temperature"),
    "sound": ({"modalities": ["audio"]}, "modalities"),
    "a choice of no tool": ({"tool_choice": "required"}, "tool_choice"),
    "no schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "x"}}}},
        "response_format",
    ),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_an_impossible_request_is_a_bad_request(client: OpenAI, bad: str, stream: bool) -> None:
    fields, param = BAD[bad]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**SUM, "stream": stream, **fields})
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert caught.value.request_id
