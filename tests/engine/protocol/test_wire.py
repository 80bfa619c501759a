"""The frames: whatever is sent arrives, however the pipe cuts it."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import wire
from engine.request import GenerationRequest, Sampling

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
    """Values of a type that a frame carries, every field of a dataclass included."""
    if kind in SCALARS:
        return SCALARS[kind]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{field.name: values(hints[field.name]) for field in dataclasses.fields(kind)})
    arguments = typing.get_args(kind)
    match typing.get_origin(kind), arguments:
        case types.UnionType | typing.Union, _:
            return st.one_of(*map(values, arguments))
        case _, (item, end) if end is ...:
            return st.lists(values(item), max_size=4).map(tuple)
        case origin, _ if origin in _COMPOUNDS:
            return _COMPOUNDS[origin](*map(values, arguments))
    return st.from_type(kind)


messages = st.one_of(*(values(kind) for kind in typing.get_args(wire.Message)))


def test_every_kind_of_message_is_tried() -> None:
    assert {kind.__name__ for kind in typing.get_args(wire.Message)} == set(wire._READERS)


@given(messages)
def test_a_message_arrives_as_it_was_sent(message: wire.Message) -> None:
    (received,) = wire.Decoder().feed(wire.encode(message))
    assert received == message
    assert repr(received) == repr(message)


@given(st.lists(messages, max_size=4), st.data())
def test_the_pipe_may_cut_anywhere(sent: list[wire.Message], data: st.DataObject) -> None:
    stream = b"".join(map(wire.encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = wire.Decoder()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [message for piece in pieces for message in decoder.feed(piece)] == sent


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"5",
        b"null",
        b"[]",
        b"[[],{}]",
        b'["Nothing",{}]',
        b'["Cancel"]',
        b'["Cancel",7]',
        b'["Cancel",{"name":1}]',
        b'["Accepted",[]]',
        b'["Step",[[[1,"unheard"]],{}]]',
        b'["Inspected",{"ticket":1,"slots":3}]',
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no message"):
        wire.Decoder().feed(len(body).to_bytes(4) + body)


def test_an_absurd_length_is_refused_before_its_body_comes() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        wire.Decoder().feed((wire.MAX_FRAME + 1).to_bytes(4))


def test_a_message_too_long_for_a_frame_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME", 100)
    with pytest.raises(ValueError, match="a frame of"):
        wire.encode(wire.LoadFailed("x" * 100))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"prompts": ("\ud800",)}, "surrogates"),
        ({"prompts": ((2**64,),)}, "64-bit"),
        ({"max_tokens": -(2**63) - 1}, "64-bit"),
        ({"sampling": Sampling(temperature=math.inf)}, "finite"),
        ({"sampling": Sampling(logit_bias=((1, math.nan),))}, "finite"),
    ],
)
def test_what_json_cannot_carry_is_not_sent(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wire.encode(wire.Generate(1, GenerationRequest(**{"id": "r", "prompts": ("p",), **fields})))


def test_biases_are_checked_without_a_copy() -> None:
    class Bias(int):
        def __deepcopy__(self, memo: dict[int, Any]) -> "Bias":
            raise AssertionError("a copy")

    request = GenerationRequest(id="r", prompts=("p",), sampling=Sampling(logit_bias=((1, Bias(2)),)))
    (message,) = wire.Decoder().feed(wire.encode(wire.Generate(1, request)))
    assert message == wire.Generate(1, request)
