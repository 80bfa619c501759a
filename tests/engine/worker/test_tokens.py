"""Questions about the vocabulary, in a whole engine with fakes: answered, declined, taken back."""

import threading

import pytest

from engine.events import TokenDetail
from engine.protocol import wire
from engine.testing.fake_runner import END, NAMES, VOCABULARY
from tests.engine.worker.worker_client import GUARD, Client, Gate


def test_texts_become_tokens_with_their_pieces(client: Client) -> None:
    client.worker.receive(wire.Tokenize(7, ("ab", ""), special=True, begin=True))
    answer = client.expect(wire.Tokenized)
    assert answer == wire.Tokenized(7, ((TokenDetail(97, b"a"), TokenDetail(98, b"b")), ()))


def test_names_of_control_tokens_count_only_if_special(client: Client) -> None:
    name = NAMES[END].decode()
    client.worker.receive(wire.Tokenize(1, (name,), special=True, begin=False))
    client.worker.receive(wire.Tokenize(2, (name,), special=False, begin=False))
    assert client.expect(wire.Tokenized).texts == ((TokenDetail(END, NAMES[END]),),)
    assert len(client.expect(wire.Tokenized).texts[0]) == len(name)


def test_tokens_become_bytes(client: Client) -> None:
    client.worker.receive(wire.Detokenize(1, (195, END), special=True))
    client.worker.receive(wire.Detokenize(2, (195, END), special=False))
    assert client.expect(wire.Detokenized) == wire.Detokenized(1, b"\xc3" + NAMES[END])
    assert client.expect(wire.Detokenized) == wire.Detokenized(2, b"\xc3")


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40])
def test_an_id_that_the_model_does_not_have_is_declined(client: Client, token: int) -> None:
    client.worker.receive(wire.Detokenize(1, (97, token), special=True))
    declined = client.expect(wire.Declined)
    assert (declined.ticket, declined.fault, declined.param) == (1, "RequestError", "tokens")
    assert declined.code == "token_out_of_range"


def test_a_question_waits_for_no_pass(client: Client) -> None:
    gate = Gate(client.runner)
    client.generate(1, "hello")
    gate.wait()
    client.worker.receive(wire.Tokenize(1, ("a",), special=True, begin=True))
    client.expect(wire.Tokenized)
    gate.open()


def test_a_question_that_was_taken_back_is_not_worked_on_any_more(client: Client) -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def tokenize(text: str, **_: bool) -> list[int]:
        asked.append(text)
        begun.set()
        assert go_on.wait(GUARD)
        return []

    client.model.tokenize = tokenize  # type: ignore[method-assign]
    client.worker.receive(wire.Tokenize(1, ("first", "second"), special=True, begin=True))
    assert begun.wait(GUARD)
    client.worker.receive(wire.Tokenize(2, ("third",), special=True, begin=True))
    client.worker.receive(wire.Withdraw(1))
    client.worker.receive(wire.Withdraw(2))
    client.worker.receive(wire.Tokenize(3, ("last",), special=True, begin=True))
    go_on.set()
    assert client.expect(wire.Tokenized).ticket == 3
    assert asked == ["first", "last"]
