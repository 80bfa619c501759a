"""Embeddings by OpenAI's own client, from the model that also generates."""

import base64
from array import array
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.program import Embedded

pytestmark = pytest.mark.anyio

TEXTS = ["What is 17 plus 25?", "What is 17 plus 26?", "goodbye"]


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_vectors_of_length_one_in_the_order_of_the_texts(client: OpenAI) -> None:
    answer = client.embeddings.create(model="tiny", input=TEXTS)
    vectors = [part.embedding for part in answer.data]
    assert [part.index for part in answer.data] == [0, 1, 2]
    assert [likeness(vector, vector) for vector in vectors] == pytest.approx([1.0] * 3, abs=1e-5)
    assert likeness(vectors[0], vectors[1]) > likeness(vectors[0], vectors[2])
    alone = client.embeddings.create(model="tiny", input=TEXTS[2])
    assert alone.data[0].embedding == pytest.approx(vectors[2], abs=1e-4)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > alone.usage.prompt_tokens


async def test_floats_base64_and_tokens_give_the_same_vectors(
    embedded: Embedded, client: OpenAI, async_client: AsyncOpenAI
) -> None:
    """The SDK asks for base64 by default, and decodes it."""
    floats = client.embeddings.create(model="tiny", input=TEXTS[0], encoding_format="float").data[0].embedding
    by_default = await async_client.embeddings.create(model="tiny", input=TEXTS[0])
    assert by_default.data[0].embedding == pytest.approx(floats)
    raw: Any = client.embeddings.create(model="tiny", input=TEXTS[0], encoding_format="base64").data[0].embedding
    assert array("f", base64.b64decode(raw)).tolist() == pytest.approx(floats)
    asked = {"content": TEXTS[0], "add_special": True}
    tokens = client.post(f"{embedded.root}/tokenize", body=asked, cast_to=dict[str, list[int]])["tokens"]
    assert client.embeddings.create(model="tiny", input=tokens).data[0].embedding == pytest.approx(floats)


@pytest.mark.parametrize(("fields", "param"), [({"dimensions": 100_000}, "dimensions"), ({"input": []}, "input")])
def test_an_impossible_request_is_a_bad_request(client: OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(**{"model": "tiny", "input": TEXTS, **fields})
    assert caught.value.param == param
