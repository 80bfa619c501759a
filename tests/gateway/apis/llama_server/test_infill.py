"""`/infill`: the prompt around a gap, and the answers of `/completion`."""

from dataclasses import replace

import pytest

from gateway.apis.llama_server.infill.prompt import MOST_AFTER, MOST_BEFORE, Texts, infill_tokens
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import MODEL, FakeEngine

GAP = {"prefix": 1, "suffix": 2, "middle": 3}
PROJECT = {"repository": 4, "file": 5}
TEXTS = Texts(begin=[9], project=[40], file=[50], prefix=[10, 11], prompt=[12], suffix=[20], extra=[([51], [52, 53])])
ROOM = 1000


def test_parts_of_other_files_come_first() -> None:
    tokens = infill_tokens(GAP | PROJECT, TEXTS, ROOM)
    assert tokens == [4, 40, 5, 51, 52, 53, 5, 50, 9, 1, 10, 11, 12, 2, 20, 3]


def test_without_tokens_of_files_their_parts_are_plain() -> None:
    assert infill_tokens(GAP, TEXTS, ROOM) == [51, 52, 53, 9, 1, 10, 11, 12, 2, 20, 3]


def test_the_first_tokens_of_other_files_are_left_out_where_there_is_no_room() -> None:
    assert infill_tokens(GAP | PROJECT, TEXTS, 11) == [53, 5, 50, 9, 1, 10, 11, 12, 2, 20, 3]
    assert infill_tokens(GAP | PROJECT, TEXTS, 0) == [9, 1, 10, 11, 12, 2, 20, 3]


def test_long_texts_are_cut_away_from_the_gap() -> None:
    long = replace(TEXTS, prefix=range(5000), suffix=range(5000), extra=[])
    tokens = infill_tokens(GAP, long, 10_000)
    assert tokens[:3] == [9, 1, 5000 - MOST_BEFORE]
    assert tokens[-2] == MOST_AFTER - 2 - len(TEXTS.prompt) - 1


BODY = {
    "input_prefix": "def f(",
    "input_suffix": "):\n",
    "prompt": "a",
    "input_extra": [{"filename": "b.py", "text": "b = 1\n"}, {"text": "c"}],
    "n_predict": 8,
    "n_indent": 4,
    "t_max_predict_ms": 500,
    "t_max_prompt_ms": 500,
    "samplers": ["top_k", "top_p", "infill"],
    "response_fields": ["content", "timings/prompt_n"],
    "n_cache_reuse": 256,
}


def infilling() -> FakeEngine:
    engine = FakeEngine()
    engine.model = replace(MODEL, fill_tokens={**GAP, **PROJECT})
    return engine


@pytest.mark.anyio
async def test_an_editors_request_is_generated() -> None:
    engine = infilling()
    call = await post(app_of(engine), "/infill", BODY)
    assert call.status == 200, call.content
    assert call.json.keys() == {"content", "timings/prompt_n"}
    assert call.header("x-llama-gateway-ignored") is None
    (generation,) = engine.generations
    extra = [4, *b"myproject\n", 5, *b"b.py\n", *b"b = 1\n", 5, *b"tmp\n", *b"c", 5, *b"filename\n"]
    assert generation.request.prompts[0] == (*extra, 256, 1, *b"def f(", *b"a", 2, *b"):\n", 3)
    assert (generation.request.indent, generation.request.line_seconds) == (4, 0.5)
    assert generation.request.sampling.samplers == ("top_k", "top_p", "infill")


@pytest.mark.anyio
async def test_a_gap_may_have_128_texts_however_long_the_text_before_it_is() -> None:
    engine = infilling()
    call = await post(app_of(engine), "/infill", BODY | {"prompt": "return", "n_cmpl": 128})
    assert (call.status, engine.generations[0].request.n) == (200, 128)


@pytest.mark.anyio
async def test_a_prompt_may_only_be_computed_for_the_next_request() -> None:
    engine = infilling()
    assert (await post(app_of(engine), "/infill", {**BODY, "n_predict": 0})).status == 200
    assert engine.generations[0].request.max_tokens == 0


@pytest.mark.anyio
async def test_a_model_without_the_tokens_is_a_501() -> None:
    call = await post(app_of(FakeEngine()), "/infill", BODY)
    assert (call.status, call.json["error"]["type"]) == (501, "not_supported_error")
    assert call.json["error"]["message"] == (
        "Infill is not supported by this model: prefix token is missing. suffix token is missing. middle token is "
        "missing."
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wrong",
    [
        {"input_prefix": None},
        {"input_suffix": None},
        {"prompt": ["a"]},
        {"input_extra": {}},
        {"input_extra": [{}]},
        {"input_extra": [{"filename": "ok"}]},
        {"input_extra": [{"filename": 123, "text": "abc"}]},
    ],
)
async def test_wrong_fields_are_a_400(wrong: dict[str, object]) -> None:
    call = await post(app_of(infilling()), "/infill", {**BODY, **wrong})
    assert (call.status, call.json["error"]["type"]) == (400, "invalid_request_error")
