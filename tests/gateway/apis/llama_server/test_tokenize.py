"""`POST /tokenize` and `/detokenize`, in llama-server's shapes."""

from typing import Any

import orjson
import pytest

from engine import Busy, TokenRun
from gateway.apis.llama_server.tokenize.answer import TokensEncoder
from gateway.apis.llama_server.tokenize.request import MAX_TEXT
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import BOS, CONTROL, MODEL, FakeEngine

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"content": "hi"}, [104, 105]),
        ({"prompt": "hi"}, [BOS, 104, 105]),
        ({"content": ""}, []),
        ({"content": "a<c>"}, [97, CONTROL]),
        ({"content": "<c>", "parse_special": False}, [60, 99, 62]),
        ({"content": "a", "add_special": True}, [BOS, 97]),
        ({"prompt": "a", "add_special_tokens": True}, [BOS, 97]),
        ({"prompt": "a", "add_special_tokens": False}, [97]),
        ({"prompt": "a", "add_special": False}, [97]),
        (
            {"content": "aé", "with_pieces": True},
            [{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}],
        ),
    ],
)
async def test_tokenize_returns_the_tokens_of_a_text(body: dict[str, Any], tokens: list[Any]) -> None:
    reply = await post(app_of(FakeEngine()), "/tokenize", body)
    expected = {"tokens": tokens, "count": len(tokens), "max_model_len": MODEL.context}
    assert (reply.status, reply.json) == (200, expected)


@pytest.mark.parametrize(
    "body", [{}, {"content": 5}, {"content": "a", "prompt": "b"}, {"content": "a" * (MAX_TEXT + 1)}, {"prompt": ["a"]}]
)
async def test_an_invalid_text_to_tokenise_is_a_400(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), "/tokenize", body)
    assert (reply.status, engine.tokenized) == (400, [])


@pytest.mark.parametrize(("body", "param"), [({}, "content"), ({"content": "hi", "prompt": "x"}, "prompt")])
async def test_exactly_one_text_is_tokenised(body: dict[str, Any], param: str) -> None:
    reply = await post(app_of(FakeEngine()), "/tokenize", body)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("tokens", "content"), [([104, 105], "hi"), ([], ""), ([195], "\ufffd"), ([195, 169, CONTROL], "é<c>")]
)
async def test_detokenize_returns_the_text_of_tokens(tokens: list[int], content: str) -> None:
    reply = await post(app_of(FakeEngine()), "/detokenize", {"tokens": tokens})
    assert (reply.status, reply.json) == (200, {"content": content, "prompt": content})


@pytest.mark.parametrize(
    ("tokens", "param"),
    [
        ([512], "tokens"),
        ([1, -1], "tokens[1]"),
        (["a"], "tokens[0]"),
        ([True], "tokens[0]"),
        ("abc", "tokens"),
        (None, "tokens"),
    ],
)
async def test_an_invalid_token_to_detokenise_is_a_400(tokens: object, param: str) -> None:
    reply = await post(app_of(FakeEngine()), "/detokenize", {"tokens": tokens})
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_an_unknown_model_is_a_404(path: str) -> None:
    reply = await post(app_of(FakeEngine()), path, {"model": "other", "content": "a", "tokens": [1]})
    assert reply.status == 404


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [1]})])
async def test_too_many_queries_of_a_client_are_a_429(path: str, body: dict[str, Any]) -> None:
    engine = FakeEngine()
    engine.refusal = Busy("too many", code="queue_full")
    reply = await post(app_of(engine), path, body)
    assert (reply.status, reply.json["error"]["reason"]) == (429, "queue_full")


@pytest.mark.parametrize("with_pieces", [False, True])
def test_a_long_answer_is_encoded_part_by_part(with_pieces: bool) -> None:
    encoder = TokensEncoder(with_pieces=with_pieces)
    for start in range(0, 10, 3):
        ids = tuple(range(start, start + 3))
        encoder.add(TokenRun(0, ids, tuple(b"%d" % token for token in ids) if with_pieces else ()))
        encoder.add(TokenRun(0, ()))
    expected = [{"id": token, "piece": str(token)} if with_pieces else token for token in range(12)]
    assert orjson.loads(b"".join(encoder.parts(64))) == {"tokens": expected, "count": 12, "max_model_len": 64}
