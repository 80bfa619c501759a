"""Unknown fields of bodies are reported, within bounds, or refused."""

import logging
from dataclasses import replace

import orjson
import pytest

from engine import RequestError
from gateway.apis.fields.read import MAX_FIELDS, ReadBody, read_body
from gateway.apis.openai.completions.request import CompletionBody
from gateway.middleware.caller import Caller
from gateway.preparation.unknown_fields import IGNORED, UnknownFields
from tests.gateway.application import apis

CALLER = Caller(request_id="req_1")
COMPLETIONS = next(one for api in apis() for one in api.endpoints if one.id == "createCompletion")


def read(fields: dict[str, object]) -> ReadBody[CompletionBody]:
    return read_body(orjson.dumps({"prompt": "x", **fields}), CompletionBody)


def report(
    reporter: UnknownFields, fields: dict[str, object], caller: Caller = CALLER, path: str = "/v1/completions"
) -> None:
    reporter.report(caller, replace(COMPLETIONS, path=path), {}, read(fields).unknown)


def reported(**fields: object) -> bytes | None:
    """Return the header that names the ignored fields."""
    caller = Caller(request_id="req_1")
    report(UnknownFields(), fields, caller)
    headers = caller.reply_headers
    assert [name for name, _ in headers] == [IGNORED] * len(headers)
    return headers[0][1] if headers else None


def test_a_long_unknown_field_name_is_truncated(caplog: pytest.LogCaptureFixture) -> None:
    reporter = UnknownFields()
    with caplog.at_level(logging.WARNING, "gateway.preparation.unknown_fields"):
        report(reporter, {"x" * 100_000: 1, "x" * 100_001: 1})
        report(reporter, {"x" * 80: 1})
    assert reporter.logged == {("/v1/completions", "x" * 80)}
    assert len(caplog.records) == 1


def test_the_log_of_unknown_fields_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    reporter = UnknownFields()
    with caplog.at_level(logging.WARNING, "gateway.preparation.unknown_fields"):
        for first in range(0, 2 * reporter.max_logged, 128):
            report(reporter, {f"f{number}": 1 for number in range(first, first + 128)})
    assert len(caplog.records) == len(reporter.logged) == reporter.max_logged


def test_the_log_names_the_path_where_a_field_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    reporter = UnknownFields()
    with caplog.at_level(logging.WARNING, "gateway.preparation.unknown_fields"):
        for path in ("/v1/responses", "/v1/completions", "/v1/responses"):
            report(reporter, {"messages": []}, path=path)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["/v1/responses", "/v1/completions"]


def test_the_number_of_fields_is_bounded() -> None:
    most = {f"f{i}": i for i in range(MAX_FIELDS - 1)}
    assert len(read({**most}).unknown) == len(most)
    with pytest.raises(RequestError, match="at most 400 fields"):
        read({**most, "more": 1})


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


def test_a_strict_report_refuses_unknown_fields() -> None:
    reporter = UnknownFields(strict=True)
    report(reporter, {"top_k": 1})
    options: dict[str, object] = {"stream": True, "stream_options": {"a": 1}}
    cases: list[tuple[dict[str, object], str]] = [({"zip": 1}, "zip"), (options, "stream_options.a")]
    for fields, name in cases:
        with pytest.raises(RequestError, match=f"Unknown field: '{name}'") as caught:
            report(reporter, fields)
        assert (caught.value.code, caught.value.param) == ("unknown_parameter", name)
    assert not reporter.logged
