"""The intake in a whole engine with fakes: a refusal costs nothing, and no client waits for the work of another."""

import threading
from collections.abc import Iterator

import pytest
from typing_extensions import override

from engine.config import EngineConfig
from engine.errors import Busy, RequestError
from engine.events import Finished, Released
from engine.protocol.messages import Accepted, Answered, Ask, Cancel, Embed, QueryFailed, Refused, Tokenize, Working
from engine.request import EmbeddingRequest, Grammar, GrammarKind, Sampling
from engine.testing.fake_model import FakeModel
from engine.worker import progress
from engine.worker.loop import StepLoop
from engine.worker.slices import SHORT_TEXT
from tests.engine.worker.worker_client import GUARD, Client, slow_tokenizer

GRAMMAR = Grammar(GrammarKind.REGEX, "abc")
LONG = "x" * (SHORT_TEXT + 1)
MANY = 240


class Door:
    """Holds the calls of one method until the test lets them pass, and records them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.open = True
        self._entered = threading.Semaphore(0)
        self._passes = threading.Semaphore(0)

    def pass_by(self, name: str) -> None:
        self.calls.append(name)
        self._entered.release()
        if not self.open:
            assert self._passes.acquire(timeout=GUARD)

    def wait(self) -> None:
        """Wait for the next call."""
        assert self._entered.acquire(timeout=GUARD)

    def let_through(self, calls: int = 1) -> None:
        self._passes.release(calls)


class SlowModel(FakeModel):
    """A model with doors before long texts and grammars. A grammar is compiled to its source."""

    def __init__(self) -> None:
        super().__init__(context=8 * SHORT_TEXT)
        self.texts, self.grammars = Door(), Door()
        self.seen: list[str] = []

    @override
    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        self.seen.append(text)
        if len(text) > SHORT_TEXT:
            self.texts.pass_by(text)
        return super().tokenize(text, special=special, begin=begin)

    @override
    def compile(self, grammar: Grammar) -> bytes:
        self.grammars.pass_by(grammar.source)
        if grammar.source == "defect":
            raise ZeroDivisionError
        if grammar.source == "(":
            raise RequestError("unclosed", param="grammar", code="invalid_grammar")
        return super().compile(grammar)


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
def client(model: SlowModel) -> Iterator[Client]:
    started = Client(EngineConfig(model="fake", queue_limit=MANY), model).loaded()
    yield started
    for door in (model.texts, model.grammars):
        door.open = True
        door.let_through(10 * MANY)
    started.worker.stop()
    assert started.closed.wait(GUARD), "the model was not freed"


def grammar(source: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, source)


def test_requests_that_are_refused_for_their_length_compile_no_grammar(client: Client, model: SlowModel) -> None:
    model.grammars.open = False
    for key in range(MANY):
        client.generate(key, "a", max_tokens=10**6, grammar=grammar(f"costly{key}"), client="hostile")
    client.generate(MANY, "a", max_tokens=1, client="victim")
    client.event(MANY, Finished)
    refused = [client.expect(Refused).fault for _ in range(MANY)]
    assert {(one.param, one.code) for one in refused} == {("max_tokens", "context_length_exceeded")}
    assert model.grammars.calls == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 8 * SHORT_TEXT}, "max_tokens"),
        ({"sampling": Sampling(logit_bias=((-1, 1.0),))}, "logit_bias"),
        ({"stop_tokens": (10**6,)}, "stop_token_ids"),
        ({"sampling": Sampling(temperature=float("inf"))}, "temperature"),
    ],
)
def test_a_long_prompt_is_tokenised_after_everything_that_is_cheaper_to_refuse(
    client: Client, model: SlowModel, fields: dict[str, object], param: str
) -> None:
    client.generate(1, LONG, grammar=GRAMMAR, **fields)
    assert client.expect(Refused).fault.param == param
    assert (model.seen, model.grammars.calls) == ([], [])


def test_token_ids_are_checked_before_a_text_beside_them_is_tokenised(client: Client, model: SlowModel) -> None:
    client.generate(1, LONG, (1, 10**6))  # type: ignore[arg-type]
    assert (client.expect(Refused).fault.code, model.seen) == ("token_out_of_range", [])


def test_a_prompt_that_is_far_too_long_is_only_tokenised_in_short_pieces(client: Client, model: SlowModel) -> None:
    client.generate(1, "x" * 200 * SHORT_TEXT, grammar=GRAMMAR)
    assert client.expect(Refused).fault.code == "context_length_exceeded"
    assert max(map(len, model.seen)) == SHORT_TEXT
    assert sum(map(len, model.seen)) <= (2 * 8 + 1) * SHORT_TEXT
    assert model.grammars.calls == []


def test_an_invalid_input_is_refused_before_a_text_is_tokenised(client: Client, model: SlowModel) -> None:
    client.embed(1, "text", (10**6,))
    assert (client.expect(Refused).fault.code, model.seen) == ("token_out_of_range", [])


def test_costly_work_of_others_does_not_delay_a_request(client: Client, model: SlowModel) -> None:
    model.grammars.open = model.texts.open = False
    for key in range(10):
        client.generate(key, "a", grammar=grammar(f"g{key}"), client="hostile")
        client.generate(10 + key, LONG, client="hostile")
        client.worker.receive(Ask(key, Tokenize((LONG,), special=True, begin=True), "hostile"))
    model.grammars.wait()
    model.texts.wait()
    for key in range(100, 110):
        client.generate(key, "a", max_tokens=1, client="victim")
        client.event(key, Finished)
    client.ask(100, Tokenize(("a",), special=True, begin=True))
    assert client.expect(Answered).query_id == 100
    assert len(model.grammars.calls) == 1
    assert len(model.texts.calls) <= 2, "one of a request, and one of a query"


def test_a_known_grammar_does_not_wait_for_others(
    client: Client, model: SlowModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.grammars.open = False
    monkeypatch.setattr(model, "compiled", lambda asked: b"abc" if asked == GRAMMAR else None)
    client.generate(1, "a", grammar=grammar("slow"))
    model.grammars.wait()
    client.generate(2, "a", grammar=GRAMMAR)
    assert client.event(2, Finished).text == "abc"


def test_grammars_are_compiled_in_turns_among_clients(client: Client, model: SlowModel) -> None:
    model.grammars.open = False
    for key in range(5):
        client.generate(key, "a", grammar=grammar(f"hostile{key}"), client="hostile")
    model.grammars.wait()
    client.generate(10, "a", grammar=grammar("victim"), client="victim", max_tokens=6)
    client.worker.receive(Ask(1, Tokenize(("a",), special=True, begin=True), "victim"))
    client.expect(Answered)  # so the light work of the request is done, too
    model.grammars.let_through(3)
    client.event(10, Finished)
    assert model.grammars.calls[:3] == ["hostile0", "hostile1", "victim"]


def test_the_inputs_of_one_request_take_turns_with_other_clients(client: Client, model: SlowModel) -> None:
    begun, go_on = slow_tokenizer(model, lambda text: text == "input0")
    inputs = tuple(f"input{n}" for n in range(2048))
    client.worker.receive(Embed(1, EmbeddingRequest(id="r", inputs=inputs, client="hostile")))
    assert begun.wait(GUARD)
    client.generate(2, "victim", max_tokens=1, client="victim")
    go_on.set()
    client.event(2, Finished)
    client.expect(Accepted, lambda accepted: accepted.key == 1)
    assert model.seen.index("victim") <= 4


def test_a_grammar_that_cannot_be_compiled_refuses_its_request_alone(client: Client) -> None:
    client.generate(1, "a", grammar=grammar("("))
    client.generate(2, "a", grammar=GRAMMAR)
    assert (client.expect(Refused).fault.code, client.event(2, Finished).text) == ("invalid_grammar", "abc")


def test_an_unexpected_error_fails_its_request_alone(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.generate(1, "a", grammar=grammar("defect"))
    client.generate(2, "a", grammar=GRAMMAR)
    fault = client.expect(Refused).fault
    assert (fault.kind, fault.code, client.event(2, Finished).text) == ("EngineFault", "engine_failed", "abc")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_cancelled_request_is_not_compiled(client: Client, model: SlowModel) -> None:
    model.grammars.open = False
    for key in range(3):
        client.generate(key, "a", grammar=grammar(f"g{key}"))
    model.grammars.wait()
    for key in range(3):
        assert client.cancel(key) == Released("intake", 0, 0)
    model.grammars.open = True
    model.grammars.let_through()
    client.generate(4, "a", grammar=grammar("last"), max_tokens=5)
    client.event(4, Finished)
    assert model.grammars.calls == ["g0", "last"]


def test_a_request_that_was_cancelled_before_its_error_is_not_refused_too(client: Client, model: SlowModel) -> None:
    model.grammars.open = False
    client.generate(1, "a", grammar=grammar("("))
    model.grammars.wait()
    assert client.cancel(1) == Released("intake", 0, 0)
    model.grammars.open = True
    model.grammars.let_through()
    client.generate(2, "a", grammar=GRAMMAR)
    client.event(2, Finished)
    assert not [message for message in client.unread if isinstance(message, Refused)]


def test_a_request_without_room_is_refused_before_its_text_is_tokenised(
    client: Client, model: SlowModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepLoop, "check_room", no_room)
    client.generate(1, "a")
    assert (client.expect(Refused).fault.kind, model.seen) == ("Busy", [])


def test_a_request_whose_room_was_taken_meanwhile_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepLoop, "add", no_room)
    client.generate(1, "a")
    assert client.expect(Refused).fault.kind == "Busy"


def no_room(*_arguments: object) -> None:
    raise Busy("the queue is full", code="queue_full")


def test_a_client_with_too_many_requests_is_refused_and_others_are_not(client: Client, model: SlowModel) -> None:
    model.grammars.open = False
    most = MANY + model.info.slots
    for key in range(most + 1):
        client.generate(key, "a", grammar=grammar(f"g{key}"), client="hostile")
    refused = client.expect(Refused)
    assert (refused.key, refused.fault.kind, refused.fault.code) == (most, "Busy", "queue_full")
    client.generate(5000, "a", max_tokens=1, client="victim")
    client.event(5000, Finished)
    client.worker.receive(Cancel(0))
    client.generate(5001, "a", max_tokens=1, client="hostile")
    client.event(5001, Finished)


def test_a_client_with_too_many_queries_is_refused(client: Client, model: SlowModel) -> None:
    model.texts.open = False
    most = MANY + model.info.slots
    for query_id in range(most + 1):
        client.worker.receive(Ask(query_id, Tokenize((LONG,), special=True, begin=True), "hostile"))
    failed = client.expect(QueryFailed)
    assert (failed.query_id, failed.fault.kind, failed.fault.code) == (most, "Busy", "queue_full")


def test_each_piece_of_work_is_timed(client: Client, model: SlowModel) -> None:
    """One that takes too long is found by it."""
    timed = list[bool]()
    tokenize = model.tokenize

    def look(text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        timed.append(threading.get_ident() in client.progress._began)
        return tokenize(text, special=special, begin=begin)

    model.tokenize = look  # type: ignore[method-assign]
    client.generate(1, "a", max_tokens=1)
    client.event(1, Finished)
    client.ask(1, Tokenize((LONG,), special=True, begin=True))
    client.expect(Answered)
    assert timed == [True, True]


def test_work_is_reported_while_something_waits(
    client: Client, model: SlowModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_REPORT", 0.0)
    model.grammars.open = False
    client.generate(1, "a", grammar=GRAMMAR)
    client.expect(Working)
    model.grammars.wait()
    client.generate(2, "a", max_tokens=1)
    client.expect(Working)
    client.event(2, Finished)
