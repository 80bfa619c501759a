"""Fields of vLLM that would change an answer: refused with a reason, unless they ask for nothing."""

from typing import Any

import pytest
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.vllm_fields import UNSUPPORTED

BODIES: tuple[tuple[type[BaseModel], dict[str, Any]], ...] = (
    (ChatBody, {"messages": [{"role": "user", "content": "a"}]}),
    (CompletionBody, {"prompt": "a"}),
)
GIVEN: dict[str, Any] = {
    "allowed_token_ids": [1, 2],
    "bad_words": ["a"],
    "include_stop_str_in_output": True,
    "prompt_logprobs": 0,
    "truncate_prompt_tokens": 5,
    "use_beam_search": True,
}


@pytest.mark.parametrize(("body", "asked"), BODIES)
@pytest.mark.parametrize("field", UNSUPPORTED)
def test_a_field_that_would_change_the_answer_is_refused(
    body: type[BaseModel], asked: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError, match=f"^{field}: is not supported") as refused:
        body.model_validate({**asked, field: GIVEN[field]})
    assert refused.value.param == field


@pytest.mark.parametrize(("body", "asked"), BODIES)
def test_values_that_ask_for_nothing_are_accepted(body: type[BaseModel], asked: dict[str, Any]) -> None:
    nothing = {"bad_words": [], "include_stop_str_in_output": False, "use_beam_search": False}
    read = body.model_validate({**asked, **dict.fromkeys(UNSUPPORTED), **nothing})
    assert not read.model_extra
