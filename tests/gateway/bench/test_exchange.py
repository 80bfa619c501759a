"""Outcomes of requests, from bytes at virtual times."""

import pytest

from gateway.bench.exchange import Exchange
from gateway.bench.outcome import Failure, Outcome, Usage
from tests.gateway.bench.scripted import DONE, END, HEAD, event, framed, stream, text, usage, whole


def outcome(*reads: tuple[float, bytes], streamed: bool = True, closed: float | None = None) -> Outcome:
    """Return the outcome of a request sent at 10.0 with an answer read in these pieces at these times."""
    exchange = Exchange(streamed=streamed)
    for now, data in reads:
        assert not exchange.over
        exchange.feed(data, now)
    if closed is not None:
        exchange.close(closed)
    assert exchange.over
    return exchange.outcome(10.0)


def chat(**delta: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def test_each_read_with_text_is_an_arrival() -> None:
    made = outcome(
        (11.0, HEAD + framed(text())),
        (12.0, framed(b": keep-alive\n\n")),
        (13.5, framed(text())),
        (14.0, framed(text("")) + framed(usage(2)) + framed(DONE) + END),
    )
    assert made == Outcome(10.0, 14.0, ((11.0, 1), (13.5, 1)), Usage(16, 2))
    assert (made.to_first_token, made.read_gaps, made.inter_token, made.tokens) == (1.0, [2.5], [2.5], 2)


def test_chunks_that_come_together_share_their_gap() -> None:
    made = outcome(
        (11.0, HEAD + framed(text())),
        (12.0, framed(text() + text()) + framed(text())),
        (14.0, framed(text()) + framed(DONE) + END),
    )
    assert made.arrivals == ((11.0, 1), (12.0, 3), (14.0, 1))
    assert made.read_gaps == [1.0, 2.0]
    assert made.inter_token == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2.0])


def test_tokens_that_share_a_chunk_share_its_gap() -> None:
    made = outcome(
        (11.0, HEAD + framed(text(" one two three four"))),
        (12.0, framed(text(" five six seven eight"))),
        (12.5, framed(usage(8)) + framed(DONE) + END),
    )
    assert (made.chunks, made.tokens, made.read_gaps, made.inter_token) == (2, 8, [1.0], [0.25])


def test_a_token_of_the_usage_that_shows_no_text_makes_no_time_longer() -> None:
    made = outcome((11.0, stream(text(), text(), text(), usage(2), DONE)))
    assert (made.tokens, made.chunks, made.inter_token) == (2, 3, [])


@pytest.mark.parametrize(
    "told", [b": nothing\n\n", usage(0), event({"choices": [], "usage": {"completion_tokens": "many"}})]
)
def test_without_usage_chunks_are_counted(told: bytes) -> None:
    made = outcome((11.0, stream(text(), text(), told, DONE)))
    assert (made.usage, made.tokens, made.failure) == (None, 2, None)


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning"])
def test_a_chat_counts_its_nonempty_deltas(field: str) -> None:
    made = outcome(
        (11.0, HEAD + framed(chat(role="assistant", content=None))),
        (12.0, framed(chat(**{field: "Hi"}))),
        (13.0, framed(chat(tool_calls=[{"index": 0}])) + framed(chat()) + framed(DONE) + END),
    )
    assert (made.to_first_token, made.chunks, made.failure) == (2.0, 2, None)


@pytest.mark.parametrize(
    "answer",
    [{"choices": [{"text": " word"}]}, {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}],
    ids=["completion", "chat"],
)
def test_a_whole_answer_has_an_end_and_a_usage(answer: dict[str, object]) -> None:
    told = {"usage": {"prompt_tokens": 3, "completion_tokens": 5}}
    made = outcome((12.0, whole({**answer, **told})), streamed=False)
    assert made == Outcome(10.0, 12.0, (), Usage(3, 5))
    assert (made.to_first_token, made.inter_token, made.tokens) == (None, [], 5)
    assert outcome((12.0, whole(answer)), streamed=False).tokens is None


@pytest.mark.parametrize(
    ("wire", "kind", "words"),
    [
        (whole({"error": {"message": "The queue\nis full."}}, 429), "status 429", "The queue is full."),
        (whole({"error": "no such model"}, 404), "status 404", "no such model"),
        (whole({"detail": "Not Found"}, 404), "status 404", "Not Found"),
        (whole({"message": "slow down"}, 429), "status 429", "slow down"),
        (whole(b"<h1>Bad Gateway</h1>", 502), "status 502", "<h1>Bad Gateway</h1>"),
        (whole(b"x" * 9000, 500), "status 500", "x" * 300 + "…"),
        (whole(b"", 503), "status 503", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "status 204", ""),
        (whole({"choices": [{"text": "Hi"}]}), "no stream", '{"choices":[{"text":"Hi"}]}'),
        (stream(text(), event({"error": {"message": "It died."}})), "error event", "It died."),
        (stream(text(), event({"error": {"message": "It died."}}), DONE), "error event", "It died."),
        (stream(text(), b"data: {oops\n\n", DONE), "unreadable", "{oops"),
        (stream(text(), b"data: [1]\n\n", DONE), "unreadable", "[1]"),
        (stream(text()), "cut", "the stream ended without [DONE]"),
        (stream(text(""), usage(1), DONE), "empty", "the stream brought no text"),
        (stream(event({"choices": 5}), event({"choices": [5]}), DONE), "empty", "the stream brought no text"),
        (b"RTSP/1.0 200 OK\r\n\r\n", "not HTTP", "not HTTP/1.1: 'RTSP/1.0 200 OK'"),
    ],
)
def test_a_failed_stream_has_its_error(wire: bytes, kind: str, words: str) -> None:
    made = outcome((12.0, wire))
    assert (made.failure, made.ended) == (Failure(kind, words), 12.0)


@pytest.mark.parametrize(
    ("wire", "kind", "words"),
    [
        (whole(b"Hello"), "unreadable", "Hello"),
        (whole({"choices": [{"text": ""}]}), "empty", "the answer has no text"),
        (whole({"choices": []}), "empty", "the answer has no text"),
        (whole({"error": {"message": "no"}}, 400), "status 400", "no"),
    ],
)
def test_a_failed_whole_answer_has_its_error(wire: bytes, kind: str, words: str) -> None:
    assert outcome((12.0, wire), streamed=False).failure == Failure(kind, words)


def test_a_cut_connection_is_a_failure() -> None:
    inside = Failure("cut", "the server closed the connection inside its answer")
    assert outcome((11.0, HEAD + framed(text())), closed=12.0).failure == inside
    assert outcome(closed=12.0) == Outcome(
        10.0, 12.0, failure=Failure("cut", "the server closed the connection before its answer")
    )


def test_an_error_of_the_server_takes_precedence_over_a_later_cut() -> None:
    refused = whole({"error": {"message": "full"}}, 429).replace(b"Length: ", b"Length: 1")
    assert outcome((11.0, refused), closed=12.0).failure == Failure("status 429", "full")
    failed = HEAD + framed(event({"error": {"message": "It died."}}))
    assert outcome((11.0, failed), closed=12.0).failure == Failure("error event", "It died.")


def test_bytes_after_the_end_are_ignored() -> None:
    exchange = Exchange(streamed=True)
    exchange.feed(stream(text(), DONE), 11.0)
    exchange.fail(Failure("timeout", "late"), 12.0)
    made = exchange.outcome(10.0)
    assert (made.ended, made.failure) == (11.0, None)
