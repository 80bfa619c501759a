"""OpenAI's own client and document against the chat of the program, on a real model with a chat template."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import anyio
import openai
import orjson
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, ConfigDict

from tests.backends import WITH_SDK
from tests.program import ROOT, serving_program
from tests.system.answers import ALIKE, assert_alike
from tests.system.description import Description
from tests.system.served import GUARD

pytestmark = WITH_SDK

TEMPLATE = ROOT / "engine" / "embedded" / "training" / "chat_template.jinja"
ASKED: list[Any] = [{"role": "user", "content": "Once upon a time"}]


class Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")  # otherwise the model may add fields for ever

    good: bool


class Add(BaseModel):
    """Add two numbers."""

    a: Literal[1, 2]
    b: Literal[3, 4]


ADD = openai.pydantic_function_tool(Add)
CASES: dict[str, dict[str, Any]] = {
    "plain": {"max_tokens": 8},
    "choices with log-probabilities": {
        "max_completion_tokens": 12,
        "n": 2,
        "seed": 7,
        "temperature": 1,
        "logprobs": True,
        "top_logprobs": 2,
    },
    "a call": {"tools": [ADD], "tool_choice": "required", "parallel_tool_calls": False},
    "a call with log-probabilities": {
        "tools": [ADD],
        "tool_choice": {"type": "function", "function": {"name": "Add"}},
        "parallel_tool_calls": False,
        "logprobs": True,
    },
    "an object": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "v", "schema": Verdict.model_json_schema(), "strict": True},
        }
    },
    "a stop string": {"max_tokens": 30, "stop": ["e"], "temperature": 0},
}


@pytest.fixture(scope="module")
def url(anyio_backend: str) -> Iterator[str]:
    flags = ("--slots", "2", "--context", "2048", "--alias", "tiny", "--chat-template", str(TEMPLATE))
    with serving_program(*flags, "--async-backend", anyio_backend) as (_process, port):
        yield f"http://127.0.0.1:{port}/v1"


def create(client: OpenAI, **fields: Any) -> ChatCompletion:
    answer: ChatCompletion = client.chat.completions.create(**{"model": "tiny", "messages": ASKED, **fields})
    return answer


def chunks_of(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    asked = {"model": "tiny", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
    with client.chat.completions.create(**{**asked, **fields}) as stream:
        return list(stream)


def told(answer: ChatCompletion) -> list[dict[str, Any]]:
    """Return the content of the choices, without the ids of their calls."""
    return [
        {
            "content": choice.message.content or "",
            "calls": [call.to_dict()["function"] for call in choice.message.tool_calls or []],
            "reason": choice.finish_reason,
            "tokens": [token.to_dict() for token in choice.logprobs.content or []] if choice.logprobs else [],
        }
        for choice in answer.choices
    ]


def joined(chunks: Sequence[ChatCompletionChunk]) -> list[dict[str, Any]]:
    """Return the content of a stream's choices, without the ids of their calls."""
    choices: dict[int, dict[str, Any]] = {}
    for part in (choice for chunk in chunks for choice in chunk.choices):
        known = choices.setdefault(part.index, {"content": "", "calls": [], "reason": None, "tokens": []})
        assert known["reason"] is None, "nothing follows the end of a choice"
        known["content"] += part.delta.content or ""
        known["reason"] = part.finish_reason
        known["tokens"] += [token.to_dict() for token in part.logprobs.content or []] if part.logprobs else []
        for call in part.delta.tool_calls or []:
            assert call.function is not None
            if call.function.name:
                known["calls"].append({"name": call.function.name, "arguments": ""})
            known["calls"][call.index]["arguments"] += call.function.arguments or ""
    return [choices[index] for index in sorted(choices)]


@pytest.mark.parametrize("case", CASES)
def test_a_stream_and_a_whole_answer_are_the_same(client: OpenAI, case: str) -> None:
    fields = {"seed": 3, "extra_body": ALIKE, **CASES[case]}
    whole, chunks = create(client, **fields), chunks_of(client, **fields)
    assert_alike(joined(chunks), told(whole))
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_roles_come_first_and_once(client: OpenAI) -> None:
    deltas = [chunk.choices[0].delta for chunk in chunks_of(client, max_tokens=5)[:-1]]
    assert [delta.role for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    assert deltas[0].content == ""
    assert deltas[-1].to_dict() == {}


def test_a_required_tool_call_is_made(client: OpenAI) -> None:
    (choice,) = create(client, tools=[ADD], tool_choice="required", parallel_tool_calls=False).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.id.startswith("call_")
    assert call.function.name == "Add"
    Add.model_validate_json(call.function.arguments)


def test_length_wins_over_a_call(client: OpenAI) -> None:
    (choice,) = create(client, tools=[ADD], tool_choice="required", max_tokens=30).choices
    assert choice.finish_reason == "length"


def test_a_schema_with_tools_allows_an_answer_or_a_call(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=ASKED, response_format=Verdict, tools=[ADD], parallel_tool_calls=False
    )
    message = answer.choices[0].message
    assert isinstance(message.parsed, Verdict) or message.tool_calls


async def test_concurrent_requests_get_the_same_answer(async_client: AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": ASKED, "max_tokens": 8, "temperature": 0}
    answers: list[str | None] = []

    async def ask() -> None:
        answer = await async_client.chat.completions.create(**asked)
        answers.append(answer.choices[0].message.content)

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(ask)
    assert len(answers) == 6
    assert len(set(answers)) == 1


def test_the_input_tokens_endpoint_agrees_with_usage(client: OpenAI) -> None:
    answer = create(client, max_tokens=1)
    counted = client.post("/chat/completions/input_tokens", body={"messages": ASKED}, cast_to=object)
    assert answer.usage is not None
    assert counted == {"object": "response.input_tokens", "input_tokens": answer.usage.prompt_tokens}


def test_a_last_assistant_message_is_continued(client: OpenAI) -> None:
    whole = create(client, max_tokens=8, temperature=0, extra_body={"return_token_ids": True})
    text = str(whole.choices[0].message.content)
    said = [*ASKED, {"role": "assistant", "content": text}]
    root = str(client.base_url).removesuffix("v1/")
    applied = client.post(
        f"{root}apply-template", body={"messages": said, "continue_final_message": True}, cast_to=object
    )
    assert isinstance(applied, dict)
    assert applied["prompt"].endswith(f"assistant\n{text}")
    further = create(client, messages=said, max_tokens=4, extra_body={"continue_final_message": True})
    assert further.usage is not None
    assert further.usage.completion_tokens <= 4


@pytest.mark.parametrize("case", CASES)
def test_openais_document_describes_the_answers(client: OpenAI, description: Description, case: str) -> None:
    answer = client.chat.completions.with_raw_response.create(model="tiny", messages=ASKED, **CASES[case])
    description.check(orjson.loads(answer.content), "CreateChatCompletionResponse")
    for chunk in chunks_of(client, **CASES[case]):
        description.check(chunk.to_dict(), "CreateChatCompletionStreamResponse")
