"""What a body of many or long fields may cost."""

import logging

import orjson
import pytest
from starlette.requests import Request

from engine import RequestError
from gateway.dialects.completion import CompletionBody
from gateway.edge.body import body_once
from gateway.routes.body import BodyReader

pytestmark = pytest.mark.anyio


def request_of(**fields: object) -> Request:
    return Request({"type": "http"}, body_once(orjson.dumps({"prompt": "x", **fields})))


async def test_of_an_unknown_name_only_the_beginning_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    reader = BodyReader()
    with caplog.at_level(logging.WARNING, "gateway.routes.body"):
        await reader.read(request_of(**{"x" * 100_000: 1, "x" * 100_001: 1}), CompletionBody)
        await reader.read(request_of(**{"x" * 80: 1}), CompletionBody)
    assert reader.noted == {"x" * 80}
    assert len(caplog.records) == 1


async def test_fields_are_bounded() -> None:
    reader = BodyReader()
    most = {f"f{i}": i for i in range(reader.most_fields - 1)}
    assert len((await reader.read(request_of(**most), CompletionBody)).model_extra or ()) == len(most)
    with pytest.raises(RequestError, match="at most 400 fields"):
        await reader.read(request_of(**most, more=1), CompletionBody)
