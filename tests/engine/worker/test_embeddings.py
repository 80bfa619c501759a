"""Embeddings in a whole engine with fakes: beside generations, alone, cancelled in every phase."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.errors import EngineFault
from engine.events import Embedded, Finished, Released
from engine.protocol.messages import Accepted, Refused, Working
from engine.testing.fake_embedder import FakeEmbedder, vector_of
from engine.testing.fake_model import VOCABULARY, FakeModel
from engine.worker import progress
from engine.worker.worker import EXIT_FAULT
from tests.engine.worker.worker_client import GUARD, Client, Gate, slow_tokenizer


@pytest.fixture
def embedding_gate(client: Client) -> Iterator[Gate]:
    gate = Gate(client.embedder)
    yield gate
    gate.open()


def test_an_embedding_request_is_accepted_with_its_size_and_each_input_reported_once(client: Client) -> None:
    client.embed(1, "four", (1, 2, 3))
    assert client.expect(Accepted) == Accepted(1, (4, 3))
    told = {client.event(1, Embedded) for _ in range(2)}
    assert told == {Embedded(0, vector_of(list(b"four"))), Embedded(1, vector_of([1, 2, 3]))}
    metrics = client.inspect().metrics
    assert (metrics.embeddings, metrics.embedding_tokens, metrics.embedding_waiting) == (2, 7, 0)
    assert metrics.steps == 1


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (("",), "empty_input"),
        (((),), "empty_input"),
        (((1, VOCABULARY),), "token_out_of_range"),
        (((-1,),), "token_out_of_range"),
        (("fits", "x" * 257), "context_length_exceeded"),
    ],
)
def test_an_input_that_can_never_be_embedded_is_refused_at_once(
    client: Client, inputs: tuple[str | tuple[int, ...], ...], code: str
) -> None:
    client.embed(1, *inputs)
    refused = client.expect(Refused)
    fault = refused.fault
    assert (refused.key, fault.kind, fault.param, fault.code) == (1, "RequestError", "input", code)
    assert client.inspect().metrics.steps == 0


def test_the_embedder_is_created_once_for_the_first_request(client: Client) -> None:
    assert len(client.embedders) == 0
    for key in (1, 2):
        client.embed(key, "text")
        client.event(key, Embedded)
    assert len(client.embedders) == 1


def test_an_embedder_that_cannot_be_made_fails_the_request_and_is_tried_again(client: Client) -> None:
    client.open_errors.append("no memory")
    client.embed(1, "text")
    fault = client.expect(Refused).fault
    assert (fault.kind, fault.message, fault.code) == ("EngineFault", "no memory", "engine_failed")
    client.embed(2, "text")
    client.event(2, Embedded)


def test_a_decode_pass_runs_between_any_two_embedding_passes(client: Client) -> None:
    order: list[str] = []
    gate = Gate(client.runner)
    client.generate(1, "hello", max_tokens=40, cache_prompt=False)
    gate.wait()
    client.embed(2, *["x" * 200] * 4)
    client.expect(Accepted, lambda accepted: accepted.key == 2)
    client.runner.on_pass = lambda plan: order.append("decode" if plan.decode else "prompt")
    client.embedder.on_pass = lambda: order.append("embed")
    gate.open()
    for _ in range(4):
        client.event(2, Embedded)
    client.event(1, Finished)
    embeds = [at for at, kind in enumerate(order) if kind == "embed"]
    assert len(embeds) >= 4
    assert all("decode" in order[first:second] for first, second in itertools.pairwise(embeds))


def test_a_cancel_aborts_the_pass_of_a_lone_request(client: Client, embedding_gate: Gate) -> None:
    client.embed(1, "hello")
    embedding_gate.wait()
    assert client.cancel(1) == Released("embedding", 0, 0)
    metrics = client.inspect().metrics
    assert (metrics.aborted, metrics.embedding_waiting) == (1, 0)
    assert client.embedder.cells == {}


@pytest.fixture
def opening(client: Client) -> Iterator[threading.Event]:
    """Request 1 waits for the embedder, which is opened when the test sets the event, or ends."""
    begun, go_on = threading.Event(), threading.Event()

    def open_slowly() -> None:
        begun.set()
        assert go_on.wait(GUARD)

    client.on_open = open_slowly
    client.embed(1, "hello")
    assert begun.wait(GUARD)
    yield go_on
    go_on.set()


def test_a_generation_does_not_wait_while_the_embedder_is_opened(client: Client, opening: threading.Event) -> None:
    client.generate(2, "hello", max_tokens=8)
    client.event(2, Finished)
    opening.set()
    client.event(1, Embedded)


def test_a_cancel_does_not_wait_while_the_embedder_is_opened(client: Client, opening: threading.Event) -> None:
    assert client.cancel(1) == Released("intake", 0, 0)
    opening.set()
    client.embed(2, "next")
    client.event(2, Embedded)
    assert (len(client.embedders), client.inspect().metrics.embeddings) == (1, 1)


def test_requests_that_come_while_the_embedder_is_opened_open_no_other(
    client: Client, opening: threading.Event
) -> None:
    client.embed(2, "next")
    opening.set()
    for key in (1, 2):
        client.event(key, Embedded)
    assert len(client.embedders) == 1


@pytest.fixture
def small() -> Iterator[Client]:
    """A client of an engine whose first embedder has few cells."""
    started = Client(embedder=FakeEmbedder(cells=1000, smallest=128)).loaded()
    yield started
    started.worker.stop()
    assert started.closed.wait(GUARD)


def test_a_longer_text_opens_a_larger_embedder_and_the_small_one_ends_its_texts_first(small: Client) -> None:
    small.embed(1, "x" * 100)
    small.event(1, Embedded)
    [first] = small.embedders
    gate = Gate(first)
    small.embed(2, "x" * 100)
    gate.wait()
    small.embed(3, "y" * 300)
    small.expect(Accepted, lambda accepted: accepted.key == 3)
    assert ([embedder.room for embedder in small.embedders], first.shut) == ([128, 512], False)
    gate.open()
    assert small.event(2, Embedded) == Embedded(0, vector_of(list(b"x" * 100)))
    assert small.event(3, Embedded) == Embedded(0, vector_of(list(b"y" * 300)))
    assert first.shut
    small.embed(4, "short")
    small.event(4, Embedded)
    assert len(small.embedders) == 2


def test_a_larger_embedder_that_cannot_be_made_fails_only_the_long_text(small: Client) -> None:
    small.embed(1, "x")
    small.event(1, Embedded)
    small.open_errors.append("no memory")
    small.embed(2, "y" * 300)
    fault = small.expect(Refused).fault
    assert (fault.kind, fault.message, fault.code) == ("EngineFault", "no memory", "engine_failed")
    small.embed(3, "x" * 100)
    small.event(3, Embedded)
    assert [embedder.shut for embedder in small.embedders] == [False]


def test_a_larger_embedder_whose_text_was_cancelled_serves_the_next_long_one(small: Client) -> None:
    gate = Gate(small.embedder)
    small.embed(1, "x" * 100)
    gate.wait()
    small.embed(2, "y" * 300)
    small.expect(Accepted, lambda accepted: accepted.key == 2)
    assert small.cancel(2) == Released("queued", 0, 0)
    gate.open()
    small.event(1, Embedded)
    small.embed(3, "x" * 100)
    small.event(3, Embedded)
    assert [embedder.shut for embedder in small.embedders] == [False, False]
    small.embed(4, "z" * 300)
    small.event(4, Embedded)
    assert [embedder.shut for embedder in small.embedders] == [True, False]


def test_a_cancel_between_two_passes_frees_the_cells(client: Client, embedding_gate: Gate) -> None:
    client.embed(1, "x" * 200)
    embedding_gate.wait()
    embedding_gate.let_through()
    embedding_gate.wait()
    assert client.cancel(1) == Released("embedding", 0, 64, 64)
    assert client.embedder.cells == {}


def test_a_cancel_of_a_waiting_request_is_answered_during_the_pass(client: Client, embedding_gate: Gate) -> None:
    client.embed(1, "hello")
    embedding_gate.wait()
    client.embed(2, "waits")
    client.expect(Accepted, lambda accepted: accepted.key == 2)
    assert client.cancel(2) == Released("queued", 0, 0)
    embedding_gate.open()
    client.event(1, Embedded)
    assert client.cancel(1) == Released("gone", 0, 0)


def test_a_cancel_while_an_input_is_tokenised_leaves_no_request(client: Client) -> None:
    begun, go_on = slow_tokenizer(client.model)
    client.embed(1, "slow")
    assert begun.wait(GUARD)
    assert client.cancel(1) == Released("intake", 0, 0)
    go_on.set()
    client.embed(2, "next")
    client.event(2, Embedded)
    assert client.inspect().metrics.embeddings == 1


def test_an_embedder_that_fails_ends_the_process(client: Client) -> None:
    def fail() -> None:
        raise EngineFault("decode failed")

    client.embedder.on_pass = fail
    client.embed(1, "hello")
    assert client.exits.get(timeout=GUARD) == EXIT_FAULT


def test_a_long_pass_that_goes_on_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_REPORT", 0.0)
    reported = threading.Event()

    def compute() -> None:
        client.embedder.on_progress()
        assert reported.wait(GUARD)

    client.embedder.on_pass = compute
    client.embed(1, "hello")
    client.expect(Accepted)
    client.unread.clear()  # the intake has reported its work, too
    client.expect(Working)
    reported.set()
    client.event(1, Embedded)


def test_stopping_aborts_an_embedding_pass(client: Client, embedding_gate: Gate) -> None:
    client.embed(1, "hello")
    embedding_gate.wait()
    client.worker.stop()
    assert client.closed.is_set()


def test_a_model_that_only_embeds_has_no_slots_and_refuses_to_generate() -> None:
    model = FakeModel()
    model.info = replace(model.info, generates=False)
    client = Client(model=model).loaded()
    client.generate(1, "hello")
    fault = client.expect(Refused).fault
    assert (fault.kind, fault.code, fault.param) == ("RequestError", "unsupported_model", "model")
    client.embed(2, "hello")
    client.event(2, Embedded)
    inspected = client.inspect()
    assert (inspected.slots, inspected.metrics.free) == ((), 0)
    client.worker.stop()
    assert client.closed.wait(GUARD)
