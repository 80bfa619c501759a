"""`POST /generate` without a model: the envelope of success and of every failure."""

import orjson
import pytest

from engine import (
    EngineFault,
    Finished,
    FinishReason,
    Grammar,
    GrammarKind,
    PromptText,
    RequestError,
    Text,
    TextPrompt,
    TokenDetail,
)
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import BOS, FakeEngine, FakeGeneration

pytestmark = pytest.mark.anyio

PATH = "/generate"


def check_success(answer: dict[str, object], text: str) -> None:
    data = answer["data"]
    assert answer["success"] is True
    assert isinstance(data, dict)
    assert list(data) == ["id", "text", "tokens", "finish_reason", "response_time", "tokens_per_second"]
    assert (data["text"], data["tokens"], data["finish_reason"]) == (text, 3, "stop")
    assert data["id"].startswith("gen-")
    assert data["response_time"] >= 0
    assert data["tokens_per_second"] >= 0


async def test_a_whole_answer_has_its_envelope() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {"prompt": "abc", "max_tokens": 7, "temperature": 0.5, "stop": "z"})
    assert reply.status == 200
    check_success(reply.json, "a0")
    request = engine.generations[0].request
    assert (request.prompts, request.max_tokens, request.stop) == (("abc",), 7, ("z",))
    assert request.sampling.temperature == 0.5
    assert reply.header("x-request-id") == request.id


@pytest.mark.parametrize(("parse_special", "prompt"), [(True, "a<c>"), (False, PromptText("a<c>", ((0, 4),)))])
async def test_names_in_a_prompt_are_plain_on_request(parse_special: bool, prompt: TextPrompt) -> None:
    engine = FakeEngine()
    await post(app_of(engine), PATH, {"prompt": "a<c>", "parse_special": parse_special})
    assert engine.generations[0].request.prompts == (prompt,)


async def test_a_stream_ends_in_the_whole_answer() -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"prompt": [1, 2], "stream": True})
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    start = b'data: {"text":"a"}\n\ndata: {"text":"0"}\n\ndata: {"success":true,'
    assert reply.content.startswith(start)
    assert reply.content.endswith(b"}}\n\n")
    check_success(orjson.loads(reply.content.split(b"\n\n")[2].removeprefix(b"data: ")), "a0")


async def test_a_stream_that_fails_ends_in_the_envelope_of_a_failure() -> None:
    engine = FakeEngine(lambda generation: generation.put(Text(0, "a")))
    async with AsgiCall(app_of(engine), PATH, b'{"prompt":"x","stream":true}').running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    error = b'{"message":"Dead.","type":"server_error","param":null,"code":"engine_died"}'
    assert call.content == b'data: {"text":"a"}\n\ndata: {"success":false,"error":' + error + b"}\n\n"


def check_failure(reply: AsgiCall, status: int, code: str) -> None:
    assert reply.status == status
    assert reply.header("content-length") == str(len(reply.content))
    assert reply.json["success"] is False
    assert reply.json["error"]["code"] == code
    assert set(reply.json) == {"success", "error"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_type"),
        (b"{}", 400, "missing_required_parameter"),
        (b'{"prompt":["a","b"]}', 400, "invalid_value"),
        (b'{"prompt":"x","max_tokens":"5"}', 400, "invalid_type"),
        (b'{"prompt":"%b"}' % (b"x" * 100), 413, "request_too_large"),
    ],
)
async def test_an_invalid_body_is_answered_in_the_envelope(body: bytes, status: int, code: str) -> None:
    check_failure(await post(app_of(FakeEngine(), body_limit=100), PATH, body), status, code)


async def test_a_failure_of_the_engine_is_answered_in_the_envelope() -> None:
    engine = FakeEngine()
    engine.refusal = EngineFault("Broken.", code="decode_failed")
    check_failure(await post(app_of(engine), PATH, {"prompt": "x"}), 500, "decode_failed")


async def test_refusals_before_the_route_are_answered_in_the_envelope() -> None:
    app = app_of(FakeEngine())
    check_failure(await post(app, PATH, {"prompt": "x"}, origin="https://evil.example"), 403, "origin_not_allowed")
    check_failure(await get(app, PATH), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("origin", "method", "status", "code"),
    [
        ("https://good.example", "FOO", 400, "method_not_allowed"),
        ("https://GOOD.example", "POST", 403, "origin_not_allowed"),
    ],
)
async def test_a_refused_preflight_is_answered_in_the_envelope(
    origin: str, method: str, status: int, code: str
) -> None:
    app = app_of(FakeEngine(), allow_origin=("https://good.example",))
    headers = {"origin": origin, "access-control-request-method": method}
    check_failure(await AsgiCall(app, PATH, method="OPTIONS", headers=headers).run(), status, code)


def tell(generation: FakeGeneration) -> None:
    """Answer with two tokens, each with its details."""
    first, second = TokenDetail(5, b"a", -0.5), TokenDetail(6, b"b", -1.0)
    if generation.request.stream:
        generation.put(Text(0, "a", (first,)), Finished(0, "b", FinishReason.STOP, 3, 0, (second,)))
    else:
        generation.put(Finished(0, "ab", FinishReason.STOP, 3, 0, (first, second)))


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_token_ids_and_timings_are_returned_on_request(stream: bool) -> None:
    engine = FakeEngine(tell)
    body = {"prompt": "x", "logprobs": 1, "return_token_ids": True, "timings": True, "stream": stream}
    content = (await post(app_of(engine), PATH, body)).content
    data = orjson.loads(content.split(b"\n\n")[-2].removeprefix(b"data: ") if stream else content)["data"]
    assert data["text"] == "ab"
    assert data["logprobs"] == {
        "text_offset": [0, 1],
        "token_logprobs": [-0.5, -1.0],
        "tokens": ["a", "b"],
        "top_logprobs": [{"a": -0.5}, {"b": -1.0}],
    }
    assert (data["prompt_token_ids"], data["token_ids"]) == ([BOS, ord("x")], [5, 6])
    assert data["timings"]["predicted_n"] == 3


async def test_constraints_and_samplers_reach_the_engine() -> None:
    engine = FakeEngine()
    body = {"prompt": "x", "guided_choice": ["a"], "samplers": ["top_k"], "stop_token_ids": [7], "min_tokens": 2}
    assert (await post(app_of(engine), PATH, body)).status == 200
    request = engine.generations[0].request
    assert request.grammar == Grammar(GrammarKind.LARK, 'start: "a"')
    assert (request.sampling.samplers, request.sampling.min_tokens, request.stop_tokens) == (("top_k",), 2, (7,))


async def test_a_refused_grammar_is_named_by_the_field_that_was_sent() -> None:
    engine = FakeEngine()
    engine.refusal = RequestError("No.", code="invalid", param="grammar")
    reply = await post(app_of(engine), PATH, {"prompt": "x", "json_schema": {}})
    check_failure(reply, 400, "invalid")
    assert reply.json["error"]["param"] == "json_schema"
