"""Frames: every message arrives unchanged, however the pipe cuts it."""

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import codec
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import Generate, LoadFailed, Message
from engine.request import GenerationRequest

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bool: st.booleans(),
    types.NoneType: st.none(),
}
_COMPOUNDS: dict[Any, Callable[..., st.SearchStrategy[Any]]] = {
    tuple: st.tuples,
    dict: partial(st.dictionaries, max_size=4),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type that a frame carries, every field of a struct or a dataclass included."""
    if kind in SCALARS:
        return SCALARS[kind]
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)):
        return st.builds(kind, **{name: values(hint) for name, hint in typing.get_type_hints(kind).items()})
    arguments = typing.get_args(kind)
    match typing.get_origin(kind), arguments:
        case types.UnionType | typing.Union, _:
            return st.one_of(*map(values, arguments))
        case _, (item, end) if end is ...:
            return st.lists(values(item), max_size=4).map(tuple)
        case origin, _ if origin in _COMPOUNDS:
            return _COMPOUNDS[origin](*map(values, arguments))
    return st.from_type(kind)


messages = st.one_of(*(values(kind) for kind in typing.get_args(Message)))


@given(messages)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    (received,) = Decoder().feed(encode(message))
    assert received == message
    assert _typed(received) == _typed(message)


def _typed(message: Message) -> str:
    """Return a text that differs where values are equal and their types are not: 1, 1.0 and True."""
    return repr(msgspec.to_builtins(message, order="deterministic"))


@given(st.lists(messages, max_size=4), st.data())
def test_messages_survive_any_cut_of_the_pipe(sent: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = Decoder()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [message for piece in pieces for message in decoder.feed(piece)] == sent


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        *map(
            msgspec.msgpack.encode,
            [
                5,
                None,
                [],
                [[], {}],
                ["Nothing", {}],
                ["Cancel"],
                ["Cancel", "7"],
                ["Cancel", {"name": 1}],
                ["Cancel", 7, 8],
                ["Accepted", []],
                ["Step", [[1, ["unheard"]]], {}],
                ["Answered", 1, ["Inspected", 3]],
                ["Ask", 1, ["Inspected"]],
            ],
        ),
    ],
)
def test_an_invalid_message_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no message"):
        Decoder().feed(len(body).to_bytes(4) + body)


def test_text_that_is_not_utf_8_is_refused() -> None:
    body = msgspec.msgpack.encode(["LoadFailed", "xy"]).replace(b"xy", b"\xff\xff")
    with pytest.raises(ValueError, match="no message"):
        Decoder().feed(len(body).to_bytes(4) + body)


def test_an_absurd_length_is_refused_before_its_body_comes() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Decoder().feed((codec.MAX_FRAME + 1).to_bytes(4))


def test_a_message_too_long_for_a_frame_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_FRAME", 100)
    with pytest.raises(ValueError, match="a frame of"):
        encode(LoadFailed("x" * 100))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"prompts": ("\ud800",)}, "surrogates"),
        ({"prompts": ((2**64,),)}, "64-bit"),
        ({"max_tokens": -(2**63) - 1}, "64-bit"),
    ],
)
def test_a_value_that_a_frame_cannot_carry_is_not_sent(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode(Generate(1, GenerationRequest(**{"id": "r", "prompts": ("p",), **fields})))
