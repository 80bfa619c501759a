"""Embeddings over real sockets: cancellation, concurrent generations, and OpenAI's own client."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from engine import EngineMetrics
from tests.gateway.server.sockets import LEAVE, Client
from tests.program import engines_of, serving_program
from tests.random_bert import CONTEXT, WIDTH, write_random_bert
from tests.system.served import GUARD, LONG_PROMPT, PASS, Served, completion, post, serving
from tests.system.test_cancellation import neighbours

INPUTS: dict[str, Any] = {
    "one long text": LONG_PROMPT,
    "many texts": ["x" * 64] * 2000,
    "token ids": list(LONG_PROMPT.encode()),
}


def embedding(texts: object, request_id: str = "embed") -> bytes:
    """Return the bytes of a POST."""
    return post(request_id, "/v1/embeddings", input=texts)


def is_under_way(metrics: EngineMetrics) -> bool:
    return metrics.embedding_waiting > 0 and metrics.embedding_tokens > 0


async def nothing_is_embedded_any_more(served: Served) -> None:
    before = (await served.until(lambda _, f: f.embedding_waiting == 0)).embedding_tokens
    if (await served.metrics()).held:
        steps = (await served.metrics()).steps
        await served.until(lambda _, f: f.steps >= steps + 3)
    assert (await served.metrics()).embedding_tokens == before
    await served.connections_fall_to((await served.metrics()).held)


@pytest.mark.anyio
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside a stream"])
@pytest.mark.parametrize("inputs", INPUTS)
async def test_a_hang_up_stops_the_embedding(inputs: str, others: int) -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served, neighbours(served, others):
        for leave in LEAVE.values():
            await leave_embedding(served, leave, inputs)


async def leave_embedding(served: Served, leave: Callable[[Client], None], inputs: str) -> None:
    tokens = (await served.metrics()).embedding_tokens
    client = await served.send(embedding(INPUTS[inputs]))
    await served.until(lambda _, f: f.embedding_tokens > tokens)
    assert (await served.metrics()).embedding_waiting > 0
    leave(client)
    await nothing_is_embedded_any_more(served)
    client.close()


@pytest.mark.anyio
async def test_a_hang_up_beside_other_embeddings_frees_the_slot() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served:
        first = await served.send(embedding(INPUTS["many texts"]))
        await served.until(lambda _, f: is_under_way(f))
        second = await served.send(embedding(["y" * 64] * 2000))
        await served.until(lambda _, f: f.embedding_waiting > 2000)
        second.close()
        await served.until(lambda _, f: f.embedding_waiting <= 2000)
        assert is_under_way(await served.metrics())
        first.close()
        await nothing_is_embedded_any_more(served)


@pytest.mark.anyio
async def test_generations_go_on_beside_embeddings() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served:
        client = await served.send(embedding(INPUTS["many texts"]))
        await served.until(lambda _, f: is_under_way(f))
        answer = await served.answer(completion("beside", max_tokens=5))
        assert answer.status == 200
        assert is_under_way(await served.metrics())
        client.close()
        await nothing_is_embedded_any_more(served)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small-bert.gguf"
    write_random_bert(path)
    return path


@pytest.fixture(scope="module")
def url(bert: Path) -> Iterator[str]:
    flags = ("--slots", "2", "--context", "512", "--alias", "tiny", "--embedding-model", str(bert))
    with serving_program(*flags) as (process, port):
        assert len(engines_of(process.pid)) == 2
        yield f"http://127.0.0.1:{port}/v1"


def length(vector: list[float]) -> float:
    return math.hypot(*vector)


def test_openais_client_gets_vectors_of_the_embedding_model(client: OpenAI) -> None:
    answer = client.embeddings.create(model="small-bert", input=["hello, world", "hello"])
    assert [part.index for part in answer.data] == [0, 1]
    assert all(len(part.embedding) == WIDTH for part in answer.data)
    assert all(length(part.embedding) == pytest.approx(1.0, abs=1e-5) for part in answer.data)
    assert answer.model == "small-bert"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0


def test_base64_floats_and_tokens_give_the_same_vectors(client: OpenAI) -> None:
    by_default = client.embeddings.create(model="default", input="abc").data[0].embedding
    floats = client.embeddings.create(model="default", input="abc", encoding_format="float").data[0].embedding
    assert by_default == pytest.approx(floats)
    url = str(client.base_url).replace("/v1", "")
    tokens = httpx.post(
        f"{url}tokenize",
        json={"model": "small-bert", "content": "abc", "add_special": True},
        trust_env=False,
        timeout=GUARD,
    ).json()["tokens"]
    assert client.embeddings.create(model="default", input=[tokens]).data[0].embedding == pytest.approx(floats)


def test_fewer_dimensions_are_returned_on_request(client: OpenAI) -> None:
    whole = client.embeddings.create(model="default", input="abc").data[0].embedding
    short = client.embeddings.create(model="default", input="abc", dimensions=4).data[0].embedding
    assert short == pytest.approx([number / length(whole[:4]) for number in whole[:4]], abs=1e-6)
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="default", input="abc", dimensions=WIDTH + 1)
    assert caught.value.param == "dimensions"


def test_a_text_that_is_too_long_for_the_model_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="default", input=["fits", "a " * CONTEXT])
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")


def test_the_model_that_generates_embeds_under_its_own_name(client: OpenAI) -> None:
    answer = client.embeddings.create(model="tiny", input="Once upon a time")
    assert answer.model == "tiny"
    assert length(answer.data[0].embedding) == pytest.approx(1.0, abs=1e-5)
    assert client.completions.create(model="tiny", prompt="Once", max_tokens=2).usage is not None


def test_the_embedding_model_does_not_generate(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "small-bert"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="small-bert", prompt="Once")
    assert caught.value.code == "unsupported_model"


def test_a_model_that_only_embeds_can_be_the_only_one(bert: Path) -> None:
    with serving_program("--model", str(bert)) as (_process, port):
        url = f"http://127.0.0.1:{port}"
        assert (
            httpx.post(f"{url}/v1/embeddings", json={"input": "a"}, trust_env=False, timeout=GUARD).status_code == 200
        )
        refused = httpx.post(f"{url}/v1/completions", json={"prompt": "a"}, trust_env=False, timeout=GUARD)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_model")
        assert httpx.get(f"{url}/slots", trust_env=False, timeout=GUARD).json() == []
