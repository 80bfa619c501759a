"""Queries about the vocabulary, in a whole engine with fakes: answered, failed, cancelled."""

import pytest

from engine.events import TokenRun
from engine.prompt import PromptText
from engine.protocol.messages import (
    Answered,
    CancelQuery,
    Detokenize,
    Detokenized,
    QueryFailed,
    Refused,
    Tokenize,
    Tokenized,
)
from engine.testing.fake_model import END, NAMES, VOCABULARY, FakeModel
from engine.worker.queries import MOST_TEXT, MOST_TOKENS, RUN
from engine.worker.slices import SHORT_TEXT
from tests.engine.worker.worker_client import GUARD, Client, Gate, slow_tokenizer


def test_texts_become_tokens_with_their_pieces(client: Client) -> None:
    client.ask(7, Tokenize(("ab", "", "c"), special=True, begin=True, pieces=True))
    assert client.expect(Answered) == Answered(7, Tokenized(TokenRun(0, (97, 98), (b"a", b"b"))), more=True)
    assert client.expect(Answered) == Answered(7, Tokenized(TokenRun(2, (99,), (b"c",))))


def test_a_long_text_is_answered_in_parts_of_bounded_size(client: Client) -> None:
    client.ask(1, Tokenize(("x" * (2 * RUN + 1),), special=True, begin=True))
    parts = [client.expect(Answered) for _ in range(3)]
    assert [part.more for part in parts] == [True, True, False]
    assert [len(part.answer.tokens.ids) for part in parts if isinstance(part.answer, Tokenized)] == [RUN, RUN, 1]


def test_texts_without_tokens_have_an_answer(client: Client) -> None:
    client.ask(1, Tokenize(("", ""), special=True, begin=True))
    assert client.expect(Answered) == Answered(1, Tokenized(TokenRun(0, ())))


def test_too_long_texts_are_refused_before_they_are_tokenised(client: Client) -> None:
    client.ask(1, Tokenize(("x" * MOST_TEXT, "y"), special=True, begin=True))
    failed = client.expect(QueryFailed)
    assert (failed.fault.kind, failed.fault.param, failed.fault.code) == ("RequestError", "content", "invalid_value")


def test_a_text_with_too_many_tokens_is_refused_by_short_pieces(client: Client) -> None:
    sizes, tokenize = list[int](), client.model.tokenize

    def counted(text: str, **options: bool) -> list[int]:
        sizes.append(len(text))
        return tokenize(text, **options)

    client.model.tokenize = counted  # type: ignore[method-assign]
    client.ask(1, Tokenize(("x" * 2 * MOST_TOKENS,), special=True, begin=True))
    failed = client.expect(QueryFailed)
    assert (failed.fault.kind, failed.fault.param, failed.fault.code) == ("RequestError", "content", "invalid_value")
    assert max(sizes) == SHORT_TEXT


def test_a_long_text_of_a_request_does_not_wait_for_that_of_a_query() -> None:
    client = Client(model=FakeModel(context=4096)).loaded()
    begun, go_on = slow_tokenizer(client.model, lambda text: text.startswith("q"))
    client.ask(1, Tokenize(("q" * (SHORT_TEXT + 1),), special=True, begin=True))
    assert begun.wait(GUARD)
    client.generate(2, "r" * (SHORT_TEXT + 1))
    assert client.expect(Refused).fault.code == "context_length_exceeded"
    go_on.set()
    client.worker.stop()


def test_names_in_plain_parts_do_not_count(client: Client) -> None:
    client.ask(1, Tokenize((PromptText("<end><end>", ((5, 10),)),), special=True, begin=True))
    answer = client.expect(Answered).answer
    assert isinstance(answer, Tokenized)
    assert answer.tokens.ids == (END, *b"<end>")


def test_names_of_control_tokens_count_only_if_special(client: Client) -> None:
    name = NAMES[END].decode()
    client.ask(1, Tokenize((name,), special=True, begin=False))
    client.ask(2, Tokenize((name,), special=False, begin=False))
    assert client.expect(Answered).answer == Tokenized(TokenRun(0, (END,)))
    plain = client.expect(Answered).answer
    assert isinstance(plain, Tokenized)
    assert len(plain.tokens.ids) == len(name)


def test_tokens_become_bytes(client: Client) -> None:
    client.ask(1, Detokenize((195, END), special=True))
    client.ask(2, Detokenize((195, END), special=False))
    assert client.expect(Answered) == Answered(1, Detokenized(b"\xc3" + NAMES[END]))
    assert client.expect(Answered) == Answered(2, Detokenized(b"\xc3"))


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40])
def test_an_id_that_the_model_does_not_have_fails(client: Client, token: int) -> None:
    client.ask(1, Detokenize((97, token), special=True))
    failed = client.expect(QueryFailed)
    assert (failed.query_id, failed.fault.kind, failed.fault.param) == (1, "RequestError", "tokens")
    assert failed.fault.code == "token_out_of_range"


def test_a_query_waits_for_no_pass(client: Client) -> None:
    gate = Gate(client.runner)
    client.generate(1, "hello")
    gate.wait()
    client.ask(1, Tokenize(("a",), special=True, begin=True))
    client.expect(Answered)
    gate.open()


def test_a_cancelled_query_is_not_worked_on_any_more(client: Client) -> None:
    asked = list[str]()

    def note(text: str) -> bool:
        asked.append(text)
        return True

    begun, go_on = slow_tokenizer(client.model, note)
    client.ask(1, Tokenize(("first", "second"), special=True, begin=True))
    assert begun.wait(GUARD)
    client.ask(2, Tokenize(("third",), special=True, begin=True))
    client.worker.receive(CancelQuery(1))
    client.worker.receive(CancelQuery(2))
    client.ask(3, Tokenize(("last",), special=True, begin=True))
    go_on.set()
    assert client.expect(Answered).query_id == 3
    assert asked == ["first", "last"]


def test_a_query_that_is_cancelled_in_its_last_piece_is_not_answered(client: Client) -> None:
    begun, go_on = slow_tokenizer(client.model)
    client.ask(1, Tokenize(("last",), special=True, begin=True))
    assert begun.wait(GUARD)
    client.worker.receive(CancelQuery(1))
    client.ask(2, Tokenize(("next",), special=True, begin=True))
    go_on.set()
    assert client.expect(Answered).query_id == 2
