"""Answers of `/completion` with many probabilities are encoded and sent in pieces."""

import orjson
import pytest

from engine import Alternative, Finished, FinishReason, Text, TokenDetail
from gateway.apis.llama_server.completion.call import NativeOptions
from gateway.apis.llama_server.completion.completion import NativeChunks, NativeHead, native_answers
from gateway.middleware.streams.blocks import BLOCK
from gateway.serving.generations import GenerationResult
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration

ENTRIES = 1300
"""Tokens and alternatives that may be encoded at once."""
MOST = 2 * BLOCK
OPTIONS = NativeOptions(return_tokens=False, return_progress=False, timings_per_token=False, response_fields=())


def head_of(alternatives: int, choices: int, *, sampled: bool = False) -> NativeHead:
    return NativeHead(
        model="tiny",
        context=256,
        settings={"n_probs": alternatives, "post_sampling_probs": sampled},
        prompts=("a",),
        n=choices,
        options=OPTIONS,
    )


def tokens(count: int, alternatives: int) -> tuple[TokenDetail, ...]:
    top = tuple(Alternative(at, b"word", -1.0 - at) for at in range(alternatives))
    return (TokenDetail(1, b"a", -0.5, top),) * count


def ended(choice: int, details: tuple[TokenDetail, ...]) -> Finished:
    return Finished(choice, "a" * len(details), FinishReason.LENGTH, len(details), 0, details)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(("alternatives", "count"), [(1024, 4), (20, 150), (1, 2000)])
def test_each_choice_is_encoded_in_pieces(alternatives: int, count: int, *, sampled: bool) -> None:
    details = tokens(count, alternatives)
    result = GenerationResult((1,), tuple(ended(choice, details) for choice in range(3)))
    pieces = list(native_answers(head_of(alternatives, 3, sampled=sampled), result))
    assert max(piece.count(b'"token"') for piece in pieces) <= ENTRIES
    answers = orjson.loads(b"".join(pieces))
    assert [answer["index"] for answer in answers] == [0, 1, 2]
    assert all(len(answer["completion_probabilities"]) == count for answer in answers)


def test_each_token_of_an_event_is_a_piece() -> None:
    """A client that reads slowly gets many tokens in one event."""
    pieces = list(NativeChunks(head_of(1024, 1)).encode((1,), [Text(0, "aaaa", tokens(4, 1024))]))
    assert [len(orjson.loads(piece.removeprefix(b"data: "))["tokens"]) for piece in pieces] == [1] * 4


@pytest.mark.anyio
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_is_sent_in_blocks(*, streamed: bool) -> None:
    def finish(generation: FakeGeneration) -> None:
        generation.put(*(ended(choice, tokens(2, 1024)) for choice in range(4)))

    body = {"prompt": "a", "n_probs": 1024, "n_cmpl": 4, "stream": streamed}
    reply = await post(app_of(FakeEngine(finish)), "/completion", body)
    assert len(reply.bodies) >= 8
    assert max(map(len, reply.bodies)) <= MOST


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fields", "names"),
    [(["content"], {"content"}), (["content", "completion_probabilities"], {"content", "completion_probabilities"})],
)
async def test_probabilities_are_a_field_that_can_be_chosen(fields: list[str], names: set[str]) -> None:
    engine = FakeEngine(lambda generation: generation.put(ended(0, tokens(1, 1))))
    reply = await post(app_of(engine), "/completion", {"prompt": "a", "n_probs": 1, "response_fields": fields})
    assert reply.json.keys() == names
