"""Bounds on the cost of a body with many or long fields."""

import logging

import orjson
import pytest

from engine import RequestError
from gateway.apis.fields.read import IGNORED, BodyReader
from gateway.apis.openai.completions.request import CompletionBody
from gateway.middleware.caller import Caller

CALLER = Caller(request_id="req_1")


def read(reader: BodyReader, fields: dict[str, object], caller: Caller = CALLER) -> CompletionBody:
    return reader.read(caller, orjson.dumps({"prompt": "x", **fields}), CompletionBody)


def reported(**fields: object) -> bytes | None:
    """Return the header that names the ignored fields."""
    caller = Caller(request_id="req_1")
    read(BodyReader(), fields, caller)
    headers = caller.reply_headers
    assert [name for name, _ in headers] == [IGNORED] * len(headers)
    return headers[0][1] if headers else None


def test_a_long_unknown_field_name_is_truncated(caplog: pytest.LogCaptureFixture) -> None:
    reader = BodyReader()
    with caplog.at_level(logging.WARNING, "gateway.apis.fields.read"):
        read(reader, {"x" * 100_000: 1, "x" * 100_001: 1})
        read(reader, {"x" * 80: 1})
    assert reader.logged == {"x" * 80}
    assert len(caplog.records) == 1


def test_the_number_of_fields_is_bounded() -> None:
    reader = BodyReader()
    most = {f"f{i}": i for i in range(reader.max_fields - 1)}
    assert len((read(reader, {**most})).model_extra or ()) == len(most)
    with pytest.raises(RequestError, match="at most 400 fields"):
        read(reader, {**most, "more": 1})


def test_a_header_names_the_ignored_fields() -> None:
    assert reported(top_p=1, user="me") is None
    assert reported(zip=1, nothing=None) == b"zip"
    assert reported(b=1, a=2) == b"b, a"


def test_ignored_fields_inside_an_object_are_named_with_their_path() -> None:
    options = {"include_usage": True, "often": True}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"any": 1}, "id": 3}}
    named = reported(stream=True, stream_options=options, response_format=schema, zip=1)
    assert named == b"zip, stream_options.often, response_format.json_schema.id"


def test_the_header_is_safe_and_bounded() -> None:
    assert reported(**{"a\r\nb, c": 1, "ж": 2}) == b"a??b? c, ?"
    named = (reported(**{f"{i:03}" + "x" * 100: 1 for i in range(300)})) or b""
    assert named.startswith(b"000" + b"x" * 77 + b", 001")
    assert named.endswith(b", and 268 more")
    assert len(named.split(b", ")) == 33


def test_a_strict_reader_refuses_unknown_fields() -> None:
    reader = BodyReader(strict=True)
    read(reader, {"top_k": 1})
    options: dict[str, object] = {"stream": True, "stream_options": {"a": 1}}
    cases: list[tuple[dict[str, object], str]] = [({"zip": 1}, "zip"), (options, "stream_options.a")]
    for fields, name in cases:
        with pytest.raises(RequestError, match=f"Unknown field: '{name}'") as caught:
            read(reader, fields)
        assert (caught.value.code, caught.value.param) == ("unknown_parameter", name)
    assert not reader.logged
