"""Bodies in the log, which an operator can ask for."""

import logging

import pytest

from gateway.middleware.exchange import MAX_CONTENT, Content, Exchange
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


async def test_bodies_are_in_the_log_only_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await post(app_of(FakeEngine()), "/v1/completions", {"prompt": "canary"})
    assert "canary" not in str([vars(record) for record in caplog.records])
    call = await post(app_of(FakeEngine(), log_content=True), "/v1/completions", {"prompt": "canary", "stream": True})
    (line,) = [vars(record) for record in caplog.records if record.name == "gateway.content"]
    assert line["request"] == '{"prompt":"canary","stream":true}'
    assert line["response"] == call.content.decode()
    assert line["request_id"] == call.header("x-request-id")


async def test_long_bodies_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await AsgiCall(app_of(FakeEngine(), log_content=True), "/v1/completions", b"x" * (MAX_CONTENT + 1)).run()
    (line,) = [vars(record) for record in caplog.records if record.name == "gateway.content"]
    assert line["request"] == "x" * MAX_CONTENT


async def test_long_answers_are_cut_also_if_they_come_in_pieces() -> None:
    content = Content()
    exchange = Exchange(content=content)
    for piece in (b"a" * (MAX_CONTENT - 1), b"bc", b"d"):
        exchange.count_sent(piece)
    assert (content.response, exchange.sent) == (b"a" * (MAX_CONTENT - 1) + b"b", MAX_CONTENT + 2)


async def test_bodies_of_probes_and_scrapes_are_debug_lines_as_their_access_lines_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    for path in ("/health", "/metrics"):
        await get(app_of(FakeEngine(), log_content=True), path)
    levels = [record.levelno for record in caplog.records if record.name == "gateway.content"]
    assert levels == [logging.DEBUG, logging.DEBUG]
