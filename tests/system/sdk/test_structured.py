"""Structured answers by OpenAI's own client: the form is kept, whatever the model prefers."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field

from tests.backends import WITH_SDK

pytestmark = WITH_SDK


class Review(BaseModel):
    stars: int = Field(ge=1, le=5)


SUM: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "What is 17 plus 25?"}],
    "temperature": 0,
}
RESPONSE: dict[str, Any] = {"model": "tiny", "input": "What is 17 plus 25?", "temperature": 0}


async def test_chat_is_parsed_into_a_model(client: OpenAI, async_client: AsyncOpenAI) -> None:
    message = client.chat.completions.parse(**SUM, response_format=Review).choices[0].message
    assert isinstance(message.parsed, Review)
    again = await async_client.chat.completions.parse(**SUM, response_format=Review)
    assert again.choices[0].message.parsed == message.parsed


def test_a_stream_is_parsed_into_a_model(client: OpenAI) -> None:
    with client.chat.completions.stream(**SUM, response_format=Review) as stream:
        (done,) = [event for event in stream if event.type == "content.done"]
    assert isinstance(done.parsed, Review)


def test_an_answer_cut_by_its_length_is_not_parsed(client: OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**SUM, response_format=Review, max_tokens=3)


async def test_a_response_is_parsed_into_a_model(client: OpenAI, async_client: AsyncOpenAI) -> None:
    parsed = client.responses.parse(**RESPONSE, text_format=Review).output_parsed
    assert isinstance(parsed, Review)
    async with async_client.responses.stream(**RESPONSE, text_format=Review) as stream:
        assert (await stream.get_final_response()).output_parsed == parsed


FORMS: dict[str, dict[str, Any]] = {
    "regex": {"guided_regex": r"\d+\+\d+=\d+"},
    "choice": {"guided_choice": ["1+1=2", "17+25=42", "17+25=43"]},
    "GBNF": {"grammar": 'root ::= [0-9]+ "+" [0-9]+ "=" [0-9]+'},
    "Lark": {"grammar": 'start: /[0-9]+/ "+" /[0-9]+/ "=" /[0-9]+/'},
    "structured outputs": {"structured_outputs": {"regex": r"\d+\+\d+=\d+"}},
}


@pytest.mark.parametrize("form", FORMS)
def test_constraints_beyond_openais_are_kept(client: OpenAI, form: str) -> None:
    answer = client.chat.completions.create(**SUM, max_tokens=20, extra_body=FORMS[form])
    assert answer.choices[0].message.content == "17+25=42"


def test_a_completion_matches_its_schema(client: OpenAI) -> None:
    answer = client.completions.create(
        model="tiny",
        prompt="17+25=",
        max_tokens=300,
        temperature=0,
        extra_body={"json_schema": Review.model_json_schema()},
    )
    Review.model_validate_json(answer.choices[0].text)
