"""OpenAI's routes as llama-server has them, without a model."""

from typing import Any

import orjson
import pytest

from engine import Finished, FinishReason, PromptProgress, RequestError, Text, TokenDetail
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, Script, echo

pytestmark = pytest.mark.anyio

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}!{% endif %}"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
PATHS = ["/chat/completions", "/v1/chat/completions"]


def chatting(script: Script = echo) -> FakeEngine:
    return FakeEngine(script, TEMPLATE)


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_has_timings_and_a_fingerprint_of_its_kind(path: str) -> None:
    engine = chatting()
    app = app_of(engine, answers_like="llama-server")
    reply = await post(app, path, {**CHAT, "model": "any", "max_tokens": 10**6})
    assert reply.json["system_fingerprint"].startswith("b")
    assert reply.json["timings"]["predicted_n"] == 3
    request = engine.generations[0].request
    assert (request.max_tokens, request.default_max_tokens) == (None, 10**6)


async def test_without_the_setting_only_the_paths_without_version_are_llama_servers() -> None:
    app = app_of(chatting())
    assert "timings" in (await post(app, "/chat/completions", CHAT)).json
    assert "timings" not in (await post(app, "/v1/chat/completions", CHAT)).json
    refused = await post(app, "/v1/chat/completions", {**CHAT, "model": "any"})
    assert refused.json["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(("limits", "found"), [({"n_predict": 5}, 5), ({"max_tokens": -1}, 2**31 - 1), ({}, None)])
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a"})])
async def test_a_limit_is_cut_at_the_end_of_the_slot(path: str, body: Any, limits: Any, found: int | None) -> None:
    engine = chatting()
    await post(app_of(engine, answers_like="llama-server"), path, {**body, **limits})
    request = engine.generations[0].request
    assert (request.max_tokens, request.default_max_tokens) == (None, found)


@pytest.mark.parametrize("samplers", ["kti", ["Top-K", "tfs_z", "temp", "infill"]])
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a"})])
async def test_samplers_are_named_as_on_the_own_routes(path: str, body: Any, samplers: object) -> None:
    engine = chatting()
    reply = await post(app_of(engine, answers_like="llama-server"), path, {**body, "samplers": samplers})
    assert reply.status == 200, reply.content
    assert engine.generations[0].request.sampling.samplers == ("top_k", "temperature", "infill")


@pytest.mark.parametrize(
    ("last", "fields", "prompt"),
    [
        ("Wh", {}, "user:Hi;assistant:Wh"),
        ("Wh", {"continue_final_message": True, "add_generation_prompt": False}, "user:Hi;assistant:Wh"),
        ("Wh", {"add_generation_prompt": True}, "user:Hi;assistant:Wh;!"),
        ([{"type": "text", "text": "W"}, {"type": "text", "text": "h"}], {}, "user:Hi;assistant:W\n\nh"),
    ],
)
async def test_a_last_message_of_the_assistant_is_continued(last: Any, fields: Any, prompt: str) -> None:
    messages = [*CHAT["messages"], {"role": "assistant", "content": last}]
    reply = await post(app_of(chatting()), "/chat/completions", {"messages": messages, "verbose": True, **fields})
    assert reply.json["__verbose"]["prompt"] == f"<s>{prompt}"


async def test_several_messages_of_the_assistant_at_the_end_are_refused() -> None:
    messages = [*CHAT["messages"], *2 * [{"role": "assistant", "content": "a"}]]
    reply = await post(app_of(chatting()), "/chat/completions", {"messages": messages})
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")


async def test_verbose_answers_are_the_answers_of_completion() -> None:
    app = app_of(chatting(), log_level="debug")
    reply = await post(app, "/chat/completions", CHAT)
    verbose = reply.json["__verbose"]
    assert (verbose["content"], verbose["tokens_predicted"], verbose["stop_type"]) == ("a0", 3, "eos")
    assert verbose["generation_settings"]["temperature"] == 1.0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_only_the_last_chunk_has_the_usage_field(path: str) -> None:
    """Strands drops the chunks of llama-server that have it."""
    body = {"prompt": "a"} if path == "/v1/completions" else CHAT
    app = app_of(chatting(), answers_like="llama-server")
    reply = await post(app, path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    *others, last = reply.chunks
    assert last["usage"]["completion_tokens"] == 3
    assert not any("usage" in chunk for chunk in others)


def progressing(generation: FakeGeneration) -> None:
    generation.put(
        Text(0, "", progress=PromptProgress(4, 1, 1, 0.0)),
        Text(0, "", progress=PromptProgress(4, 1, 4, 0.5)),
        Text(0, "a", (TokenDetail(97, b"a"),), 0.25),
        Finished(0, "", FinishReason.STOP, 2, 1),
    )


@pytest.mark.parametrize("path", [*PATHS, "/v1/completions"])
async def test_a_stream_reports_progress_and_times_on_request(path: str) -> None:
    body = {"prompt": "abcd"} if path == "/v1/completions" else CHAT
    engine = chatting(progressing)
    fields = {"stream": True, "return_progress": True, "timings_per_token": True}
    chunks = (await post(app_of(engine), path, {**body, **fields})).chunks
    progress = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
    assert progress == [1, 4]
    timed = [chunk["timings"] for chunk in chunks if "timings" in chunk]
    assert [one["prompt_n"] for one in timed][:3] == [0, 3, 3]
    assert (timed[2]["predicted_n"], timed[2]["predicted_ms"]) == (1, 250.0)


async def test_a_stream_of_a_response_reports_progress_and_times_on_request() -> None:
    body = {"input": "abcd", "stream": True}
    fields = {"return_progress": True, "timings_per_token": True}
    plain = await post(app_of(chatting(progressing)), "/responses", body)
    assert b"prompt_progress" not in plain.content
    assert b'"timings"' not in plain.content
    call = await post(app_of(chatting(progressing)), "/responses", {**body, **fields})
    lines = [line.removeprefix(b"data: ") for line in call.content.split(b"\n") if line.startswith(b"data: {")]
    events = [orjson.loads(line) for line in lines]
    read = [event for event in events if "prompt_progress" in event]
    assert [(event["type"], event["prompt_progress"]["processed"]) for event in read] == [
        ("response.in_progress", 1),
        ("response.in_progress", 4),
    ]
    (written,) = (event for event in events if event["type"] == "response.output_text.delta")
    assert (written["timings"]["prompt_n"], written["timings"]["predicted_ms"]) == (3, 250.0)
    assert events[-1]["timings"]["predicted_n"] == 1
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize(("path", "body", "count"), [("/v1/completions", {"prompt": "a"}, 2), (PATHS[0], CHAT, 3)])
@pytest.mark.parametrize("timed", [False, True])
async def test_progress_is_not_sent_unasked(path: str, body: dict[str, Any], count: int, timed: bool) -> None:
    fields = {"stream": True, "timings_per_token": timed}
    chunks = (await post(app_of(chatting(progressing)), path, {**body, **fields})).chunks
    assert ["prompt_progress" in chunk for chunk in chunks] == [False] * count


async def test_the_first_delta_has_no_content() -> None:
    first, *_ = (await post(app_of(chatting()), "/chat/completions", {**CHAT, "stream": True})).chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_have_llama_servers_shape(stream: bool) -> None:
    engine = chatting()
    engine.refusal = RequestError("Long.", code="context_length_exceeded", figures={"n_prompt_tokens": 9, "n_ctx": 8})
    reply = await post(app_of(engine), "/chat/completions", {**CHAT, "stream": stream})
    error = reply.json["error"]
    assert (error["code"], error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", 8)
