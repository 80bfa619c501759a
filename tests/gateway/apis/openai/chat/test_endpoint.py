"""`POST /v1/chat/completions` without a model: bytes in, bytes out."""

import gc
from collections.abc import Sequence
from threading import Event
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import orjson
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from engine import (
    Alternative,
    EngineFault,
    Finished,
    FinishReason,
    Grammar,
    GrammarKind,
    PromptProgress,
    RequestError,
    Text,
    TokenDetail,
)
from gateway.apis.openai.chat.call import ChatCall
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, Script, echo

pytestmark = pytest.mark.anyio

PATH = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "Hi"}]
ADD = {"type": "function", "function": {"name": "add"}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'
USAGE = {
    "prompt_tokens": 52,
    "completion_tokens": 3,
    "total_tokens": 55,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def engine_of(script: Script = echo, template: str | None = templates.CHATML) -> FakeEngine:
    return FakeEngine(script, template)


def says(*pieces: str, reason: FinishReason = FinishReason.STOP) -> Script:
    """Return a script that answers each choice with these pieces, three tokens in all."""

    def script(generation: FakeGeneration) -> None:
        for choice in range(generation.request.n):
            if generation.request.stream:
                generation.put(*(Text(choice, piece) for piece in pieces), Finished(choice, "", reason, 3, 1))
            else:
                generation.put(Finished(choice, "".join(pieces), reason, 3, 1))

    return script


async def ask(script: Script, template: str = templates.CHATML, **fields: Any) -> Any:
    """Return the choices of a whole answer, or the chunks of a stream."""
    reply = await post(app_of(engine_of(script, template)), PATH, {"messages": ASKED, **fields})
    assert reply.status == 200, reply.content
    return reply.chunks if fields.get("stream") else reply.json["choices"]


def deltas(chunks: Sequence[Any]) -> list[Any]:
    return [chunk["choices"][0]["delta"] for chunk in chunks]


async def test_a_whole_answer_has_openais_shape() -> None:
    engine = engine_of()
    reply = await post(app_of(engine), PATH, {"messages": ASKED, "n": 2}, x_request_id="mine")
    answer = reply.json
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer.pop("system_fingerprint").startswith("fp_")
    assert answer == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": f"a{index}", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
            for index in range(2)
        ],
        "usage": {**USAGE, "completion_tokens": 6, "total_tokens": 58},
    }
    request = engine.generations[0].request
    assert (request.id, request.stream, request.max_tokens) == ("mine", False, None)
    assert request.prompts == ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",)


async def test_a_stream_has_exactly_these_bytes() -> None:
    body = {"messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
    reply = await post(app_of(engine_of()), PATH, body)
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    head = reply.content.partition(b',"choices"')[0]
    fields = orjson.loads(head.removeprefix(b"data: ") + b"}")
    assert list(fields) == ["id", "object", "created", "model", "system_fingerprint"]
    assert fields["object"] == "chat.completion.chunk"
    chunks = [
        (b'{"role":"assistant","content":""}', b"null"),
        (b'{"content":"a"}', b"null"),
        (b'{"content":"0"}', b"null"),
        (b"{}", b'"stop","stop_reason":null'),
    ]
    expected = b"".join(
        head
        + b',"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}],"usage":null}\n\n' % (delta, reason)
        for delta, reason in chunks
    )
    usage = orjson.dumps(USAGE)
    assert reply.content == expected + head + b',"choices":[],"usage":%b}\n\ndata: [DONE]\n\n' % usage


async def test_ready_events_are_sent_together() -> None:
    reply = await post(app_of(engine_of()), PATH, {"messages": ASKED, "n": 16, "stream": True})
    assert len(reply.bodies) == 2
    chunks = reply.chunks
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    for index in range(16):
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert [choice["delta"] for choice in mine] == [
            {"role": "assistant", "content": ""},
            {"content": "a"},
            {"content": str(index)},
            {},
        ]


async def test_all_choices_begin_before_one_of_them_ends() -> None:
    """A choice that waits for a slot has begun, too. OpenAI's client for Java would fail at its first chunk."""

    def script(generation: FakeGeneration) -> None:
        for choice in range(3):
            generation.put(Finished(choice, "a", FinishReason.STOP, 3, 1))

    parts = [chunk["choices"][0] for chunk in await ask(script, n=3, stream=True)]
    assert [part["index"] for part in parts[:3]] == [0, 1, 2]
    assert all("role" in part["delta"] for part in parts[:3])
    assert not any("role" in part["delta"] for part in parts[3:])


async def test_choices_begin_in_their_order_whichever_has_text_first() -> None:
    def script(generation: FakeGeneration) -> None:
        generation.put(*(Text(choice, f"a{choice}") for choice in (2, 1, 0)))
        generation.put(*(Finished(choice, "", FinishReason.STOP, 3, 1) for choice in (0, 1, 2)))

    chunks = await ask(script, n=3, stream=True)
    roles = [chunk["choices"][0]["index"] for chunk in chunks if "role" in chunk["choices"][0]["delta"]]
    assert roles == [0, 1, 2]
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    choices = state.get_final_completion().choices
    assert [(choice.index, choice.message.content) for choice in choices] == [(0, "a0"), (1, "a1"), (2, "a2")]


async def test_the_usage_of_all_choices_follows_the_last_one() -> None:
    *others, last = await ask(echo, n=3, stream=True, stream_options={"include_usage": True})
    assert {chunk["usage"] for chunk in others} == {None}
    assert last["usage"]["completion_tokens"] == 9


async def test_each_chunk_has_the_usage_until_now_of_its_choice() -> None:
    def script(generation: FakeGeneration) -> None:
        assert generation.request.token_ids
        for choice in range(2):
            generation.put(
                Text(choice, "", progress=PromptProgress(52, 0, 52, 0.5)),
                Text(choice, "a", (TokenDetail(1, b"a"),)),
                Text(choice, "bc", (TokenDetail(2, b"b"), TokenDetail(3, b"c"))),
                Finished(choice, "", FinishReason.STOP, 4, 1),
            )

    options = {"continuous_usage_stats": True}
    chunks = await ask(script, n=2, stream=True, return_progress=True, stream_options=options)
    usages = [chunk["usage"] for chunk in chunks]
    assert [usage["completion_tokens"] for usage in usages] == [0, 0, *[0, 1, 3, 4] * 2]
    assert usages[-1] == {"prompt_tokens": 52, "completion_tokens": 4, "total_tokens": 56}


async def test_a_tool_call_is_returned_in_the_message() -> None:
    (choice,) = await ask(says(CALL), tools=[ADD])
    message = choice["message"]
    (call,) = message.pop("tool_calls")
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    assert message == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"


async def test_tool_calls_are_streamed() -> None:
    text = f"I add.\n{CALL}\n{CALL}"
    chunks = await ask(says(*text), tools=[ADD], stream=True)
    role, *shown, end = deltas(chunks)
    assert role == {"role": "assistant", "content": ""}
    assert end == {}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert "".join(delta.pop("content", "") for delta in shown) == "I add."
    calls = [delta["tool_calls"][0] for delta in shown if delta]
    assert [call["index"] for call in calls] == sorted(call["index"] for call in calls)
    ids = set()
    for index in (0, 1):
        first, *rest = [call for call in calls if call["index"] == index]
        ids.add(first.pop("id"))
        assert first == {"index": index, "type": "function", "function": {"name": "add", "arguments": ""}}
        assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in rest)
        assert "".join(call["function"]["arguments"] for call in rest) == '{"x": 1}'
    assert len(ids) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_the_finish_reason_of_a_cut_call_is_length(stream: bool) -> None:
    *_, last = await ask(says(CALL, reason=FinishReason.LENGTH), tools=[ADD], stream=stream)
    assert (last["choices"][0] if stream else last)["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CALL[: CALL.index("1")], "stop"),
        (f"{CALL}\n{CALL[: CALL.index('1')]}", "stop"),
        (CALL.removesuffix("}\n</tool_call>"), "tool_calls"),
        (CALL.replace("1", "1, y"), "stop"),
        (f"{CALL.replace('1', '1, y')}\n{CALL}", "stop"),
    ],
)
async def test_a_call_whose_arguments_are_not_whole_is_no_reason_to_call(text: str, reason: str, stream: bool) -> None:
    *_, last = await ask(says(text), tools=[ADD], stream=stream)
    assert (last["choices"][0] if stream else last)["finish_reason"] == reason


@pytest.mark.parametrize("stream", [False, True])
async def test_only_the_first_call_counts_without_parallel_calls(stream: bool) -> None:
    text = f"{CALL}\n{CALL[: CALL.index('1')]}"
    *_, last = await ask(says(text), tools=[ADD], parallel_tool_calls=False, stream=stream)
    assert (last["choices"][0] if stream else last)["finish_reason"] == "tool_calls"


async def test_a_deprecated_function_request_gets_a_function_call() -> None:
    functions = [{"name": "add"}]
    (plain,) = await ask(says("Hi"), functions=functions)
    assert (plain["message"]["content"], plain["finish_reason"]) == ("Hi", "stop")
    (choice,) = await ask(says(CALL), functions=functions)
    called = {"name": "add", "arguments": '{"x": 1}'}
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "function_call": called}
    assert choice["finish_reason"] == "function_call"
    chunks = await ask(says(CALL, CALL), functions=functions, stream=True)
    _role, first, *rest, _end = [delta.get("function_call") for delta in deltas(chunks)]
    assert first == {"name": "add", "arguments": ""}
    assert "".join(part["arguments"] for part in rest) == '{"x": 1}'
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"


async def test_reasoning_is_separate_from_content() -> None:
    text = "Hm.\n</think>\n\nWell."
    (choice,) = await ask(says(text), templates.THINKING)
    assert choice["message"] == {"role": "assistant", "content": "Well.", "refusal": None, "reasoning_content": "Hm."}
    shown = deltas(await ask(says(*text), templates.THINKING, stream=True))
    assert "".join(delta.get("reasoning_content", "") for delta in shown) == "Hm."
    assert "".join(delta.get("content", "") for delta in shown) == "Well."
    assert all(len(delta) <= 1 for delta in shown[1:])


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("none", {"content": "<think>Hm.</think>Well."}),
        ("auto", {"content": "Well.", "reasoning_content": "Hm."}),
        ("deepseek", {"content": "Well.", "reasoning_content": "Hm."}),
    ],
)
async def test_the_reasoning_stays_in_the_content_if_the_request_wants_that(form: str, message: dict[str, str]) -> None:
    thinking = says("Hm", ".</think>", "Well.")
    (choice,) = await ask(thinking, templates.THINKING, reasoning_format=form)
    assert choice["message"] == {"role": "assistant", "refusal": None, **message}
    shown = deltas(await ask(thinking, templates.THINKING, reasoning_format=form, stream=True))
    for name in ("content", "reasoning_content"):
        assert "".join(delta.get(name) or "" for delta in shown) == message.get(name, "")


async def test_cut_reasoning_is_not_content() -> None:
    (choice,) = await ask(says("Hm.", reason=FinishReason.LENGTH), templates.THINKING)
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "Hm.")


def with_details(generation: FakeGeneration) -> None:
    details = [TokenDetail(at, piece, -0.5, (Alternative(at, piece, -0.5),)) for at, piece in enumerate((b"<", b"a>"))]
    if generation.request.stream:
        generation.put(Text(0, "<", (details[0],)), Text(0, "a>", (details[1],)))
        generation.put(Finished(0, "", FinishReason.STOP, 3, 0))
    else:
        generation.put(Finished(0, "<a>", FinishReason.STOP, 3, 0, tuple(details)))


async def test_logprobs_and_ids_are_the_same_streamed_or_not() -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True, "tools": [ADD]}
    (whole,) = await ask(with_details, **fields)
    chunks = [chunk["choices"][0] for chunk in await ask(with_details, **fields, stream=True)]
    assert [token["token"] for token in whole["logprobs"]["content"]] == ["<", "a>"]
    streamed = [token for chunk in chunks if chunk["logprobs"] for token in chunk["logprobs"]["content"]]
    assert streamed == whole["logprobs"]["content"]
    assert whole["token_ids"] == [0, 1]
    assert [token for chunk in chunks for token in chunk["token_ids"]] == [0, 1]
    assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[0]["logprobs"] is None


async def test_the_prompts_token_ids_are_sent_once() -> None:
    engine = engine_of(with_details)
    body = {"messages": ASKED, "return_token_ids": True, "n": 1}
    whole = (await post(app_of(engine), PATH, body)).json
    first, *others = (await post(app_of(engine), PATH, {**body, "stream": True})).chunks
    assert first["prompt_token_ids"] == whole["prompt_token_ids"] != []
    assert all("prompt_token_ids" not in chunk for chunk in others)
    assert not any(chunk["choices"][0]["logprobs"] for chunk in others)


@pytest.mark.parametrize(("path", "fields"), [(PATH, {"return_token_ids": True}), (f"{PATH}/input_tokens", {})])
async def test_a_refusal_of_the_prompts_text_names_the_messages(path: str, fields: dict[str, Any]) -> None:
    engine = engine_of()
    engine.refusal = RequestError("No.", code="invalid", param="content")
    reply = await post(app_of(engine), path, {"messages": ASKED, **fields})
    assert (reply.status, reply.json["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize("usage", [False, True])
async def test_timings_are_in_the_last_chunk(usage: bool) -> None:
    body = {"messages": ASKED, "timings": True}
    whole = (await post(app_of(engine_of()), PATH, body)).json
    stream = {**body, "stream": True, "stream_options": {"include_usage": usage}}
    *others, last = (await post(app_of(engine_of()), PATH, stream)).chunks
    assert whole["timings"]["predicted_n"] == last["timings"]["predicted_n"] == 3
    assert all("timings" not in chunk for chunk in others)
    assert bool(last["choices"]) is not usage


async def test_every_service_tier_is_the_default_one() -> None:
    reply = await post(app_of(engine_of()), PATH, {"messages": ASKED, "service_tier": "flex"})
    assert reply.json["service_tier"] == "default"


async def test_the_grammar_of_the_answer_reaches_the_engine() -> None:
    engine = engine_of()
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 1}}}
    await post(app_of(engine), PATH, {"messages": ASKED, "response_format": schema})
    assert engine.generations[0].request.grammar == Grammar(GrammarKind.JSON_SCHEMA, '{"const":1}')


@pytest.mark.parametrize(
    ("param", "fields", "name"),
    [
        ("prompt", {}, "messages"),
        ("max_tokens", {"max_completion_tokens": 5}, "max_completion_tokens"),
        ("max_tokens", {"max_tokens": 5}, "max_tokens"),
        ("grammar", {"response_format": {"type": "json_object"}}, "response_format"),
        ("grammar", {"tools": [ADD], "tool_choice": "required"}, "tools"),
    ],
)
async def test_the_engines_refusal_names_the_clients_field(param: str, fields: dict[str, Any], name: str) -> None:
    engine = engine_of()
    engine.refusal = RequestError("No.", code="no", param=param)
    reply = await post(app_of(engine), PATH, {"messages": ASKED, **fields})
    assert (reply.status, reply.json["error"]["param"]) == (400, name)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_of_the_template_has_its_own_message(stream: bool) -> None:
    engine = engine_of(template="{{ raise_exception('Be polite.') }}")
    reply = await post(app_of(engine), PATH, {"messages": ASKED, "stream": stream})
    assert (reply.status, reply.json["error"]) == (
        400,
        {
            "message": "Be polite.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "chat_template_refused",
        },
    )
    assert not engine.generations


async def test_a_model_without_a_template_is_refused_unless_one_is_configured() -> None:
    reply = await post(app_of(engine_of(template=None)), PATH, {"messages": ASKED})
    assert (reply.status, reply.json["error"]["code"]) == (400, "chat_template_missing")
    app = app_of(engine_of(template=None), chat_template="{{ messages[0].content }}")
    assert (await post(app, PATH, {"messages": ASKED})).status == 200


async def test_a_chat_before_the_model_is_loaded_is_unavailable() -> None:
    engine = engine_of()
    engine.model = None
    reply = await post(app_of(engine), PATH, {"messages": ASKED})
    assert (reply.status, reply.json["error"]["code"]) == (503, "engine_unavailable")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "messages"),
        (b'{"messages":[]}', "messages"),
        (b'{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}', "messages[0].content[0]"),
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}', None),
        (b'{"messages":[{"role":"user","content":"x"}],"tools":[{}]}', "tools[0].type"),
        (b'{"messages":[{"role":"user","content":"x"}],"n":0}', "n"),
    ],
)
async def test_an_invalid_body_is_a_400(body: bytes, param: str | None) -> None:
    engine = engine_of()
    reply = await post(app_of(engine), PATH, body)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert not engine.generations


async def test_an_unknown_model_is_a_404() -> None:
    reply = await post(app_of(engine_of()), PATH, {"messages": ASKED, "model": "gpt-4"})
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_unknown_fields_at_any_depth_are_reported() -> None:
    body = {"messages": [{"role": "user", "content": "Hi", "weight": 1}], "top_a": 1}
    reply = await post(app_of(engine_of()), PATH, body)
    assert reply.header("x-llama-gateway-ignored") == "top_a, messages.weight"
    strict = await post(app_of(engine_of(), strict_fields=True), PATH, body)
    assert (strict.status, strict.json["error"]["param"]) == (400, "top_a")


async def test_fields_that_agents_of_the_sdk_add_to_answers_are_known() -> None:
    """OpenAI's agents for JavaScript send a streamed answer back with annotations of its part."""
    parts = [{"type": "text", "text": "Hello", "annotations": []}]
    messages = [*ASKED, {"role": "assistant", "content": parts, "refusal": None}, *ASKED]
    assert (await post(app_of(engine_of(), strict_fields=True), PATH, {"messages": messages})).status == 200


async def test_breakpoints_of_the_cache_are_known() -> None:
    marked = {"type": "text", "text": "Hello", "prompt_cache_breakpoint": {"mode": "explicit"}}
    body = {"messages": [{"role": "user", "content": [marked]}], "prompt_cache_options": {"mode": "explicit"}}
    assert (await post(app_of(engine_of(), strict_fields=True), PATH, body)).status == 200


async def test_a_failure_in_a_stream_is_an_error_event_without_a_clean_end() -> None:
    engine = engine_of(lambda generation: generation.put(Text(0, "a")))
    async with AsgiCall(app_of(engine), PATH, orjson.dumps({"messages": ASKED, "stream": True})).running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    error = b'{"error":{"message":"Dead.","type":"server_error","param":null,"code":"engine_died"}}'
    assert call.content.endswith(b"data: " + error + b"\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_is_dropped_once_the_engine_has_the_prompt(stream: bool) -> None:
    engine = engine_of(lambda generation: generation.put(Text(0, "a")) if generation.request.stream else None)
    async with AsgiCall(app_of(engine), PATH, orjson.dumps({"messages": ASKED, "stream": stream})).running() as call:
        await engine.first()
        gc.collect()
        assert not [found for found in gc.get_objects() if isinstance(found, ChatCall)]
        call.hang_up()


async def test_a_slow_template_blocks_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request can be cancelled, and others are answered meanwhile."""
    render, begun, may_end = ChatModel.prompt, Event(), Event()

    def slow(chat: ChatModel, conversation: Conversation) -> ChatPrompt:
        if conversation.messages[0]["content"] == "slow":
            begun.set()
            assert may_end.wait(20)
        return render(chat, conversation)

    monkeypatch.setattr(ChatModel, "prompt", slow)
    app = app_of(engine_of())
    waits = AsgiCall(app, PATH, orjson.dumps({"messages": [{"role": "user", "content": "slow"}]}))
    try:
        async with waits.running():
            assert await anyio.to_thread.run_sync(begun.wait, 20)
            assert (await post(app, PATH, {"messages": ASKED})).status == 200
            waits.hang_up()
    finally:
        may_end.set()
    assert waits.start is None
