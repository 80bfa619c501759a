"""Details of completions besides their text, whole and streamed: log-probabilities, token ids, timings and best_of."""

from typing import Any

import anyio
import orjson
import pytest

from engine import (
    Alternative,
    EngineFault,
    Finished,
    FinishReason,
    Infill,
    PromptProgress,
    PromptText,
    RequestError,
    Text,
    TokenDetail,
)
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.fake_engine import BOS, CONTROL, FakeEngine, FakeGeneration
from tests.gateway.joined import joined

pytestmark = pytest.mark.anyio

PATH = "/v1/completions"
DRAGON = "🐉".encode()


def token(number: int, piece: bytes, logprob: float = -1.0) -> TokenDetail:
    return TokenDetail(number, piece, logprob, (Alternative(9, b" the", -0.5),))


TOLD = (
    ("Once", (TokenDetail(1, b"Once"),)),
    (" a", (token(2, b" a", -0.25),)),
    ("🐉!", (token(3, DRAGON[:1]), token(4, DRAGON[1:]), token(5, b"!", -2.0))),
)


def tell(generation: FakeGeneration) -> None:
    """Answer each choice with the details above, and end it at a stop string."""
    tell_and_end(generation, "x")


def tell_and_end(generation: FakeGeneration, stop: str | None, last: TokenDetail | None = None) -> None:
    for choice in range(generation.request.parts):
        text = ""
        details: tuple[TokenDetail, ...] = ()
        if generation.request.stream:
            generation.put(*(Text(choice, *told) for told in TOLD))
        else:
            text = "".join(text for text, _ in TOLD)
            details = tuple(detail for _, details in TOLD for detail in details)
        generation.put(Finished(choice, text, FinishReason.STOP, 6, 2, details, stop, 0.5, 0.25, last=last))


COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"logprobs": 1},
    "no alternatives": {"logprobs": 0},
    "token ids": {"return_token_ids": True},
    "timings": {"timings": True},
    "all of several": {
        "prompt": ["ab", "cd"],
        "n": 2,
        "logprobs": 2,
        "return_token_ids": True,
        "timings": True,
        "echo": True,
    },
}


@pytest.mark.parametrize("asked", ASKED)
async def test_a_stream_has_the_details_of_the_whole_answer(asked: str) -> None:
    app = app_of(FakeEngine(tell))
    body = {"prompt": "ab", **ASKED[asked]}
    whole = (await post(app, PATH, body)).json
    stream = {**body, "stream": True, "stream_options": {"include_usage": True}}
    streamed = joined((await post(app, PATH, stream)).content)
    for answer in (whole, streamed):
        del answer["id"], answer["created"]
    assert streamed == whole


async def test_logprobs_have_openais_shape() -> None:
    engine = FakeEngine(tell)
    (choice,) = (await post(app_of(engine), PATH, {"prompt": "ab", "logprobs": 1, "echo": True})).json["choices"]
    assert (engine.generations[0].request.logprobs, engine.generations[0].request.echo) == (1, True)
    assert choice["logprobs"]["text_offset"] == [0, 4, 6, 6, 7]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -1.0, -1.0, -2.0]
    assert choice["logprobs"]["tokens"] == ["Once", " a", "bytes:\\xf0", "bytes:\\x9f\\x90\\x89", "!"]
    assert choice["logprobs"]["top_logprobs"][:2] == [None, {" the": -0.5, " a": -0.25}]
    assert choice["stop_reason"] == "x"


async def test_a_chunk_without_a_token_has_no_logprobs() -> None:
    reply = await post(app_of(FakeEngine(tell)), PATH, {"prompt": "ab", "logprobs": 1, "stream": True})
    ends = [line for line in reply.content.split(b"\n\n") if b'"stop"' in line]
    assert len(ends) == 1
    assert b'"text":"","logprobs":null,"finish_reason":"stop","stop_reason":"x"' in ends[0]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_end_token_has_a_logprob_and_an_id_behind_the_text(stream: bool) -> None:
    last = TokenDetail(CONTROL, b"", -0.125, (Alternative(CONTROL, b"<c>", -0.125),))
    app = app_of(FakeEngine(lambda generation: tell_and_end(generation, None, last)))
    reply = await post(app, PATH, {"prompt": "ab", "logprobs": 1, "return_token_ids": True, "stream": stream})
    (choice,) = (joined(reply.content) if stream else reply.json)["choices"]
    assert (choice["text"], choice["token_ids"]) == ("Once a🐉!", [1, 2, 3, 4, 5, CONTROL])
    assert {name: values[-1] for name, values in choice["logprobs"].items()} == {
        "text_offset": 8,
        "token_logprobs": -0.125,
        "tokens": "",
        "top_logprobs": {"": -0.125},
    }


async def test_token_ids_are_those_that_the_engine_reads() -> None:
    engine = FakeEngine(tell)
    body = {"prompt": ["ab", [7, 8]], "return_token_ids": True}
    choices = (await post(app_of(engine), PATH, body)).json["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [[BOS, 97, 98], [7, 8]]
    assert [choice["token_ids"] for choice in choices] == [[1, 2, 3, 4, 5]] * 2
    assert engine.tokenized == [(("ab",), True, True)]
    assert engine.generations[0].request.token_ids


async def test_names_in_prompts_are_plain_on_request() -> None:
    engine = FakeEngine(tell)
    body = {"prompt": ["a<c>", [7]], "return_token_ids": True, "echo": True}
    app = app_of(engine)
    choices = (await post(app, PATH, {**body, "parse_special": False})).json["choices"]
    assert choices[0]["prompt_token_ids"] == [BOS, *b"a<c>"]
    assert engine.generations[0].request.prompts == (PromptText("a<c>", ((0, 4),)), (7,))
    choices = (await post(app, PATH, body)).json["choices"]
    assert choices[0]["prompt_token_ids"] == [BOS, 97, CONTROL]


async def test_token_ids_of_an_infill_prompt_are_left_out() -> None:
    engine = FakeEngine(tell)
    body = {"prompt": "ab", "suffix": "c", "return_token_ids": True}
    (choice,) = (await post(app_of(engine), PATH, body)).json["choices"]
    assert choice["prompt_token_ids"] is None
    assert engine.tokenized == []
    assert engine.generations[0].request.prompts == (Infill("ab", "c"),)


async def test_timings_have_llama_servers_names() -> None:
    answer = (await post(app_of(FakeEngine(tell)), PATH, {"prompt": "abcd", "timings": True, "n": 2})).json
    assert answer["timings"] == {
        "cache_n": 4,
        "prompt_n": 4,
        "prompt_ms": 1000.0,
        "prompt_per_token_ms": 250.0,
        "prompt_per_second": 4.0,
        "predicted_n": 12,
        "predicted_ms": 500.0,
        "predicted_per_token_ms": 500 / 10,  # the first token of each choice takes no decode step
        "predicted_per_second": 20.0,
        "draft_n": 0,
        "draft_n_accepted": 0,
        "truncated": False,
    }


async def test_timings_without_a_pass_are_zero() -> None:
    engine = FakeEngine(lambda generation: generation.put(Finished(0, "", FinishReason.LENGTH, 0, 2)))
    timed = (await post(app_of(engine), PATH, {"prompt": "ab", "timings": True, "max_tokens": 0})).json["timings"]
    assert set(timed.values()) == {0, 2}


@pytest.mark.parametrize("usage", [False, True])
async def test_timings_of_a_stream_are_in_its_last_chunk(usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    body = {"prompt": "ab", "n": 2, "stream": True, "timings": True, **options}
    *chunks, _done, _end = (await post(app_of(FakeEngine(tell)), PATH, body)).content.split(b"\n\n")
    timed = [b'"timings":{"cache_n":' in chunk for chunk in chunks]
    assert timed == [False] * (len(chunks) - 1) + [True]
    assert len(orjson.loads(chunks[-1].removeprefix(b"data: "))["choices"]) == (0 if usage else 1)


SCORES: tuple[tuple[float, ...], ...] = ((), (-0.5, -0.5), (-0.75,), (), (-0.5,), (-0.75, -0.75))
"""Log-probabilities of each choice. Of three, the first is empty and the second is the likeliest for its length."""


def score(generation: FakeGeneration) -> None:
    """Answer with choices of these scores, behind a very unlikely prompt where it is echoed."""
    echoed = tuple(TokenDetail(0, b"p", -9.0) for _ in range(2)) if generation.request.echo else ()
    for choice, logprobs in zip(range(generation.request.parts), SCORES, strict=False):
        told = tuple(TokenDetail(1, b"t", logprob) for logprob in logprobs)
        generation.put(Finished(choice, f"a{choice}", FinishReason.STOP, len(told) + 1, 0, echoed + told))


@pytest.mark.parametrize("echo", [False, True])
async def test_the_times_of_each_chunk_count_generated_tokens_only(echo: bool) -> None:
    def script(generation: FakeGeneration) -> None:
        prompt = (TokenDetail(97, b"a"), TokenDetail(98, b"b")) if generation.request.echo else ()
        for choice in range(2):
            generation.put(
                Text(choice, "", progress=PromptProgress(2, 0, 2, 0.5)),
                Text(choice, "abc", (*prompt, TokenDetail(99, b"c")), 0.25),
                Text(choice, "de", (TokenDetail(100, b"d"), TokenDetail(101, b"e")), 0.5),
                Finished(choice, "", FinishReason.LENGTH, 3, 0),
            )

    body = {"prompt": "ab", "n": 2, "echo": echo, "stream": True, "timings_per_token": True, "return_progress": True}
    reply = await post(app_of(FakeEngine(script)), PATH, body)
    events = reply.chunks
    counts = [event["timings"]["predicted_n"] for event in events if "timings" in event]
    assert counts == [0, 1, 3] * 2


@pytest.mark.parametrize("included", [False, True])
async def test_each_chunk_has_the_usage_until_now_of_its_choice(included: bool) -> None:
    options = {"continuous_usage_stats": True, "include_usage": included}
    body = {"prompt": ["ab", "c"], "stream": True, "stream_options": options}
    reply = await post(app_of(FakeEngine(tell)), PATH, body)
    events = reply.chunks
    counts = [tuple(event["usage"][name] for name in COUNTS) for event in events if event["choices"]]
    assert counts == [(2, 1, 3), (2, 2, 4), (2, 5, 7), (2, 6, 8), (1, 1, 2), (1, 2, 3), (1, 5, 6), (1, 6, 7)]
    whole = [event["usage"] for event in events if not event["choices"]]
    assert [tuple(usage[name] for name in COUNTS) for usage in whole] == [(3, 12, 15)] * included


@pytest.mark.parametrize("echo", [False, True])
async def test_best_of_returns_the_best_choices_and_counts_all(echo: bool) -> None:
    engine = FakeEngine(score)
    body = {"prompt": ["ab", "cd"], "best_of": 3, "n": 2, "echo": echo}
    answer = (await post(app_of(engine), PATH, body)).json
    assert [choice["text"] for choice in answer["choices"]] == ["a1", "a2", "a4", "a5"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["logprobs"] for choice in answer["choices"]] == [None] * 4
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (4, 6 + 6)
    assert engine.generations[0].request.n == 3


async def test_the_best_choice_keeps_its_logprobs() -> None:
    body = {"prompt": "ab", "best_of": 3, "logprobs": 0, "return_token_ids": True}
    (choice,) = (await post(app_of(FakeEngine(score)), PATH, body)).json["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5] * 2
    assert choice["token_ids"] == [1] * 2


async def test_choices_that_are_all_returned_stay_in_their_order() -> None:
    body = {"prompt": "ab", "best_of": 3, "n": 3, "logprobs": 0}
    answer = (await post(app_of(FakeEngine(score)), PATH, body)).json
    assert [choice["text"] for choice in answer["choices"]] == ["a0", "a1", "a2"]


async def test_a_failure_of_one_of_best_of_fails_the_request() -> None:
    def script(generation: FakeGeneration) -> None:
        generation.put(Finished(0, "a", FinishReason.STOP, 1, 0))
        generation.fail(EngineFault("Broken.", code="decode_failed"))

    reply = await post(app_of(FakeEngine(script)), PATH, {"prompt": "ab", "best_of": 3})
    assert (reply.status, reply.json["error"]["code"]) == (500, "decode_failed")


async def test_a_hang_up_cancels_all_choices_of_best_of() -> None:
    engine = FakeEngine(lambda generation: generation.put(Finished(0, "a", FinishReason.STOP, 1, 0)))
    async with AsgiCall(app_of(engine), PATH, b'{"prompt":"ab","best_of":3}').running() as call:
        await anyio.wait_all_tasks_blocked()
        call.hang_up()
    assert engine.generations[0].left == "client closed the connection"
    assert call.start is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "named"),
    [
        ({"response_format": {"type": "json_object"}}, "grammar", "response_format"),
        ({"guided_regex": "("}, "grammar", "guided_regex"),
        ({}, "prompt", "prompt"),
        ({}, None, None),
    ],
)
async def test_a_refusal_of_the_engine_names_the_field_that_was_sent(
    stream: bool, fields: dict[str, Any], param: str | None, named: str | None
) -> None:
    engine = FakeEngine()
    engine.refusal = RequestError("No.", code="invalid", param=param)
    reply = await post(app_of(engine), PATH, {"prompt": "ab", "stream": stream, **fields})
    expected = {"message": "No.", "type": "invalid_request_error", "param": named, "code": "invalid"}
    assert (reply.status, reply.json) == (400, {"error": expected})


IGNORED = "x-llama-gateway-ignored"


@pytest.mark.parametrize("path", [PATH, "/generate"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_names_its_ignored_fields(path: str, stream: bool) -> None:
    engine = FakeEngine()
    body = {"prompt": "ab", "stream": stream, "zip": 1, "zap": None, "guided_decoding_backend": "x"}
    reply = await post(app_of(engine), path, body)
    assert (reply.status, reply.header(IGNORED)) == (200, "zip, guided_decoding_backend")
    engine.refusal = EngineFault("Broken.", code="decode_failed")
    failed = await post(app_of(engine), path, body)
    assert (failed.status, failed.header(IGNORED)) == (500, "zip, guided_decoding_backend")
    plain = await post(app_of(FakeEngine()), path, {"prompt": "ab", "stream": stream})
    assert plain.header(IGNORED) is None


async def test_a_strict_server_refuses_unknown_fields() -> None:
    reply = await post(app_of(FakeEngine(), strict_fields=True), PATH, {"prompt": "ab", "zip": 1})
    error = {
        "message": "Unknown field: 'zip'",
        "type": "invalid_request_error",
        "param": "zip",
        "code": "unknown_parameter",
    }
    assert (reply.status, reply.json, reply.header(IGNORED)) == (400, {"error": error}, None)


async def test_fields_of_openai_without_effect_are_not_reported() -> None:
    body = {"prompt": "ab", "user": "me", "stream": True, "stream_options": {"include_obfuscation": False}}
    assert (await post(app_of(FakeEngine()), PATH, body)).header(IGNORED) is None
