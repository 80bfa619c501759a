"""Bodies: their bounds on nesting and fields, the names that are kept of unknown fields, and integers."""

import re
import tracemalloc
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.anthropic.messages.request import MessagesBody
from gateway.apis.fields.read import MAX_NAME, MAX_NESTING, MAX_UNKNOWN, MAX_VALUES, ReadBody, read_body
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.ollama.request import OllamaChatBody
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.rerank.request import RerankBody
from tests.gateway.apis.bodies import BODIES, CHAT, Body
from tests.repeat import first


def read(**fields: Any) -> ReadBody[CompletionBody]:
    return read_body(orjson.dumps({"prompt": "x", **fields}), CompletionBody)


def nested(levels: int, opening: str, closing: str) -> bytes:
    inner = "1".join([opening * levels, closing * levels])
    return f'{{"prompt": "x", "zip": {inner}}}'.encode()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_nesting_is_bounded_and_names_the_field(opening: str, closing: str) -> None:
    step = opening.count("[") + opening.count("{")
    levels = (MAX_NESTING - 1) // step
    assert read_body(nested(levels, opening, closing), CompletionBody).unknown == ("zip",)
    with pytest.raises(
        RequestError, match="zip: should have at most 63 arrays and objects inside each other"
    ) as caught:
        read_body(nested(levels + 1, opening, closing), CompletionBody)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "zip")


def test_brackets_in_texts_are_no_nesting() -> None:
    assert read(prompt="[" * 1000).body.prompt == ("[" * 1000,)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (ChatBody, '"max_tokens": 5, "seed": -1, "lora": [{"id": 1, "scale": 1}]'),
        (CompletionBody, '"prompt": [[1], [2]], "stop_token_ids": [5], "logprobs": 0'),
        (ResponseBody, '"input": [], "max_output_tokens": 5'),
        (MessagesBody, '"max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 1}'),
        (OllamaChatBody, '"options": {"num_predict": 5}, "keep_alive": 5'),
        (NativeCompletionBody, '"n_predict": 5, "prompt": ["a", 1], "logit_bias": [[1, 2]]'),
        (RerankBody, '"query": "a", "documents": ["b"], "top_n": 5'),
    ],
)
def test_a_number_with_a_zero_fraction_is_an_integer(model: type[BaseModel], fields: str) -> None:
    def read_as(fields: str) -> str:
        return repr(read_body(orjson.dumps({**BODIES.get(model, {}), **orjson.loads(f"{{{fields}}}")}), model))

    assert read_as(re.sub(r"(?<=[ \[])(-?\d)", r"\1.0", fields)) == read_as(fields)


@pytest.mark.parametrize(
    "fields", [{"chat_template_kwargs": {"a": 5.0}}, {"response_format": {"type": "json_schema", "schema": {"a": 5.0}}}]
)
def test_numbers_in_free_objects_stay_as_they_are(fields: Body) -> None:
    assert "{'a': 5.0}" in repr(read_body(orjson.dumps({**CHAT, **fields}), ChatBody))


def values_of_unknown(body: BaseModel) -> list[object]:
    return list((body.model_extra or {}).values())


def test_of_an_unknown_field_only_the_name_is_kept() -> None:
    """The value of an unknown field may have many thousands of objects."""
    body = read(zip=[[]] * 50_000, stream=True, stream_options={"often": [[]] * 50_000}).body
    assert body.stream_options is not None
    assert values_of_unknown(body) == values_of_unknown(body.stream_options) == [None]
    message = {"role": "user", "content": [{"type": "text", "text": "x", "zip": [[]] * 50_000}]}
    chat = read_body(orjson.dumps({"messages": [message]}), ChatBody)
    (asked,) = chat.body.messages
    assert asked.role == "user"
    assert values_of_unknown(asked.content[0]) == [None]


def test_the_number_of_unknown_fields_is_bounded() -> None:
    def options(count: int) -> dict[str, int]:
        return {f"f{i}": i for i in range(count)}

    assert len(read(stream=True, stream_options=options(MAX_UNKNOWN)).unknown) == MAX_UNKNOWN
    with pytest.raises(RequestError, match="at most 1024 unknown fields"):
        read(stream=True, stream_options=options(MAX_UNKNOWN + 1))


def test_a_long_name_is_truncated() -> None:
    assert read(**{"x" * 10**6: 1}).unknown == ("x" * MAX_NAME,)


@pytest.mark.parametrize("value", ["[]", "{}", "0", '","', r'"\\"', r'"\","'])
def test_the_number_of_values_is_bounded(value: str) -> None:
    many = f'{{"prompt": "x", "y": [{",".join([value] * (MAX_VALUES + 1))}]}}'
    with pytest.raises(RequestError, match=f"at most {MAX_VALUES} values"):
        read_body(many.encode(), CompletionBody)


@pytest.mark.parametrize("text", [",[{" * MAX_VALUES, r"\"," * MAX_VALUES, r"\\," * MAX_VALUES, r"\\\"," * MAX_VALUES])
def test_marks_in_texts_are_no_values(text: str) -> None:
    assert read_body(f'{{"prompt": "x", "y": "{text}"}}'.encode(), CompletionBody).unknown == ("y",)


@pytest.mark.parametrize("value", first(1, ['{"b":[{"c":"dddd"}]}', "[]", '{"a":1}', "1.5", '"aaaa"']), ids=str)
def test_a_body_takes_at_most_four_times_its_bytes_and_a_constant(value: str) -> None:
    marks = 1 + sum(map(value.count, "[{"))
    body = f'{{"prompt": "x", "y": [{",".join([value] * (MAX_VALUES // marks - 2))}]}}'.encode()
    tracemalloc.start()
    try:
        read_body(body, CompletionBody)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(body) + (64 << 20)
