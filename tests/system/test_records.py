"""Records of requests on the whole program: one begin and one end for each, and the counts that its client saw."""

import logging
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest

from engine import EngineState, Supervision
from gateway.serving.records import Operation, Outcome, RequestRecord
from tests.gateway.server.sockets import Client
from tests.program import engines_of
from tests.records import Records
from tests.repeat import TIMES
from tests.system.answers import STREAMED, read_completion, read_error
from tests.system.served import GUARD, LONG_PROMPT, MANY, PASS, Served, completion, post, serving
from tests.system.test_cancellation import cancel_line

pytestmark = pytest.mark.anyio

QUICK_RESTART = Supervision(backoff_first=0.01, stall_timeout=10 * GUARD)


@asynccontextmanager
async def recording(**fields: Any) -> AsyncIterator[tuple[Served, Records]]:
    """Serve, and check on exit that every request has one outcome."""
    records = Records()
    async with serving(**{"seconds_per_pass": PASS, "grace": 0.0, **fields}) as served:
        served.gateway.observers.append(records)
        yield served, records
        await served.connections_fall_to(0)
    records.check()


async def record_of_leaver(
    served: Served, records: Records, state: str, leave: Callable[[Client], None] = Client.close, **body: Any
) -> RequestRecord:
    """Send a request, hang up in a state of its slot, and return its record."""
    client = await served.send(completion("leaver", **body))
    await served.until_in(state, "leaver")
    await served.until(lambda _, metrics: metrics.steps > 2)
    leave(client)
    await served.connections_fall_to(0)
    return records.of("leaver")


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_client_that_left_in_prefill_is_charged_for_what_was_computed(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with recording(slots=2) as (served, records):
        record = await record_of_leaver(served, records, "prefill", prompt=LONG_PROMPT, stream=stream)
        metrics = await served.until_idle()
    assert (record.outcome, record.phase, record.cause) == (Outcome.CANCELLED, "prefill", "client_left")
    assert 0 < record.prompt_tokens < len(LONG_PROMPT)
    assert record.completion_tokens == 0
    assert record.first_token_at is None
    assert record.release_seconds is not None
    assert record.release_seconds >= 0
    assert record.prompt_tokens == metrics.computed_prompt_tokens
    assert record.prompt_tokens + record.wasted_tokens == metrics.prompt_tokens
    line = cancel_line(caplog)
    assert (line["phase"], line["reason"], line["tokens"]) == ("prefill", "client closed the connection", 0)
    assert 0 <= line["freed"] <= len(LONG_PROMPT)


@pytest.mark.parametrize(
    ("stream", "leave", "reason"),
    [(True, Client.reset, "client reset the connection"), (False, Client.close, "client closed the connection")],
    ids=["streaming", "not streaming"],
)
async def test_a_client_that_left_in_decode_is_charged_for_all_choices(
    stream: bool, leave: Callable[[Client], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = {"prompt": "ab", "n": 2, "max_tokens": MANY, "stream": stream}
    async with recording(slots=2) as (served, records):
        record = await record_of_leaver(served, records, "decode", leave, **body)
        metrics = await served.until_idle()
    assert (record.outcome, record.phase, record.cause) == (Outcome.CANCELLED, "decode", "client_left")
    assert (record.prompt_tokens, record.choices) == (2, 2)
    assert record.completion_tokens == metrics.generated_tokens > 0
    assert record.first_token_at is not None
    line = cancel_line(caplog)
    assert (line["request_id"], line["phase"], line["reason"]) == ("leaver", "decode", reason)
    assert line["tokens"] >= 1
    assert line["freed"] >= len("ab")


async def test_tokens_of_the_running_step_are_wasted() -> None:
    """Of two streams in one step one leaves: the step runs to its end for the other."""
    async with recording(slots=2, seconds_per_pass=0.05) as (served, records):
        stays = await served.send(completion("stays", max_tokens=MANY, stream=True))
        await stays.see(b'"text":"')
        wasted = 0
        for number in range(20):
            client = await served.send(completion(f"leaves-{number}", max_tokens=MANY, stream=True))
            await client.see(b'"text":"')
            client.close()
            await served.connections_fall_to(1)
            wasted = records.of(f"leaves-{number}").wasted_tokens
            if wasted:
                break
        stays.close()
    assert wasted == 1


async def test_a_client_that_left_the_queue_is_charged_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with recording(slots=1) as (served, records):
        holder = await served.send(completion("holds", max_tokens=MANY, stream=True))
        await served.until_in("decode", "holds")
        waiter = await served.send(completion("leaver", max_tokens=5))
        await served.until(lambda _, metrics: metrics.waiting == 1)
        waiter.close()
        await served.connections_fall_to(1)
        record, line = records.of("leaver"), cancel_line(caplog)
        holder.close()
    assert (record.outcome, record.phase, record.cause) == (Outcome.CANCELLED, "queued", "client_left")
    assert (record.prompt_tokens, record.completion_tokens, record.wasted_tokens) == (0, 0, 0)
    assert record.started_at is None
    assert (line["request_id"], line["phase"], line["reason"]) == ("leaver", "queued", "client closed the connection")
    assert (line["tokens"], line["freed"]) == (0, 0)


BODIES: dict[str, dict[str, Any]] = {
    "one": {"prompt": "Once upon a time", "max_tokens": 7},
    "several choices": {"prompt": ["Once", "upon a"], "n": 3, "max_tokens": 5},
    "stop string": {"prompt": "Once", "max_tokens": 50, "stop": ["e"]},
    "speculation": {"prompt": "la la la la la la", "max_tokens": 20, "speculative": True},
}


@pytest.mark.parametrize("extra", [{}, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", BODIES)
async def test_the_counts_are_those_that_the_client_got(name: str, extra: dict[str, Any]) -> None:
    async with recording(slots=2, seconds_per_pass=0.0) as (served, records):
        for turn in range(2):  # the second finds its prompt in the cache
            answer = await served.answer(completion(f"{turn}", **BODIES[name], **extra))
            completed, record = read_completion(answer), records.of(f"{turn}")
            assert (record.outcome, record.phase, record.cause) == (Outcome.FINISHED, "done", "")
            usage = completed.usage
            assert record.prompt_tokens == usage["prompt_tokens"]
            assert record.completion_tokens == usage["completion_tokens"]
            assert record.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
            details = usage["completion_tokens_details"]
            assert record.accepted_draft_tokens == details["accepted_prediction_tokens"]
            assert record.drafted_tokens - record.accepted_draft_tokens == details["rejected_prediction_tokens"]
            assert record.finish_reasons == tuple(choice.reason for choice in completed.choices)
            assert record.first_token_at is not None
            assert (record.stream, record.operation) == (bool(extra), Operation.TEXT_COMPLETION)
        metrics = await served.until_idle()
    ended = [record for record in records.ended if record.caller.request_id in "01"]
    assert metrics.generated_tokens == sum(record.completion_tokens for record in ended)


async def test_embeddings_are_recorded() -> None:
    async with recording() as (served, records):
        answer = await served.answer(post("vectors", "/v1/embeddings", model="default", input=["ab", "c"]))
        assert answer.status == 200
    record = records.of("vectors")
    assert (record.outcome, record.operation, record.choices) == (Outcome.FINISHED, Operation.EMBEDDINGS, 2)
    assert record.prompt_tokens == orjson.loads(answer.body)["usage"]["prompt_tokens"]


async def test_a_client_that_left_its_embeddings_is_charged_for_what_was_computed() -> None:
    texts = ["x" * 4000] * 400
    async with recording() as (served, records):
        client = await served.send(post("leaver", "/v1/embeddings", model="default", input=texts))
        await served.until(lambda _, metrics: metrics.embedding_tokens > 0)
        client.close()
        await served.connections_fall_to(0)
        metrics = await served.metrics()
    record = records.of("leaver")
    assert (record.outcome, record.phase, record.cause) == (Outcome.CANCELLED, "embedding", "client_left")
    assert record.prompt_tokens + record.wasted_tokens == metrics.embedding_tokens


async def test_a_refusal_is_recorded() -> None:
    async with recording(slots=1, context=64) as (served, records):
        answer = await served.answer(completion("long", prompt="x" * 100))
    record = records.of("long")
    assert (answer.status, record.outcome, record.phase) == (400, Outcome.REFUSED, "intake")
    assert record.cause == read_error(answer)["code"] == "context_length_exceeded"


async def test_a_full_queue_is_recorded() -> None:
    async with recording(slots=1, queue_limit=1) as (served, records):
        runs = await served.send(completion("runs", max_tokens=MANY))
        await served.until_in("decode", "runs")
        waits = await served.send(completion("waits", max_tokens=MANY))
        await served.until(lambda _, metrics: metrics.waiting == 1)
        assert (await served.answer(completion("full"))).status == 429
        record = records.of("full")
        runs.close()
        waits.close()
    assert (record.outcome, record.cause) == (Outcome.REFUSED, "queue_full")


async def test_a_deadline_is_recorded() -> None:
    """It may come in the queue or later: the first request has the same deadline."""
    async with recording(slots=1, request_timeout=0.2) as (served, records):
        client = await served.send(completion("holds", max_tokens=MANY, stream=True))
        assert (await served.answer(completion("late", max_tokens=MANY))).status >= 500
        client.close()
    assert (records.of("late").outcome, records.of("late").cause) == (Outcome.CANCELLED, "deadline")


async def test_a_wait_in_the_queue_that_is_too_long_is_recorded() -> None:
    async with recording(slots=1, queue_timeout=0.2) as (served, records), served.slot_in_use():
        assert (await served.answer(completion("late", max_tokens=5))).status >= 500
    assert (records.of("late").outcome, records.of("late").cause) == (Outcome.CANCELLED, "queue_timeout")


async def test_a_slow_reader_is_recorded() -> None:
    async with recording(client_patience=0.1, alias="x" * 40_000) as (served, records):
        client = await served.send(completion("slow", max_tokens=MANY, stream=True), receive_buffer=4096)
        with anyio.fail_after(GUARD):
            await records.has_ended.wait()
        client.close()
    assert (records.of("slow").outcome, records.of("slow").cause) == (Outcome.CANCELLED, "slow_reader")


async def test_a_shutdown_is_recorded() -> None:
    async with recording() as (served, records):
        client = await served.send(completion("open", max_tokens=MANY, stream=True))
        await client.see(b'"text":"')
        served.shutdown.set()
        await client.see(b"shutting_down")
        client.close()
    assert (records.of("open").outcome, records.of("open").cause) == (Outcome.CANCELLED, "shutdown")


async def test_a_death_of_the_engine_fails_or_replays_each_request() -> None:
    async with recording(slots=2, supervision=QUICK_RESTART) as (served, records):
        shown = await served.send(completion("shown", max_tokens=MANY, stream=True))
        await shown.see(b'"text":"')
        unread = await served.send(completion("unread", max_tokens=30))
        await served.until_in("decode", "unread")
        os.kill(served.engine_pid, signal.SIGKILL)
        assert b"engine_died" in (await shown.answer()).body
        assert read_completion(await unread.answer()).usage["completion_tokens"] == 30
        shown.close()
        unread.close()
    failed, replayed = records.of("shown"), records.of("unread")
    assert (failed.outcome, failed.phase, failed.cause) == (Outcome.FAILED, "decode", "engine_died")
    assert (replayed.outcome, replayed.replayed, replayed.completion_tokens) == (Outcome.FINISHED, True, 30)


async def test_an_observer_that_raises_harms_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_record: RequestRecord) -> None:
        raise ValueError("broken observer")

    async with serving(seconds_per_pass=0.0) as served:
        records = Records()
        served.gateway.observers.extend([fail, records])
        assert (await served.answer(completion("ask", max_tokens=3))).status == 200
    records.check()
    assert [line.exc_info is not None for line in caplog.records if "observed" in line.message] == [True] * 3


class Crowd:
    """Clients that do as they like; some kill the engine."""

    def __init__(self, served: Served, seed: object) -> None:
        self._served = served
        self._chance = random.Random(f"{seed}")

    async def run(self, number: int) -> None:
        for turn in range(4):
            client = self._served.client(receive_buffer=4096)
            await client.send(self._request(f"{number}-{turn}"))
            await self._act(client)
            client.close()

    async def _act(self, client: Client) -> None:
        match self._chance.choice(["stay", "stay", "leave", "leave", "kill"]):
            case "stay":
                with anyio.move_on_after(GUARD):
                    await client.answer()
            case "leave":
                await anyio.sleep(self._chance.choice([0, 0.001, 0.01, 0.05]))
            case "kill" if self._served.engine.status.state is EngineState.READY:
                for pid in engines_of(os.getpid()):  # none if another client was quicker
                    os.kill(pid, signal.SIGKILL)

    def _request(self, request_id: str) -> bytes:
        prompt = "x" * self._chance.choice([1, 10, 3000, 9000])
        if self._chance.random() < 0.2:
            return post(request_id, "/v1/embeddings", model="default", input=[prompt] * 3)
        fields: dict[str, Any] = {"n": self._chance.choice([1, 1, 3]), "max_tokens": self._chance.choice([0, 1, 20])}
        return completion(request_id, prompt=prompt, stream=self._chance.random() < 0.5, **fields)


@pytest.mark.repeated
@pytest.mark.parametrize("seed", range(TIMES))
async def test_each_of_many_random_requests_begins_once_and_ends_once(seed: int) -> None:
    fields = {"slots": 3, "queue_limit": 4, "context": 8192, "seconds_per_pass": 0.003}
    async with recording(**fields, supervision=QUICK_RESTART) as (served, records):
        crowd = Crowd(served, seed)
        async with anyio.create_task_group() as clients:
            for number in range(8):
                clients.start_soon(crowd.run, number)
        await served.connections_fall_to(0)
    assert {record.outcome for record in records.ended} >= {Outcome.FINISHED, Outcome.CANCELLED}
