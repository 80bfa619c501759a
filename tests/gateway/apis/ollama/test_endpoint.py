"""`/api/chat` and `/api/generate` without a model: the engine's requests, and the lines."""

import math
from dataclasses import replace
from typing import Any

import orjson
import pytest

from engine import Alternative, EngineFault, Finished, FinishReason, Infill, RequestError, Text, TokenDetail
from gateway.middleware.streams.blocks import BLOCK
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine, FakeGeneration, Script, echo, say_a

pytestmark = pytest.mark.anyio

CHAT, GENERATE = "/api/chat", "/api/generate"
ASKED = {"model": "tiny:latest", "messages": [{"role": "user", "content": "Hi"}]}
PROMPT = {"model": "tiny", "prompt": "Hi"}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'
FIGURES = {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}


def engine_of(script: Script = echo) -> FakeEngine:
    return FakeEngine(script, templates.CHATML)


def says(*pieces: str, reason: FinishReason = FinishReason.STOP) -> Script:
    """Return a script that answers with these pieces, three tokens in all."""

    def script(generation: FakeGeneration) -> None:
        if generation.request.stream:
            generation.put(*(Text(0, piece) for piece in pieces), Finished(0, "", reason, 3, 1))
        else:
            generation.put(Finished(0, "".join(pieces), reason, 3, 1, prompt_seconds=0.5, decode_seconds=0.25))

    return script


def lines_of(reply: AsgiCall) -> list[dict[str, Any]]:
    """Return the lines of a stream without their times."""
    assert reply.header("content-type") == "application/x-ndjson"
    lines = [orjson.loads(line) for line in reply.content.splitlines()]
    for line in lines:
        assert line.pop("created_at").endswith("Z")
    assert lines[-1].keys() >= FIGURES
    return [{name: value for name, value in line.items() if name not in FIGURES} for line in lines]


def message(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


async def test_a_chat_is_streamed_as_lines_by_default() -> None:
    engine = engine_of(says("a", "b"))
    reply = await post(app_of(engine), CHAT, ASKED)
    assert lines_of(reply) == [
        {"model": "tiny:latest", "message": message("a"), "done": False},
        {"model": "tiny:latest", "message": message("b"), "done": False},
        {
            "model": "tiny:latest",
            "message": message(""),
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": len(engine.prompt),
            "eval_count": 3,
        },
    ]


async def test_a_whole_answer_has_the_figures_in_nanoseconds() -> None:
    reply = await post(app_of(engine_of(says("ab", reason=FinishReason.LENGTH))), CHAT, {**ASKED, "stream": False})
    answer = reply.json
    assert (answer["message"], answer["done"], answer["done_reason"]) == (message("ab"), True, "length")
    assert (answer["prompt_eval_duration"], answer["eval_duration"]) == (500_000_000, 250_000_000)
    assert 0 <= answer["load_duration"] <= answer["total_duration"]


async def test_clients_can_divide_by_the_duration_of_an_answer_without_a_decode_step() -> None:
    reply = await post(app_of(engine_of()), CHAT, {**ASKED, "stream": False})
    assert reply.json["eval_duration"] == 1000


async def test_defaults_are_those_of_ollama_and_options_replace_them() -> None:
    engine = engine_of()
    app = app_of(engine)
    await post(app, CHAT, ASKED)
    options = {"num_predict": 7, "temperature": 0, "top_k": 3, "stop": "x", "num_keep": 5, "seed": 11, "num_ctx": 4096}
    await post(app, CHAT, {**ASKED, "options": options})
    first, second = (asked.request for asked in engine.generations)
    assert (first.sampling.temperature, first.sampling.top_k, first.sampling.top_p) == (0.8, 40, 0.9)
    assert (first.sampling.repeat_penalty, first.sampling.seed, first.max_tokens) == (1.0, None, None)
    assert first.keep == 4
    assert (second.sampling.temperature, second.sampling.top_k, second.sampling.seed) == (0.0, 3, 11)
    assert (second.default_max_tokens, second.stop, second.keep) == (7, ("x",), 5)


async def test_options_have_the_bounds_of_llama_server() -> None:
    """SillyTavern offers temperatures up to 5, and sends a stop string for each member of a group."""
    engine = engine_of()
    stop = [f"\n{number}:" for number in range(100)]
    wide = {"temperature": 5.0, "repeat_penalty": 20.0, "presence_penalty": 3.0, "frequency_penalty": -3.0}
    options: dict[str, Any] = {**wide, "stop": stop}
    assert (await post(app_of(engine), CHAT, {**ASKED, "options": options})).status == 200
    request = engine.generations[0].request
    assert {name: getattr(request.sampling, name) for name in wide} == wide
    assert request.stop == tuple(stop)


@pytest.mark.parametrize(("given", "limits"), [(0, (0, 0)), (10**6, (None, 10**6)), (-2, (None, None))])
async def test_a_limit_beyond_the_slot_is_cut_as_by_ollama(given: int, limits: tuple[int | None, int | None]) -> None:
    engine = engine_of()
    await post(app_of(engine), CHAT, {**ASKED, "options": {"num_predict": given}})
    request = engine.generations[0].request
    assert (request.max_tokens, request.default_max_tokens) == limits


async def test_defaults_of_the_server_come_before_those_of_ollama() -> None:
    engine = engine_of()
    app = app_of(engine, temperature=0.25, top_k=7)
    await post(app, CHAT, {**ASKED, "options": {"top_k": 3}})
    sampling = engine.generations[0].request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.25, 3, 0.9)


async def test_a_prompt_is_a_chat_with_its_system_message() -> None:
    engine = engine_of(says("a"))
    reply = await post(app_of(engine), GENERATE, {**PROMPT, "system": "Be brief.", "stream": False})
    assert reply.json["response"] == "a"
    text = engine.prompt
    assert "Be brief." in text
    assert text.index("Be brief.") < text.index("Hi")


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [({"raw": True}, "Hi"), ({"suffix": "!"}, Infill("Hi", "!")), ({"raw": True, "suffix": "!"}, Infill("Hi", "!"))],
)
async def test_a_raw_prompt_and_a_suffix_need_no_template(fields: dict[str, Any], prompt: object) -> None:
    engine = engine_of(says("<think>a"))
    reply = await post(app_of(engine), GENERATE, {**PROMPT, **fields, "stream": False, "format": "json"})
    assert reply.json["response"] == "<think>a"
    [generation] = engine.generations
    assert generation.request.prompts == (prompt,)
    assert generation.request.grammar is not None


async def test_without_a_template_a_prompt_is_as_it_is_unless_it_has_a_system_message() -> None:
    engine = engine_of(says("a"))
    engine.model = replace(MODEL, chat_template=None)
    app = app_of(engine)
    plain = await post(app, GENERATE, {**PROMPT, "stream": False, "format": "json"})
    assert plain.json["response"] == "a"
    [generation] = engine.generations
    assert (generation.request.prompts, generation.request.grammar is None) == (("Hi",), False)
    for path, body in ((GENERATE, {**PROMPT, "system": "Be brief."}), (CHAT, ASKED)):
        reply = await post(app, path, body)
        assert (reply.status, "no chat template" in reply.json["error"]) == (400, True)


@pytest.mark.parametrize("raw", [True, False])
async def test_empty_fields_of_ollamas_own_client_are_not_given(raw: bool) -> None:
    engine = engine_of()
    app = app_of(engine, strict_fields=True)
    body = {**PROMPT, "raw": raw, "stream": False}
    empty: dict[str, Any] = {
        "suffix": "",
        "system": "",
        "template": "",
        "context": [],
        "images": [],
        "format": "",
        "options": None,
    }
    for fields in (body, {**body, **empty}):
        assert (await post(app, GENERATE, fields)).status == 200
    first, second = (asked.request.prompts for asked in engine.generations)
    assert first == second


@pytest.mark.parametrize("stream", [True, False])
async def test_calls_are_complete_objects(stream: bool) -> None:
    engine = engine_of(says("a", CALL[:30], CALL[30:], CALL))
    reply = await post(app_of(engine), CHAT, {**ASKED, "tools": [ADD], "stream": stream})
    messages = [line["message"] for line in lines_of(reply)] if stream else [reply.json["message"]]
    calls = [call for one in messages for call in one.get("tool_calls", ())]
    assert [call["function"] for call in calls] == [
        {"index": at, "name": "add", "arguments": {"x": 1}} for at in range(2)
    ]
    assert len({call["id"] for call in calls}) == 2
    assert "".join(one["content"] for one in messages).strip() == "a"


async def test_calls_in_messages_may_have_their_index_and_type_beside_the_function() -> None:
    call = {"index": 0, "type": "function", "id": "call_1", "function": {"name": "add", "arguments": {"x": 1}}}
    messages = [*ASKED["messages"], {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "2"}]
    app = app_of(engine_of(), strict_fields=True)
    assert (await post(app, CHAT, {**ASKED, "messages": messages, "tools": [ADD]})).status == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_is_apart(stream: bool) -> None:
    engine = engine_of(says("so", "</think>yes"))
    engine.model = replace(MODEL, chat_template=templates.THINKING)
    reply = await post(app_of(engine), CHAT, {**ASKED, "think": True, "stream": stream})
    messages = [line["message"] for line in lines_of(reply)] if stream else [reply.json["message"]]
    assert "".join(one.get("thinking", "") for one in messages).strip() == "so"
    assert "".join(one["content"] for one in messages).strip() == "yes"


async def test_log_probabilities_are_beside_their_text() -> None:
    detail = TokenDetail(97, b"a", -0.5, (Alternative(98, b"b", -math.inf),))

    def script(generation: FakeGeneration) -> None:
        generation.put(Text(0, "a", (detail,)), Finished(0, "", FinishReason.STOP, 1, 0))

    reply = await post(app_of(engine_of(script)), CHAT, {**ASKED, "logprobs": True, "top_logprobs": 1})
    first, last = lines_of(reply)
    other = {"token": "b", "logprob": -9999.0, "bytes": [98]}
    assert first["logprobs"] == [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [other]}]
    assert "logprobs" not in last


@pytest.mark.parametrize("stream", [True, False])
async def test_log_probabilities_of_many_tokens_are_sent_in_blocks(stream: bool) -> None:
    """A stream has them in one line where the tokens of a call come together."""
    details = (TokenDetail(97, b"a", -0.5, (Alternative(98, b"b", -1.0),) * 20),) * 200
    engine = engine_of(lambda generation: generation.put(Finished(0, CALL, FinishReason.STOP, 200, 0, details)))
    body = {**ASKED, "stream": stream, "tools": [ADD], "logprobs": True, "top_logprobs": 20}
    reply = await post(app_of(engine), CHAT, body)
    first, *_ = lines_of(reply) if stream else [reply.json]
    assert len(first["logprobs"]) == 200
    assert max(map(len, reply.bodies)) <= 2 * BLOCK


@pytest.mark.parametrize(("path", "body"), [(CHAT, {"model": "tiny"}), (GENERATE, {"model": "tiny"})])
async def test_without_a_prompt_the_model_is_only_loaded(path: str, body: dict[str, Any]) -> None:
    engine = engine_of()
    for keep_alive, reason in ((None, "load"), ("5m", "load"), (0, "unload")):
        reply = await post(app_of(engine), path, {**body, "keep_alive": keep_alive})
        assert (reply.json["done"], reply.json["done_reason"]) == (True, reason)
    assert engine.generations == []


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (CHAT, {}, "model"),
        (CHAT, {**ASKED, "model": "other"}, "other"),
        (CHAT, {**ASKED, "options": {"temperature": "hot"}}, "options.temperature"),
        (CHAT, {**ASKED, "options": {"stop": [""]}}, "options.stop: should have strings of 1 to"),
        (CHAT, {**ASKED, "messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "messages[0].images"),
        (CHAT, {**ASKED, "messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
        (CHAT, {**ASKED, "tools": [ADD, ADD]}, "tools"),
        (CHAT, {**ASKED, "keep_alive": "soon"}, "keep_alive"),
        (CHAT, {**ASKED, "keep_alive": 1e300}, "keep_alive"),
        (CHAT, {**ASKED, "keep_alive": "1000000000000h"}, "keep_alive"),
        (CHAT, {**ASKED, "format": "yaml"}, "format"),
        (GENERATE, {**PROMPT, "images": ["aGk="]}, "images"),
        (GENERATE, {**PROMPT, "context": [1]}, "context"),
        (GENERATE, {**PROMPT, "template": "{{ .Prompt }}"}, "template"),
        (GENERATE, {**PROMPT, "suffix": "a", "system": "b"}, "suffix"),
        (GENERATE, {**PROMPT, "raw": True, "system": "b"}, "raw"),
    ],
)
async def test_a_wrong_field_is_named_in_ollamas_shape(path: str, body: dict[str, Any], words: str) -> None:
    engine = engine_of()
    reply = await post(app_of(engine), path, body)
    assert reply.status in {400, 404}
    assert reply.json.keys() == {"error"}
    assert words in reply.json["error"]
    assert engine.generations == []


async def test_an_error_before_routing_has_ollamas_shape() -> None:
    reply = await AsgiCall(app_of(engine_of()), CHAT, b"", "PUT").run()
    assert (reply.status, orjson.loads(reply.content).keys()) == (405, {"error"})


async def test_a_refusal_of_the_engine_names_ollamas_field() -> None:
    engine = engine_of()
    engine.refusal = RequestError("it is no schema", code="invalid_grammar", param="grammar")
    reply = await post(app_of(engine), CHAT, {**ASKED, "format": {"type": "x"}})
    assert reply.json == {"error": "format: it is no schema"}


async def test_a_failure_in_a_stream_is_its_last_line() -> None:
    engine = engine_of(say_a)
    async with AsgiCall(app_of(engine), CHAT, orjson.dumps(ASKED)).running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("it broke", code="engine_failed"))
    *_, last = call.content.splitlines()
    assert orjson.loads(last) == {"error": "it broke"}
