"""Generations: the queue, deadlines and streams."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from engine import (
    Alternative,
    Busy,
    EmbeddingRequest,
    Finished,
    FinishReason,
    GenerationRequest,
    HeldPrefix,
    SlowReader,
    Text,
    TokenDetail,
)
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.middleware.caller import Caller, Cause, Closing
from gateway.preparation.preparer import InlinePreparer
from gateway.routing.blocks import BLOCK_BYTES
from gateway.serving.adapters import Adapters
from gateway.serving.generation_source import Encode, GenerationSource
from gateway.serving.generations import Generations, GenerationTerms
from gateway.serving.prefixes import PromptLabels
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder
from gateway.serving.records import Operation
from gateway.serving.served import Served
from tests.backends import ON_VIRTUAL_CLOCK
from tests.gateway.apis.requests import GENERATIONS, LIKE_OPENAI, path_of
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, say_nothing, wait_in_queue

pytestmark = pytest.mark.anyio


def call_of(engine: FakeEngine, name: str, **changes: object) -> AsgiCall:
    return AsgiCall(app_of(engine, **changes), path_of(name), orjson.dumps(GENERATIONS[name]))


@pytest.mark.parametrize("name", LIKE_OPENAI)
async def test_a_request_too_long_in_the_queue_is_a_503(name: str) -> None:
    engine = FakeEngine(wait_in_queue, templates.CHATML)
    call = await call_of(engine, name, queue_timeout=0.001).run()
    assert (call.status, call.json["error"]["code"]) == (503, "queue_timeout")
    assert engine.generations[0].left == "waited in the queue for too long"


def generations_on(engine: FakeEngine, labels: PromptLabels | None = None, **changes: Any) -> Generations:
    terms = GenerationTerms(**{"max_tokens": None, "queue_timeout": 1000, "patience": 1000, **changes})
    recorder, choose = Recorder("m", ()), Adapters((), ()).chosen
    return Generations(engine.as_engine(), recorder, MemoryLimiter(), terms=terms, adapters=choose, labels=labels)


def source_of(engine: FakeEngine, encode: Encode = lambda _prompts, _events: [], **changes: Any) -> GenerationSource:
    """Return the source of a stream."""
    request = GenerationRequest(id="req_1", prompts=("x",), stream=True)
    generations = generations_on(engine, **changes)
    return generations.stream(Caller(request_id="req_1"), request, encode, operation=Operation.CHAT)


async def test_a_request_belongs_to_its_caller_until_the_last_one_with_its_id_has_ended() -> None:
    generations = generations_on(FakeEngine(say_nothing))
    caller, other = (Caller(request_id="req_1", credentials=credentials) for credentials in ("a", "b"))
    request = GenerationRequest(id="req_1", prompts=("x",))
    async with generations.open(caller, request, operation=Operation.CHAT):
        async with generations.open(caller, request, operation=Operation.CHAT):
            assert generations.has_sent(caller, "req_1")
        assert generations.has_sent(caller, "req_1")
        assert not generations.has_sent(other, "req_1")
    assert not generations.has_sent(caller, "req_1")


async def test_a_record_shows_when_the_engine_has_accepted_the_request() -> None:
    shown: list[tuple[bool, bool]] = []
    recorder = Recorder("m", (lambda record: shown.append((record.accepted, record.outcome is not None)),))
    generations = generations_on(FakeEngine(say_nothing)).with_adapters(Adapters((), ()).chosen, recorder)
    request = GenerationRequest(id="req_1", prompts=("x",))
    async with generations.open(Caller(request_id="req_1"), request, operation=Operation.CHAT):
        assert shown == [(False, False), (True, False)]
    assert shown == [(False, False), (True, False), (True, True)]


async def test_a_record_shows_when_the_engine_has_accepted_inputs_to_embed() -> None:
    shown: list[tuple[bool, bool]] = []
    recorder = Recorder("m", (lambda record: shown.append((record.accepted, record.outcome is not None)),))
    engine = FakeEngine()
    served = Served(
        engine.as_engine(),
        "m",
        lambda: "fp",
        prompts=ChatPrompts(engine.as_engine(), None, InlinePreparer()),
        generations=generations_on(engine),
        recorder=recorder,
        limiter=MemoryLimiter(),
    )
    await served.embed(Caller(request_id="req_1"), EmbeddingRequest(id="", inputs=("a",)))
    assert shown == [(False, False), (True, False), (True, True)]


async def test_a_label_has_blocks_once_the_engine_has_accepted_its_request() -> None:
    engine, labels = FakeEngine(say_nothing), PromptLabels("m", b"", lambda: None)
    request = GenerationRequest(id="req_1", prompts=("x" * BLOCK_BYTES,))
    generations = generations_on(engine, labels=labels)
    async with generations.open(Caller(request_id="req_1"), request, operation=Operation.CHAT) as admission:
        label = engine.generations[0].request.label
        assert label is not None
        assert len(labels.blocks(HeldPrefix(label, 0, sum(admission.generation.prompt_tokens)))) == 1


async def test_pieces_are_sent_together_within_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, pauses, paused, rested = FakeEngine(say_nothing), [], anyio.Event(), anyio.Event()

    async def sleep_until(deadline: float) -> None:
        if deadline > 0:
            pauses.append(deadline)
            paused.set()
            await rested.wait()

    async def take_later() -> None:
        taken.append([*await take()])

    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    source = source_of(engine, lambda _prompts, events: [event.text.encode() for event in events], stream_interval=3.0)
    async with source() as take:
        (generation,) = engine.generations
        generation.put(Text(0, "a"))
        before = anyio.current_time()
        taken = [[*await take()]]
        after = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_later)
            await paused.wait()
            generation.put(Text(0, "b"))
            generation.put(Text(0, "c"))
            rested.set()
    assert taken == [[b"a"], [b"b", b"c"]]
    assert before <= pauses[0] - 3.0 <= after


class Taken:
    """A sink that takes everything."""

    ready = True

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def send(self, pieces: Iterable[bytes]) -> None:
        self.pieces += pieces


def as_bytes(_prompts: object, events: Sequence[Text | Finished]) -> list[bytes]:
    return [event.text.encode() for event in events]


async def put_while_it_waits(source: GenerationSource, engine: FakeEngine, sink: Taken, *events: Text) -> list[bytes]:
    """Return what the next take returns, if events come while it waits."""
    taken: list[bytes] = []

    async with source() as events_of:

        async def take() -> None:
            taken.extend(await events_of())

        events_of.pass_on(sink)
        (generation,) = engine.generations
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            generation.put(*events)
            await anyio.wait_all_tasks_blocked()
            generation.put(Finished(0, "", FinishReason.STOP, 2, 0))
    return taken


async def test_events_go_through_the_sink_while_a_task_waits() -> None:
    engine, sink = FakeEngine(say_nothing), Taken()
    few = TokenDetail(1, b"b", -1.0, (Alternative(1, b"b", -1.0),) * 20)
    rest = await put_while_it_waits(source_of(engine, as_bytes), engine, sink, Text(0, "a"), Text(0, "b", (few,)))
    assert (sink.pieces, rest) == ([b"a", b"b"], [b""])


@pytest.mark.parametrize("why", ["an interval", "two tokens", "many alternatives", "a client that does not read"])
async def test_events_wait_for_the_task_with(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sink = FakeEngine(say_nothing), Taken()
    alternatives = (Alternative(1, b"a", -1.0),) * (21 if why == "many alternatives" else 0)
    details = (TokenDetail(1, b"a", -1.0, alternatives),) * (2 if why == "two tokens" else 1)
    source = source_of(engine, as_bytes, stream_interval=1e-9 if why == "an interval" else 0.0)
    monkeypatch.setattr(Taken, "ready", why != "a client that does not read")
    rest = await put_while_it_waits(source, engine, sink, Text(0, "a", details))
    assert sink.pieces == []
    assert rest[0] == b"a"


async def test_an_error_of_the_encoder_is_raised_in_the_task_of_its_request() -> None:
    def encode(_prompts: object, events: Sequence[Text | Finished]) -> Iterator[bytes]:
        yield from (b"%d" % (1 // (len(event.text) - 1)) for event in events)

    async def take() -> None:
        with pytest.raises(ZeroDivisionError):
            await events_of()

    engine = FakeEngine(say_nothing)
    async with source_of(engine, encode)() as events_of:
        events_of.pass_on(Taken())
        (generation,) = engine.generations
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            generation.put(Text(0, "a"))


async def test_a_waiting_stream_tells_its_position_until_it_starts() -> None:
    engine = FakeEngine(wait_in_queue)
    source = source_of(engine)
    assert await source.status() == "", "it is not open"
    async with source() as take:
        (generation,) = engine.generations
        assert await source.status() == "", "the position is unknown"
        generation.place = 12
        assert await source.status() == "queued, position 12"
        generation.start()
        generation.put(Text(0, "a"))
        await take()
        assert await source.status() == ""


@pytest.mark.parametrize("name", [name for name in GENERATIONS if name.startswith(("/v1/chat", "/v1/responses"))])
@pytest.mark.parametrize("default", [None, 7])
async def test_a_request_without_a_limit_has_that_of_the_server(name: str, default: int | None) -> None:
    engine = FakeEngine(chat_template=templates.CHATML)
    call = await post(app_of(engine, max_tokens=default), path_of(name), GENERATIONS[name])
    assert call.status == 200, call.content
    (generation,) = engine.generations
    assert (generation.request.max_tokens, generation.request.default_max_tokens) == (None, default)


async def test_a_request_that_has_left_the_queue_waits_there_no_more() -> None:
    """It may run again on another engine."""
    engine, request = FakeEngine(say_nothing), GenerationRequest(id="req_1", prompts=("x",))
    generations = generations_on(engine, queue_timeout=0.0)
    async with generations.open(Caller(request_id="req_1"), request, operation=Operation.CHAT) as admission:
        assert await admission.granted() is admission.generation
        engine.generations[0].has_started = False
        assert await admission.granted() is admission.generation


@pytest.mark.parametrize("earlier", [None, ("the client left", Cause.CLIENT_LEFT)])
async def test_a_timeout_of_the_queue_has_a_wait_and_hides_no_earlier_reason(earlier: tuple[str, Cause] | None) -> None:
    closing = Closing(*earlier or ())
    engine, request = FakeEngine(wait_in_queue), GenerationRequest(id="req_1", prompts=("x",))
    engine.wait = 7.0
    caller, generations = Caller(request_id="req_1", closing=closing), generations_on(engine, queue_timeout=0.0)
    async with generations.open(caller, request, operation=Operation.CHAT) as admission:
        with pytest.raises(Busy) as caught:
            await admission.granted()
    assert caught.value.retry_after == 7.0
    expected = earlier or ("waited in the queue for too long", Cause.QUEUE_TIMEOUT)
    assert (closing.reason, closing.cause) == expected


@pytest.mark.parametrize("name", LIKE_OPENAI)
async def test_the_queue_timeout_does_not_affect_a_started_request(name: str) -> None:
    engine = FakeEngine(say_nothing, templates.CHATML)
    async with call_of(engine, name, queue_timeout=1e-9).running() as call:
        generation = await engine.first()
        await anyio.wait_all_tasks_blocked()
        generation.put(Finished(0, "a", FinishReason.STOP, 1, 0))
    assert call.status == 200
    assert generation.left is None


@ON_VIRTUAL_CLOCK  # which does not see the work of threads, such as that of chat templates
@pytest.mark.parametrize("name", [name for name in LIKE_OPENAI if "prompt" in GENERATIONS[name]])
async def test_the_total_deadline_is_a_504(name: str) -> None:
    engine = FakeEngine(say_nothing)
    call = await call_of(engine, name, request_timeout=1).run()
    assert (call.status, call.json["error"]["code"]) == (504, "deadline_exceeded")
    assert engine.generations[0].left == "the request's deadline passed"


async def test_client_patience_reaches_the_engine() -> None:
    engine = FakeEngine()
    await post(app_of(engine, client_patience=2.5), "/v1/completions", {"prompt": "x", "stream": True})
    assert engine.patience == 2.5


async def test_a_slow_reader_gets_an_error_event() -> None:
    engine = FakeEngine(lambda generation: generation.put(Text(0, "a")))
    async with call_of(engine, "/v1/completions stream").running() as call:
        await call.sent(1)
        engine.generations[0].fail(SlowReader("Too slow.", code="slow_reader"))
    assert call.complete
    assert b'"code":"slow_reader"' in call.bodies[-1]
    assert b"[DONE]" not in call.content


DEFAULTS = {"temperature": 0.25, "repeat_penalty": 1.5, "stop": ("END",), "n_keep": 4}


@pytest.mark.parametrize("name", LIKE_OPENAI)
async def test_what_a_request_does_not_set_has_the_default_of_the_server(name: str) -> None:
    engine = FakeEngine(chat_template=templates.CHATML)
    app = app_of(engine, **DEFAULTS)
    assert (await post(app, path_of(name), GENERATIONS[name])).status == 200
    own = {"temperature": 1, "repetition_penalty": 1, "stop": [], "n_keep": 0}
    assert (await post(app, path_of(name), GENERATIONS[name] | own)).status == 200
    free, chosen = (generation.request for generation in engine.generations)
    assert (free.sampling.temperature, free.sampling.repeat_penalty, free.stop, free.keep) == (0.25, 1.5, ("END",), 4)
    assert (chosen.sampling.temperature, chosen.sampling.repeat_penalty, chosen.stop, chosen.keep) == (1, 1, (), 0)
    assert free.sampling.top_p == 1.0
