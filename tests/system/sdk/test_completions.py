"""OpenAI's own client, sync and async, against the program on a real model: right answers, in its types."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion

from tests.backends import WITH_SDK
from tests.program import serving_program
from tests.system.answers import ALIKE
from tests.system.served import GUARD

pytestmark = WITH_SDK

PROMPT = "Once upon a time"
ON_AND_ON: dict[str, Any] = {
    "prompt": PROMPT,
    "max_tokens": 15_000,
    "extra_body": {"ignore_eos": True, "speculative": False},
}


@pytest.fixture(scope="module")
def url(anyio_backend: str) -> Iterator[str]:
    flags = ("--slots", "2", "--queue-limit", "1", "--context", "16384", "--alias", "tiny")
    with serving_program(*flags, "--async-backend", anyio_backend) as (_process, port):
        yield f"http://127.0.0.1:{port}/v1"


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    with anyio.fail_after(GUARD):
        async with AsyncOpenAI(base_url=url, api_key="none", **{"max_retries": 0, **options}) as client:
            yield client


async def until_idle(client: AsyncOpenAI) -> None:
    native = client.with_options(base_url=str(client.base_url).replace("/v1", ""))
    listed = list[dict[str, Any]]
    while await native.get("/slots/queue", cast_to=listed) or any(
        slot["is_processing"] for slot in await native.get("/slots", cast_to=listed)
    ):
        pass


@asynccontextmanager
async def full_house(client: AsyncOpenAI) -> AsyncIterator[None]:
    """Fill both slots with streams and the queue with one request: of two further requests, one was refused.

    At the end all have left, so that the next test finds the server idle.
    """
    streams = [await client.completions.create(model="tiny", stream=True, **ON_AND_ON) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    refused = anyio.Event()

    async def wait() -> None:
        try:
            await client.completions.create(model="tiny", **ON_AND_ON)
        except openai.RateLimitError:
            refused.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(wait)
        await refused.wait()
        yield
        tasks.cancel_scope.cancel()
    for stream in streams:
        await stream.close()
    await until_idle(client)


def greedy(client: OpenAI, prompt: Any = PROMPT, max_tokens: int = 16, **more: Any) -> Completion:
    answer: Completion = client.completions.create(
        model="tiny", prompt=prompt, max_tokens=max_tokens, temperature=0, **more
    )
    return answer


def texts(answer: Completion) -> list[str]:
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    return [choice.text for choice in answer.choices]


def test_a_completion_has_its_text_and_usage(client: OpenAI) -> None:
    answer = greedy(client)
    assert (answer.object, answer.model) == ("text_completion", "tiny")
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].finish_reason == "length"
    assert texts(answer) != [""]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 16


def test_max_tokens_has_openais_default(client: OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, temperature=0)
    assert texts(answer) == texts(greedy(client))


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_is_the_same_text_in_pieces(client: OpenAI, include_usage: bool) -> None:
    whole = greedy(client, extra_body=ALIKE)
    options: Any = {"stream_options": {"include_usage": True}} if include_usage else {}
    asked = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "extra_body": ALIKE, **options}
    with client.completions.create(**asked, stream=True) as stream:
        chunks = list(stream)
    if include_usage:
        last = chunks.pop()
        assert (last.choices, last.usage) == ([], whole.usage)
    assert len(chunks) > 4
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert all(chunk.usage is None for chunk in chunks)


def test_three_choices_differ_and_repeat_with_the_seed(client: OpenAI) -> None:
    """The request has more choices than there are slots."""
    first, second = (
        texts(client.completions.create(model="tiny", prompt=PROMPT, n=3, seed=5, max_tokens=24)) for _ in range(2)
    )
    assert len(set(first)) == 3
    assert first == second


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_a_seed_repeats_its_text(client: OpenAI, seed: int) -> None:
    first, second = (
        texts(client.completions.create(model="tiny", prompt=PROMPT, seed=seed, max_tokens=32)) for _ in range(2)
    )
    assert first == second
    other = client.completions.create(model="tiny", prompt=PROMPT, seed=seed - 1 if seed else 7, max_tokens=32)
    assert texts(other) != first


def test_each_of_several_prompts_gets_the_same_text_as_alone(client: OpenAI) -> None:
    prompts = ["Once upon a time", "The dog"]
    assert texts(greedy(client, prompts)) == [texts(greedy(client, prompt))[0] for prompt in prompts]


def test_prompts_of_token_ids_equal_those_of_text(client: OpenAI) -> None:
    prompts = [[1, 400, 410], [1, 5]]
    both = greedy(client, prompts)
    assert both.usage is not None
    assert both.usage.prompt_tokens == 5
    assert texts(both) == [texts(greedy(client, prompt))[0] for prompt in prompts]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_it(client: OpenAI, stream: bool) -> None:
    text = greedy(client).choices[0].text
    stop = text[len(text) // 2 :][:5]
    answer = greedy(client, stop=[stop, "never"], stream=stream)
    chunks = list(answer) if stream else [answer]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text[: text.index(stop)]  # type: ignore[union-attr]
    assert chunks[-1].choices[0].finish_reason == "stop"  # type: ignore[union-attr]


def test_a_bias_forces_a_token(client: OpenAI) -> None:
    forced = [greedy(client, prompt, max_tokens=4, logit_bias={"400": 100}) for prompt in ("One", "Two")]
    assert texts(forced[0]) == texts(forced[1])
    piece = greedy(client, "One", max_tokens=1, logit_bias={"400": 100}).choices[0].text
    assert forced[0].choices[0].text == piece * 4 != ""


def test_an_echoed_prompt_has_log_probabilities(client: OpenAI) -> None:
    """As evaluations score a text: every token but the first has one."""
    (choice,) = greedy(client, max_tokens=4, echo=True, logprobs=2).choices
    told = choice.logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.token_logprobs is not None
    assert choice.text == "".join(told.tokens) != PROMPT
    assert choice.text.startswith(PROMPT)
    assert [logprob is None for logprob in told.token_logprobs] == [True] + [False] * (len(told.tokens) - 1)
    assert all(logprob <= 0 for logprob in told.token_logprobs[1:])
    assert told.text_offset == [len("".join(told.tokens[:place])) for place in range(len(told.tokens))]
    assert told.top_logprobs is not None
    assert all(len(top) in (2, 3) for top in told.top_logprobs[1:])


def test_max_tokens_0_returns_an_empty_text(client: OpenAI) -> None:
    answer = greedy(client, max_tokens=0)
    assert texts(answer) == [""]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("tiny", "model")
    assert client.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "absurd": ({"temperature": 3}, "temperature", "invalid_value"),
    "wrong type": ({"max_tokens": "5"}, "max_tokens", "invalid_type"),
    "negative": ({"max_tokens": -1}, "max_tokens", "invalid_value"),
    "empty": ({"prompt": ""}, "prompt", "invalid_value"),
    "too many choices": ({"n": 129}, "n", "invalid_value"),
    "too long": ({"prompt": [1] * 17_000}, "prompt", "context_length_exceeded"),
    "too much asked for": ({"max_tokens": 17_000}, "max_tokens", "context_length_exceeded"),
    "no such token": ({"prompt": [999_999]}, "prompt", "token_out_of_range"),
    "no such token to bias": ({"logit_bias": {"999999": 1}}, "logit_bias", "token_out_of_range"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_an_impossible_request_is_a_bad_request(client: OpenAI, bad: str, stream: bool) -> None:
    fields, param, code = BAD[bad]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{"model": "tiny", "prompt": PROMPT, "stream": stream, **fields})
    assert (caught.value.param, caught.value.code, caught.value.type) == (param, code, "invalid_request_error")
    assert caught.value.request_id


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-3.5-turbo-instruct", prompt=PROMPT)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_every_answer_has_an_id(client: OpenAI) -> None:
    made, chosen = greedy(client), greedy(client, extra_headers={"x-request-id": "chosen-by-me"})
    assert made._request_id is not None
    assert made._request_id.startswith("req_")
    assert chosen._request_id == "chosen-by-me"


async def test_the_async_client_streams(url: str, client: OpenAI) -> None:
    async with connected(url) as async_client:
        stream = await async_client.completions.create(model="tiny", prompt=PROMPT, temperature=0, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == greedy(client).choices[0].text


async def test_a_full_queue_is_a_rate_limit(url: str) -> None:
    async with connected(url) as client, full_house(client):
        with pytest.raises(openai.RateLimitError) as caught:
            await client.completions.create(model="tiny", prompt=PROMPT)
        assert (caught.value.code, caught.value.type) == ("queue_full", "rate_limit_error")
        assert int(caught.value.response.headers["retry-after-ms"]) > 0


async def test_the_clients_own_retry_succeeds_once_there_is_room(url: str) -> None:
    refused = anyio.Event()

    async def notice(response: Any) -> None:
        if response.status_code == 429:
            refused.set()

    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [notice]})
    answers: list[Completion] = []
    async with connected(url) as others, connected(url, max_retries=1, http_client=http) as client:

        async def ask() -> None:
            answers.append(await client.completions.create(model="tiny", prompt=PROMPT, max_tokens=5))

        async with anyio.create_task_group() as tasks, full_house(others):
            tasks.start_soon(ask)
            await refused.wait()
    assert answers[0].choices[0].finish_reason == "length"
