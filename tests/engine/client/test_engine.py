"""Requests over real pipes: the messages sent, and the results."""

import logging
import re

import anyio
import pytest

from engine import (
    Busy,
    EngineFault,
    EngineState,
    Finished,
    GenerationRequest,
    RequestError,
    Sampling,
    SlowReader,
    Text,
    Unavailable,
)
from engine.client.measurements.summary import RequestSummary
from tests.engine.client.harness import Scripted, ask, text

pytestmark = pytest.mark.anyio


async def test_a_request_gives_its_text(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        said = await text(engine, "accept; start; say one; say two; finish")
        assert said == "onetwo"
        assert await scripted.saw(engine, "cancel") == 0


async def test_accepted_reports_the_length_of_the_prompts(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; finish")) as generation:
        assert generation.prompt_tokens == (7,)


async def test_choices_that_do_not_stream_come_together_and_in_order(scripted: Scripted) -> None:
    request = ask("accept; start; finish 2; finish 0; finish 1", n=3, stream=False)
    async with scripted.open() as engine, engine.generate(request) as generation:
        outcomes = await generation.outcomes()
    assert [outcome.choice for outcome in outcomes] == [0, 1, 2]


async def test_a_request_with_all_its_fields_arrives(scripted: Scripted) -> None:
    request = GenerationRequest(
        id="r",
        prompts=("accept; finish; finish 1; finish 2; finish 3", (1, 2, 3)),
        n=2,
        max_tokens=3,
        stop=("\n", "ü"),
        sampling=Sampling(seed=2**32 - 1, logit_bias=((1, -100.0),)),
    )
    async with scripted.open() as engine, engine.generate(request) as generation:
        assert len(await generation.outcomes()) == 4


async def test_started_waits_for_the_slot_and_no_longer(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; wait; start; wait")) as generation:
        assert await text(engine, "accept; resume; finish") == ""
        await generation.started()
        await generation.started()


async def test_started_returns_for_a_request_that_has_ended(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; finish")) as generation:
        await generation.started()
        (event,) = await generation.take()
        assert isinstance(event, Finished)


async def test_events_are_kept_until_they_are_taken(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; say a; wait; say b; finish")) as generation:
        assert [event.text for event in await generation.take()] == ["a"]
        await text(engine, "accept; resume; finish")
        assert [type(event) for event in await generation.take()] == [Text, Finished]
        assert await generation.take() == []


@pytest.mark.parametrize("fault", [RequestError, Busy, Unavailable, EngineFault])
async def test_a_refusal_is_raised_on_entering(scripted: Scripted, fault: type[Exception]) -> None:
    async with scripted.open() as engine:
        with pytest.raises(fault, match="refused as asked"):
            await text(engine, f"refuse {fault.__name__}")
        assert await scripted.saw(engine, "cancel") == 0


async def test_a_failure_is_raised_after_the_text_before_it(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; wait; say a; fail")) as generation:
            await text(engine, "accept; resume; finish")
            assert [event.text for event in await generation.take()] == ["a"]
            with pytest.raises(EngineFault, match="failed as asked"):
                await generation.take()
        assert await scripted.saw(engine, "cancel") == 0


async def test_a_request_that_no_frame_can_carry_is_refused_without_harm_to_others(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        with pytest.raises(RequestError, match="surrogates"):
            await text(engine, "\ud800")
        assert await text(engine, "accept; say well; finish") == "well"


async def test_concurrent_requests_each_get_their_own_answer(scripted: Scripted) -> None:
    said: dict[int, str] = {}

    async def one(number: int) -> None:
        said[number] = await text(engine, f"accept; start; say a{number}; wait; say b{number}; finish")

    async with scripted.open() as engine, anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(one, number)
        while len(said) < 32:
            await text(engine, "accept; resume; finish")
    assert said == {number: f"a{number}b{number}" for number in range(32)}


async def test_a_long_prompt_crosses_the_pipe(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        request = GenerationRequest(id="r", prompts=("accept; finish; finish 1", "x" * 3_000_000))
        async with engine.generate(request) as generation:
            assert len(await generation.outcomes()) == 2


async def test_slots_are_reported_while_a_request_runs(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; start; wait")):
        slots, metrics = await engine.inspect()
        assert [slot.id for slot in slots] == [0]
        assert metrics.held == 1
        assert engine.metrics == metrics


async def test_an_engine_that_does_not_report_its_slots_is_unavailable(scripted: Scripted) -> None:
    async with scripted.open(answer_timeout=0.05, drain_timeout=0.05) as engine, engine.generate(ask("accept; hang")):
        with pytest.raises(Unavailable, match="does not answer"):
            await engine.inspect()


async def test_an_engine_that_loads_takes_no_request(scripted: Scripted) -> None:
    async with scripted.open("slow", ready=False) as engine:
        assert engine.status.state is EngineState.LOADING
        assert engine.model is None
        with pytest.raises(Unavailable, match="loading"):
            await text(engine, "accept; finish")
        with pytest.raises(Unavailable, match="loading"):
            await engine.inspect()


async def test_a_request_after_the_end_of_the_engine_is_refused(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        pass
    assert engine.status.state is EngineState.STOPPED
    with pytest.raises(Unavailable, match="stopped"):
        await text(engine, "accept; finish")
    with pytest.raises(Unavailable, match="stopped"):
        await engine.ready()


async def test_a_reader_that_exceeds_its_patience_is_cut_off(
    scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "engine.client")
    async with scripted.open() as engine:
        request = ask("accept; say a; wait; say b; wait; say c")
        async with engine.generate(request, patience=0.0) as generation:
            await engine.inspect()  # answered after the request's events so far
            await text(engine, "accept; resume; finish")
            with pytest.raises(SlowReader):
                await generation.take()
        assert await scripted.saw(engine, "cancel") == 1
    (record,) = [record for record in caplog.records if record.message == "request cancelled"]
    assert vars(record)["reason"] == "the client reads too slowly"


async def test_an_exception_inside_the_context_is_raised_unchanged(scripted: Scripted) -> None:
    cause = OSError("cause")
    with pytest.raises(LookupError) as caught:
        async with scripted.open() as engine, engine.generate(ask("accept; start; wait")):
            raise LookupError("mine") from cause
    assert re.fullmatch("mine", str(caught.value))
    assert caught.value.__cause__ is cause


async def test_the_end_of_a_request_that_its_caller_left_is_reported(scripted: Scripted) -> None:
    ends = list[RequestSummary]()
    async with scripted.open() as engine, engine.generate(ask("accept; start; wait"), on_end=ends.append):
        pass
    assert [(end.finished, end.phase) for end in ends] == [(False, "prefill")]


async def test_a_refusal_is_no_failure_of_the_engine(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted.open() as engine:
        with pytest.raises(RequestError):
            await text(engine, "refuse RequestError")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
