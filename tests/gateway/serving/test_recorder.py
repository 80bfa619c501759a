"""Records of requests: what they take from the engine, and how they end."""

from contextlib import suppress
from dataclasses import asdict, replace

import pytest

from engine import (
    Busy,
    EmbeddingRequest,
    EngineError,
    EngineFault,
    FinishReason,
    GenerationRequest,
    Ranking,
    RequestError,
    RequestSummary,
    SlowReader,
)
from gateway.middleware.caller import Caller, Cause, Closing
from gateway.middleware.errors import DEADLINE_PASSED, RefusedError
from gateway.serving.recorder import Recorder
from gateway.serving.records import Operation, Outcome, RequestRecord

pytestmark = pytest.mark.anyio

REQUEST = GenerationRequest(id="req_1", prompts=("x",))
SUMMARY = RequestSummary(
    finished=False,
    phase="decode",
    replayed=True,
    accepted_at=1.0,
    started_at=2.0,
    first_token_at=3.0,
    ended_at=4.0,
    release_seconds=0.5,
    prompt_tokens=10,
    cached_tokens=11,
    completion_tokens=12,
    longest_choice=13,
    wasted_tokens=14,
    drafted_tokens=15,
    accepted_draft_tokens=16,
    prefill_seconds=0.6,
    decode_seconds=0.7,
    finish_reasons=(FinishReason.STOP, FinishReason.LENGTH),
)
REFUSED_BY_ENGINE = replace(SUMMARY, accepted_at=None)
FINISHED = replace(SUMMARY, finished=True)


class Cancelled(BaseException):
    """Exception of a cancelled task."""


def recorded(
    error: BaseException | None, summary: RequestSummary | None, cause: Cause | None = None, *, recorder: Recorder
) -> RequestRecord:
    """Return the record of a request that ends by an error, or without one."""
    caller = Caller(request_id="req_1", closing=Closing(cause=cause))
    with (
        suppress(KeyError, EngineError, RefusedError, Cancelled),
        recorder.generation(caller, REQUEST, Operation.CHAT) as recording,
    ):
        if summary is not None:
            recording.summarize(summary)
        if error is not None:
            raise error
    return recording.record


async def test_a_record_has_the_figures_of_the_engine() -> None:
    record = recorded(None, FINISHED, recorder=Recorder("m"))
    figures = {name: value for name, value in asdict(FINISHED).items() if name != "finished"}
    assert {name: getattr(record, name) for name in figures} == {**figures, "finish_reasons": ("stop", "length")}


@pytest.mark.parametrize(("own", "limit"), [(0, 0), (None, 7)])
async def test_a_record_has_what_a_generation_asks_for(own: int | None, limit: int) -> None:
    asked = REQUEST.replaced(n=3, stream=True, max_tokens=own, default_max_tokens=7)
    with Recorder("m").generation(Caller(request_id="req_1"), asked, Operation.CHAT) as recording:
        record = recording.record
    assert (record.stream, record.choices, record.max_tokens) == (True, 3, limit)


@pytest.mark.parametrize(
    ("ranking", "operation"), [(None, Operation.EMBEDDINGS), (Ranking(query="q"), Operation.RERANK)]
)
async def test_a_record_has_what_is_made_of_inputs(ranking: Ranking | None, operation: Operation) -> None:
    asked = EmbeddingRequest(id="req_1", inputs=("a", "b"), ranking=ranking)
    with Recorder("m").embedding(Caller(request_id="req_1"), asked) as recording:
        record = recording.record
    assert (record.operation, record.choices) == (operation, 2)


@pytest.mark.parametrize(
    ("error", "summary", "cause", "end"),
    [
        (None, FINISHED, None, (Outcome.FINISHED, "")),
        (KeyError(), FINISHED, Cause.CLIENT_LEFT, (Outcome.FINISHED, "")),
        (RequestError("no", code="bad"), None, None, (Outcome.REFUSED, "bad")),
        (Busy("full", code="queue_full"), REFUSED_BY_ENGINE, None, (Outcome.REFUSED, "queue_full")),
        (EngineFault("dead", code="engine_died"), REFUSED_BY_ENGINE, None, (Outcome.FAILED, "engine_died")),
        (RequestError("large", code="too_large"), SUMMARY, None, (Outcome.FAILED, "too_large")),
        (Busy("late", code="queue_timeout"), SUMMARY, None, (Outcome.CANCELLED, "queue_timeout")),
        (SlowReader("slow", code="slow_reader"), SUMMARY, None, (Outcome.CANCELLED, "slow_reader")),
        (RefusedError(DEADLINE_PASSED), None, None, (Outcome.REFUSED, "deadline_exceeded")),
        (RefusedError(DEADLINE_PASSED), SUMMARY, None, (Outcome.FAILED, "deadline_exceeded")),
        (KeyError(), SUMMARY, None, (Outcome.FAILED, "internal_error")),
        (KeyError(), SUMMARY, Cause.CLIENT_LEFT, (Outcome.CANCELLED, "client_left")),
        (Cancelled(), SUMMARY, Cause.SHUTDOWN, (Outcome.CANCELLED, "shutdown")),
        (Cancelled(), SUMMARY, None, (Outcome.CANCELLED, "cancelled")),
    ],
)
async def test_a_request_ends_in_one_outcome(
    error: BaseException | None, summary: RequestSummary | None, cause: Cause | None, end: tuple[Outcome, str]
) -> None:
    record = recorded(error, summary, cause, recorder=Recorder("m"))
    assert (record.outcome, record.cause) == end


async def test_a_request_that_the_engine_never_had_ends_in_the_intake() -> None:
    record = recorded(RequestError("no"), None, recorder=Recorder("m"))
    assert (record.phase, record.cause) == ("intake", "RequestError")
    assert record.ended_at >= record.arrived_at > 0


async def test_an_observer_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Outcome | None] = []

    def broken(_record: RequestRecord) -> None:
        raise KeyError

    recorded(None, FINISHED, recorder=Recorder("m", (broken, lambda record: outcomes.append(record.outcome))))
    assert outcomes == [None, Outcome.FINISHED]
    assert caplog.text.count("a record of a request could not be observed") == 2
