"""LangChain's `OpenAI` over completions: right answers, in its types."""

from typing import Any

import pytest
from langchain_openai import OpenAI

pytestmark = pytest.mark.anyio

SUM = "17+25="


@pytest.fixture(scope="module")
def model(options: dict[str, Any]) -> OpenAI:
    return OpenAI(**options, temperature=0)


def test_invoke_returns_the_answer(model: OpenAI) -> None:
    assert model.invoke(SUM) == "42"


def test_stream_joins_to_the_answer(model: OpenAI) -> None:
    pieces = list(model.stream(SUM))
    assert len(pieces) > 1
    assert "".join(pieces) == "42"


def test_batch_returns_every_answer(model: OpenAI) -> None:
    assert model.batch([SUM] * 3) == ["42"] * 3


async def test_async_forms_return_the_same_answers(async_options: dict[str, Any]) -> None:
    model = OpenAI(**async_options, temperature=0)
    assert await model.ainvoke(SUM) == "42"
    assert "".join([piece async for piece in model.astream(SUM)]) == "42"
    assert await model.abatch([SUM] * 2) == ["42"] * 2


def test_usage_counts_the_tokens_of_all_prompts(model: OpenAI) -> None:
    """LangChain sends several prompts at once."""
    result = model.generate([SUM, SUM])
    assert result.llm_output is not None
    usage = result.llm_output["token_usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert [generations[0].text for generations in result.generations] == ["42", "42"]


def test_log_probabilities_and_best_of_are_supported(options: dict[str, Any]) -> None:
    model = OpenAI(**options, temperature=1, seed=1, n=1, best_of=2, logprobs=1, max_tokens=3)
    ((generation,),) = model.generate([SUM]).generations
    assert generation.generation_info is not None
    assert generation.generation_info["logprobs"]["tokens"]
