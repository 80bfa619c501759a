"""Bounds of the tokens that a request may need."""

import pytest

from engine import EmbeddingRequest, GenerationRequest, Infill, Prompt, PromptText, Ranking
from gateway.limits.bounds import embedding_bound, estimate, generation_bound


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("", 0),
        ("x", 1),
        ("four", 1),
        ("five!", 2),
        ("ééé", 2),
        ("\ud800", 1),
        ((7, 8, 9), 3),
        (PromptText("eight ch", ()), 2),
        (Infill("four", "five!"), 3),
    ],
)
def test_a_prompt_is_estimated_by_its_length_unless_it_is_token_ids(prompt: Prompt, tokens: int) -> None:
    assert estimate(prompt) == tokens


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"max_tokens": 10}, 2 + 10),
        ({"max_tokens": 10, "default_max_tokens": 5}, 2 + 10),
        ({"default_max_tokens": 5}, 2 + 5),
        ({}, 100),
        ({"max_tokens": 10**9}, 2 + 100),
        ({"max_tokens": 0}, 2),
        ({"max_tokens": 10, "n": 3}, 2 + 30),
        ({"max_tokens": 10, "n": 3, "prompts": ((1, 2), (3,))}, 3 + 60),
        ({"prompts": (tuple(range(500)),)}, 500),
    ],
)
def test_the_bound_of_a_generation(fields: dict[str, object], bound: int) -> None:
    request = GenerationRequest(**{"id": "r", "prompts": ((1, 2),), **fields})  # type: ignore[arg-type]
    assert generation_bound(request, 100) == bound


def test_the_bound_of_a_generation_that_may_exceed_its_slot() -> None:
    request = GenerationRequest(id="r", prompts=((1, 2),), max_tokens=500)
    assert generation_bound(request, 100, shifts=True) == 2 + 500


def test_counted_prompts_replace_the_estimates() -> None:
    request = GenerationRequest(id="r", prompts=("a text", "b"), max_tokens=10)
    assert generation_bound(request, 100, (7, 1)) == 8 + 20


@pytest.mark.parametrize(("ranking", "bound"), [(None, 1 + 3), (Ranking(query="five!"), 2 * 2 + 1 + 3)])
def test_the_bound_of_an_embedding_is_its_inputs_each_with_the_query(ranking: Ranking | None, bound: int) -> None:
    assert embedding_bound(EmbeddingRequest(id="r", inputs=("four", (1, 2, 3)), ranking=ranking)) == bound
