"""Large answers: their pieces together are the same JSON, and each piece is small."""

from collections.abc import Iterator

import orjson
import pytest

from engine import Alternative, EmbeddingResult, Finished, FinishReason, Text, TokenDetail
from gateway.apis.answers.deltas import CHARACTERS_PER_PIECE
from gateway.apis.answers.pieces import HOLE, TOKENS_PER_PIECE, array, array_of_pieces, filled
from gateway.apis.answers.reply import JsonReply
from gateway.apis.openai.chat.call import ChatOptions
from gateway.apis.openai.chat.completion import chat_head
from gateway.apis.openai.chat.completion import completion as chat_completion
from gateway.apis.openai.chat.message import read_message
from gateway.apis.openai.completions.call import CompletionOptions
from gateway.apis.openai.completions.completion import best, completion, completion_head
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.apis.openai.embeddings.answer import embeddings
from gateway.apis.openai.embeddings.call import prepare_embedding
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.apis.openai.reports import Report
from gateway.chat.conversation import ChatPrompt
from gateway.chat.formats import recognize
from gateway.chat.parsing import ParserKey
from gateway.middleware.streams.blocks import BLOCK, blocks
from gateway.serving.generations import GenerationResult
from tests.gateway.turns import with_turns

MOST = 2 * BLOCK
"""Bytes that may be encoded at once: a block, and the piece that completes it."""
TOPS = tuple(Alternative(at, b"x" * 8, -float(at)) for at in range(20))
DETAILS = (TokenDetail(1, b"a", -0.5, TOPS),) * (TOKENS_PER_PIECE * 20)
PROMPT = ChatPrompt("", None, False, ParserKey(format=recognize(""), tools=(), thinking=False, one_call=False))


def ended(choice: int, text: str = "a", details: tuple[TokenDetail, ...] = DETAILS) -> Finished:
    return Finished(choice, text, FinishReason.STOP, len(details), 0, details)


def answered(choices: int) -> GenerationResult:
    return GenerationResult((1,), tuple(map(ended, range(choices))))


def test_the_holes_of_an_answer_are_filled_in_order() -> None:
    answer = {"a": "\0", "b": HOLE, "c": [HOLE, {"d": HOLE}]}
    whole = b"".join(filled(answer, [b"1"], array([2, 3, 4], 2), array_of_pieces([[b"[", b"]"], [b"5"]])))
    assert whole == b'{"a":"\\u0000","b":1,"c":[[2,3,4],{"d":[[],5]}]}'


@pytest.mark.parametrize(("count", "pieces"), [(0, 1), (1, 2), (4, 3), (5, 4)])
def test_an_array_has_a_piece_for_each_of_its_parts(count: int, pieces: int) -> None:
    encoded = list(array(range(count), 2))
    assert orjson.loads(b"".join(encoded)) == list(range(count))
    assert len(encoded) == pieces


def test_pieces_are_joined_to_blocks_as_they_are_needed() -> None:
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for size in (10, BLOCK - 10, BLOCK + 1, 0, 3):
            taken.append(size)
            yield bytes(size)

    made = blocks(pieces())
    assert len(next(made)) == BLOCK
    assert taken == [10, BLOCK - 10]
    assert list(map(len, made)) == [BLOCK + 1, 3]


@pytest.mark.anyio
async def test_others_have_a_turn_after_each_block_of_an_answer() -> None:
    reply, turns = await with_turns(JsonReply[list[int]].in_pieces(array([0] * BLOCK * 5, 1024)))
    assert len(reply.blocks) > 5
    assert turns >= len(reply.blocks) - 1
    assert orjson.loads(b"".join(reply.blocks)) == [0] * BLOCK * 5
    assert reply.headers["content-length"] == str(sum(map(len, reply.blocks)))


def check_pieces(pieces: list[bytes], least: int) -> None:
    assert len(pieces) >= least
    assert max(map(len, pieces)) <= MOST


@pytest.mark.anyio
async def test_a_chat_with_many_choices_is_encoded_in_pieces() -> None:
    options = ChatOptions(
        n=8, logprobs=True, report=Report(token_ids=True, timings=True), deprecated_calls=False, service_tier=False
    )
    head = chat_head(options, "tiny", "fp")
    pieces = list(await chat_completion(head, options, PROMPT, ([1],), answered(8), {}))
    check_pieces(pieces, 8 * 20)
    whole = orjson.loads(b"".join(pieces))
    assert [choice["index"] for choice in whole["choices"]] == list(range(8))
    assert all(len(choice["logprobs"]["content"]) == len(DETAILS) for choice in whole["choices"])
    assert whole["prompt_token_ids"] == [1]


COMPLETION = CompletionOptions(n=8, choices=8, echo=False, logprobs=True, report=Report())


@pytest.mark.anyio
async def test_a_completion_with_many_choices_is_encoded_in_pieces() -> None:
    pieces = list(await completion(completion_head(COMPLETION, "tiny", "fp"), COMPLETION, (), answered(8)))
    check_pieces(pieces, 8 * 4 * 20)
    whole = orjson.loads(b"".join(pieces))
    assert all(len(choice["logprobs"]["top_logprobs"]) == len(DETAILS) for choice in whole["choices"])


@pytest.mark.anyio
async def test_others_have_a_turn_after_each_choice_that_is_compared() -> None:
    options = CompletionOptions(n=1, choices=8, echo=False, logprobs=False, report=Report())
    chosen, turns = await with_turns(best(answered(8), options))
    assert len(chosen) == 1
    assert turns >= 7


def test_an_event_of_many_tokens_is_encoded_in_pieces() -> None:
    """With `echo`, the first event has all tokens of the prompt."""
    chunks = CompletionChunks(completion_head(COMPLETION, "tiny", "fp"), COMPLETION, ())
    pieces = list(chunks.encode((1,), [Text(0, "a" * len(DETAILS), DETAILS)]))
    check_pieces(pieces, 4 * 20)
    event = orjson.loads(b"".join(pieces).removeprefix(b"data: "))
    offsets = event["choices"][0]["logprobs"]["text_offset"]
    assert offsets == list(range(len(DETAILS)))


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_each_vector_is_a_piece(encoding: str) -> None:
    call = prepare_embedding(EmbeddingBody.model_validate({"input": ["a"] * 100, "encoding_format": encoding}))
    pieces = list(embeddings("tiny", call.shape, EmbeddingResult((bytes(4 * 1024),) * 100, (1,) * 100)))
    check_pieces(pieces, 100)
    assert [vector["index"] for vector in orjson.loads(b"".join(pieces))["data"]] == list(range(100))


@pytest.mark.anyio
async def test_a_long_text_is_read_in_pieces() -> None:
    text = "a b c" * CHARACTERS_PER_PIECE
    (message, _), turns = await with_turns(read_message(PROMPT, text, deprecated=False))
    assert message["content"] == text
    assert turns >= 4
