"""`POST /v1/completions` without a model: bytes in, bytes out."""

import logging

import orjson
import pytest

from engine import Busy, EngineFault, Finished, FinishReason, RequestError, Text, Unavailable
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration

pytestmark = pytest.mark.anyio

PATH = "/v1/completions"


async def test_a_whole_answer_has_openais_shape() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {"prompt": ["abc", "de"], "n": 2}, x_request_id="mine")
    answer = reply.json
    assert reply.status == 200
    assert reply.header("content-type") == "application/json"
    assert reply.header("x-request-id") == "mine"
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer.pop("system_fingerprint").startswith("fp_")
    assert answer == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [
            {"index": index, "text": f"a{index}", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
            for index in range(4)
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 12,
            "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }
    assert engine.generations[0].request.id == "mine"
    assert not engine.generations[0].request.stream


async def test_choices_are_ordered_by_index_in_any_order_of_their_ends() -> None:
    def backwards(generation: FakeGeneration) -> None:
        generation.put(*(Finished(choice, str(choice), FinishReason.LENGTH, 1, 0) for choice in (2, 0, 1)))

    answer = (await post(app_of(FakeEngine(backwards)), PATH, {"prompt": "x", "n": 3})).json
    assert [choice["text"] for choice in answer["choices"]] == ["0", "1", "2"]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}


def chunk(head: bytes, choice: int, text: bytes, reason: bytes, tail: bytes = b"") -> bytes:
    stopped = b"" if reason == b"null" else b',"stop_reason":null'
    one = b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":%b%b}' % (choice, text, reason, stopped)
    return head + b',"choices":[%b]%b}\n\n' % (one, tail)


def head_of(content: bytes) -> bytes:
    """Check the fields before the choices in the first chunk and return their bytes."""
    head = content.partition(b',"choices"')[0]
    fields = orjson.loads(head.removeprefix(b"data: ") + b"}")
    assert list(fields) == ["id", "object", "created", "model", "system_fingerprint"]
    assert fields["object"] == "text_completion"
    return head


async def test_a_stream_has_exactly_these_bytes() -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"prompt": "x", "stream": True})
    assert reply.status == 200
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    head = head_of(reply.content)
    assert reply.content == chunk(head, 0, b"a", b"null") + chunk(head, 0, b"0", b'"stop"') + b"data: [DONE]\n\n"


async def test_a_stream_of_several_choices_with_usage_has_exactly_these_bytes() -> None:
    body = {"prompt": ["ab", "c"], "n": 2, "stream": True, "stream_options": {"include_usage": True}}
    reply = await post(app_of(FakeEngine()), PATH, body)
    head, tail = head_of(reply.content), b',"usage":null'
    expected = b"".join(
        chunk(head, choice, b"a", b"null", tail) + chunk(head, choice, b"%d" % choice, b'"stop"', tail)
        for choice in range(4)
    )
    usage = b'{"prompt_tokens":3,"completion_tokens":12,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":2},'
    usage += b'"completion_tokens_details":{"reasoning_tokens":0,'
    usage += b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
    assert reply.content == expected + head + b',"choices":[],"usage":%b}\n\ndata: [DONE]\n\n' % usage


async def test_ready_events_are_sent_together() -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"prompt": "x", "n": 16, "stream": True})
    assert len(reply.bodies) == 2
    assert reply.bodies[0].count(b"data: ") == 32
    assert reply.bodies[1] == b"data: [DONE]\n\n"


async def test_text_is_escaped_and_never_split() -> None:
    text = 'ж "\\\n\u2028 </script> 🐉\0'

    def script(generation: FakeGeneration) -> None:
        generation.put(Text(0, text), Finished(0, "", FinishReason.LENGTH, 2, 0))

    reply = await post(app_of(FakeEngine(script)), PATH, {"prompt": "x", "stream": True})
    events = [orjson.loads(line[6:]) for line in reply.content.split(b"\n\n")[:2]]
    assert events[0]["choices"][0]["text"] == text
    end = {"index": 0, "text": "", "logprobs": None, "finish_reason": "length", "stop_reason": None}
    assert events[1]["choices"][0] == end


REFUSALS = [
    (RequestError("Too long.", code="context_length_exceeded", param="prompt"), 400, "invalid_request_error"),
    (Busy("Full.", code="queue_full"), 429, "rate_limit_error"),
    (Unavailable("Loading.", code="engine_unavailable"), 503, "server_error"),
    (EngineFault("Dead.", code="engine_died"), 503, "server_error"),
    (EngineFault("Broken.", code="decode_failed"), 500, "server_error"),
]


async def test_a_request_while_no_model_is_loaded_is_a_503() -> None:
    engine = FakeEngine()
    engine.model, engine.refusal = None, Unavailable("Loading.", code="engine_unavailable")
    assert (await post(app_of(engine), PATH, {"prompt": "x"})).status == 503


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("refusal", "status", "kind"), REFUSALS)
async def test_a_refusal_of_the_engine_is_a_status(refusal: RequestError, status: int, kind: str, stream: bool) -> None:
    engine = FakeEngine()
    engine.refusal = refusal
    reply = await post(app_of(engine), PATH, {"prompt": "x", "stream": stream})
    expected = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
    assert (reply.status, reply.json) == (status, {"error": expected})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte_is_a_status(stream: bool) -> None:
    engine = FakeEngine(lambda generation: generation.fail(EngineFault("Dead.", code="engine_died")))
    reply = await post(app_of(engine), PATH, {"prompt": "x", "stream": stream})
    assert (reply.status, reply.json["error"]["code"]) == (503, "engine_died")


async def test_a_failure_in_a_stream_is_an_error_event_without_a_clean_end() -> None:
    engine = FakeEngine(lambda generation: generation.put(Text(0, "a")))
    async with AsgiCall(app_of(engine), PATH, b'{"prompt":"x","stream":true}').running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    assert call.status == 200
    error = b'{"error":{"message":"Dead.","type":"server_error","param":null,"code":"engine_died"}}'
    assert call.content == chunk(head_of(call.content), 0, b"a", b"null") + b"data: " + error + b"\n\n"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"", None, "invalid_json"),
        (b"{", None, "invalid_json"),
        (b'{"prompt":"\xff"}', None, "invalid_json"),
        (b'{"prompt":"x","temperature":NaN}', None, "invalid_json"),
        (b'{"prompt":"x","temperature":1e999}', None, "invalid_json"),
        (b"[" * 5000, None, "invalid_json"),
        (b"[]", None, "invalid_type"),
        (b'"x"', None, "invalid_type"),
        (b"{}", "prompt", "missing_required_parameter"),
        (b'{"prompt":"x","max_tokens":"5"}', "max_tokens", "invalid_type"),
        (b'{"prompt":"x","max_tokens":true}', "max_tokens", "invalid_type"),
        (b'{"prompt":"x","max_tokens":-5}', "max_tokens", "invalid_value"),
        (b'{"prompt":"x","n":1000}', "n", "invalid_value"),
        (b'{"prompt":[99999999999999999999999]}', "prompt", "invalid_type"),
        (b'{"prompt":""}', "prompt", "invalid_value"),
    ],
)
async def test_an_invalid_body_is_a_400(body: bytes, param: str | None, code: str) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, body)
    error = reply.json["error"]
    assert reply.status == 400
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"].startswith(f"{param}: " if param else "The body ")
    assert "Value error" not in error["message"]
    assert not engine.generations


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"])
async def test_a_body_is_json_whatever_its_content_type(content_type: str) -> None:
    assert (await post(app_of(FakeEngine()), PATH, {"prompt": "x"}, content_type=content_type)).status == 200


@pytest.mark.parametrize("name", [None, "tiny", "default", "application", "application.py"])
async def test_the_model_may_be_named_or_left_out(name: str | None) -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"prompt": "x", "model": name})
    assert (reply.status, reply.json["model"]) == (200, "tiny")


async def test_an_unknown_model_is_a_404() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {"prompt": "x", "model": "gpt-4"})
    assert reply.status == 404
    assert reply.json["error"] == {
        "message": "The model 'gpt-4' does not exist; this server has 'tiny'.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert not engine.generations


async def test_unknown_fields_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(FakeEngine())
    with caplog.at_level(logging.WARNING, "gateway.apis.fields.read"):
        for _ in range(3):
            assert (await post(app, PATH, {"prompt": "x", "mirrorstat": 2, "a\nb": 1})).status == 200
        assert (await post(app, PATH, {"prompt": "x", **{f"f{i}": i for i in range(300)}})).status == 200
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == [
        "/v1/completions: the unknown field 'mirrorstat' of a request is ignored, now and later",
        "/v1/completions: the unknown field 'a\\nb' of a request is ignored, now and later",
    ]
    assert len(lines) == 256


async def test_a_body_over_the_limit_is_a_413() -> None:
    reply = await post(app_of(FakeEngine(), body_limit=20), PATH, {"prompt": "x" * 20})
    assert (reply.status, reply.json["error"]["code"]) == (413, "request_too_large")


async def test_a_foreign_page_is_refused_unless_allowed() -> None:
    app = app_of(FakeEngine(), allow_origin=("https://good.example",))
    refused = await post(app, PATH, {"prompt": "x"}, origin="https://evil.example")
    assert (refused.status, refused.json["error"]["code"]) == (403, "origin_not_allowed")
    assert (await post(app, PATH, {"prompt": "x"}, origin="https://good.example")).status == 200


async def test_refusals_of_cors_have_openais_shape() -> None:
    app = app_of(FakeEngine(), allow_origin=("https://good.example",))
    headers = {"origin": "https://good.example", "access-control-request-method": "FOO"}
    method = await AsgiCall(app, PATH, method="OPTIONS", headers=headers).run()
    headers = {"origin": "https://GOOD.example", "access-control-request-method": "POST"}
    origin = await AsgiCall(app, PATH, method="OPTIONS", headers=headers).run()
    assert (method.status, method.json["error"]["code"]) == (400, "method_not_allowed")
    assert (origin.status, origin.json["error"]["code"]) == (403, "origin_not_allowed")


async def test_other_methods_are_405_and_other_paths_404() -> None:
    app = app_of(FakeEngine())
    wrong_method, wrong_path = await get(app, PATH), await AsgiCall(app, "/v1/completion").run()
    assert (wrong_method.status, wrong_method.json["error"]["code"]) == (405, "method_not_allowed")
    assert (wrong_path.status, wrong_path.json["error"]["code"]) == (404, "not_found")
