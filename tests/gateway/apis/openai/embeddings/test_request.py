"""The fields of embedding requests, and vectors in each form and size."""

import base64
import struct
from typing import Any

import pytest
from pydantic import ValidationError

from engine import EmbeddingRequest
from gateway.apis.answers.vectors import shorten
from gateway.apis.openai.embeddings.call import EmbeddingCall, prepare_embedding
from gateway.apis.openai.embeddings.request import MAX_INPUTS, EmbeddingBody

VECTOR = struct.pack("<4f", 0.6, 0.0, 0.0, -0.8)


def body(**fields: Any) -> EmbeddingBody:
    return EmbeddingBody.model_validate({"input": "a", **fields})


def call(**fields: Any) -> EmbeddingCall:
    return prepare_embedding(body(**fields))


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("text", ("text",)),
        (["one", "two"], ("one", "two")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a"] * MAX_INPUTS, ("a",) * MAX_INPUTS),
    ],
)
def test_inputs_come_in_four_forms(given: Any, inputs: tuple[Any, ...]) -> None:
    assert call(input=given).request == EmbeddingRequest(id="", inputs=inputs)


def test_inputs_are_cut_if_the_request_asks_for_it() -> None:
    assert call().request.truncation is None
    assert call(truncate_prompt_tokens=5, truncation_side="right").request.truncation == 5
    assert call(truncate_prompt_tokens=-1).request.truncation == -1


@pytest.mark.parametrize(
    "fields",
    [
        {"input": ""},
        {"input": []},
        {"input": [""]},
        {"input": [[]]},
        {"input": None},
        {"input": 5},
        {"input": [True]},
        {"input": [-1]},
        {"input": ["a"] * (MAX_INPUTS + 1)},
        {"dimensions": 0},
        {"dimensions": 1.5},
        {"encoding_format": "int8"},
        {"truncate_prompt_tokens": -2},
        {"truncation_side": "left"},
        {"model": 5},
        {"user": 5},
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        body(**fields)
    assert [str(error["loc"][0]) for error in caught.value.errors()] == list(fields)


def test_a_vector_is_encoded_as_numbers_or_base64() -> None:
    assert call().shape.encode(VECTOR) == list(struct.unpack("<4f", VECTOR))
    encoded = call(encoding_format="base64").shape.encode(VECTOR)
    assert isinstance(encoded, str)
    assert base64.b64decode(encoded) == VECTOR


def test_a_shortened_vector_is_normalised_again() -> None:
    assert call(dimensions=1).shape.encode(VECTOR) == [1.0]
    assert call(dimensions=4).shape.encode(VECTOR) == pytest.approx([0.6, 0.0, 0.0, -0.8])


def test_a_shortened_zero_vector_is_unchanged() -> None:
    assert shorten(struct.pack("<3f", 0.0, 0.0, 1.0), 2) == bytes(8)
