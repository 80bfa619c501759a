"""A chat with a model that cannot trim: the gateway finds the turns, and the engine goes back to them."""

from typing import Any

import pytest

from tests.architectures.models import family_model
from tests.program import ROOT
from tests.system.served import Served, post, serving

pytestmark = pytest.mark.anyio

TEMPLATE = (ROOT / "engine" / "embedded" / "training" / "chat_template.jinja").read_text()
RULES = "Be kind and be brief. " * 10
QUESTION = "What did the little girl do in the garden on that day? " * 4


async def chat(served: Served, *messages: str, system: str = RULES) -> tuple[str, int]:
    """Return the answer, and the number of prompt tokens computed for it."""
    roles = ("user", "assistant")
    asked = [{"role": roles[at % 2], "content": text} for at, text in enumerate(messages)]
    body: dict[str, Any] = {"messages": [{"role": "system", "content": system}, *asked], "max_tokens": 40}
    answer = await served.content(post("t", "/v1/chat/completions", temperature=0, ignore_eos=True, **body))
    usage = answer["usage"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"][0]["message"]["content"], computed


async def test_the_next_turn_an_edit_and_another_client_compute_only_what_is_new() -> None:
    async with serving(
        model=family_model("lfm-2"), chat_template=TEMPLATE, slots=2, prefix_store=2**26, context=2048
    ) as served:
        first, whole = await chat(served, QUESTION)
        _, computed = await chat(served, QUESTION, first[5:], QUESTION)
        assert computed < whole - 100, "the instructions and the first question were not computed again"
        _, edited = await chat(served, QUESTION, first[5:], QUESTION.replace("girl", "boy"))
        assert edited < computed, "nor was the answer"
        _, other = await chat(served, QUESTION.replace("girl", "dog"))
        assert other < whole - 100
