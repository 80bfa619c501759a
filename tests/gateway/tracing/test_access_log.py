"""The access line: one for each request, with all its figures."""

import logging
from functools import partial
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from engine import RequestError
from engine.logs import JsonFormatter, TextFormatter
from gateway.keys.key import Key
from gateway.middleware.exchange import Exchange
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.server.limits import ServerLimits
from gateway.serving.records import Outcome
from gateway.tracing.journal import Journal
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.server.apps import OK, Probe, hello
from tests.gateway.server.sockets import get as get_bytes
from tests.gateway.server.sockets import post as post_bytes
from tests.gateway.server.sockets import serving
from tests.gateway.tracing.requests import PATH, Served, exchange_of, record_of

pytestmark = pytest.mark.anyio

ACCESS = "gateway.access"
FIELDS = ("status", "outcome", "cause", "method", "path")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the fields of all access lines."""
    return [vars(record) for record in caplog.records if record.name == ACCESS]


def only(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (line,) = lines(caplog)
    return line


def seen(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in FIELDS)


async def test_a_line_has_all_figures_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    served = Served(None, record_of, key=Key(id="key_1", name="one"))
    await served.ask(**{"x-request-id": "req_mine"})
    line = only(caplog)
    assert (line["levelname"], line["message"], seen(line)) == (
        "INFO",
        "request ended",
        (200, "finished", None, "POST", PATH),
    )
    figures = {
        "request_id": "req_mine",
        "key": "key_1",
        "model": "tiny",
        "stream": True,
        "prompt_tokens": 12,
        "cached_tokens": 4,
        "completion_tokens": 6,
        "queue_ms": 1000.0,
        "first_token_ms": 1500.0,
        "phase": "done",
        "bytes_in": 2,
        "bytes_out": 5,
    }
    assert line.items() >= figures.items()
    assert line["total_ms"] >= 0


async def test_a_cancel_has_its_phase_cause_and_release(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ended: dict[str, Any] = {
        "outcome": Outcome.CANCELLED,
        "phase": "decode",
        "cause": "slow_reader",
        "release_seconds": 0.0042,
    }
    await Served(None, partial(record_of, **ended)).ask()
    line = only(caplog)
    assert (line["outcome"], line["phase"], line["cause"], line["release_ms"]) == (
        "cancelled",
        "decode",
        "slow_reader",
        4.2,
    )


def test_a_background_response_has_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    journal = Journal()
    exchange = exchange_of(ended_at=None)
    journal.record(record := record_of(exchange, outcome=None))
    exchange.ended_at = 10.1
    journal.end(exchange)
    record.outcome = Outcome.FINISHED
    journal.record(record)
    first, second = lines(caplog)
    assert (first["message"], first["background"], first["model"], first["outcome"]) == (
        "request ended",
        True,
        "tiny",
        "finished",
    )
    assert "prompt_tokens" not in first
    assert (second["message"], second["request_id"], second["completion_tokens"], second["total_ms"]) == (
        "background response ended",
        "req_1",
        6,
        2000.0,
    )
    assert journal._records == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v1/models", b"", (200, "finished", None)),
        ("GET", "/v1/models/nothing", b"", (404, "refused", "model_not_found")),
        ("GET", "/nowhere", b"", (404, "refused", "not_found")),
        ("DELETE", "/v1/completions", b"", (405, "refused", "method_not_allowed")),
        ("POST", "/v1/completions", b"{", (400, "refused", "invalid_json")),
        ("POST", "/v1/completions", b'{"prompt": "x", "n": "many"}', (400, "refused", "invalid_type")),
        ("POST", "/v1/completions", b"x" * 101, (413, "refused", "request_too_large")),
    ],
)
async def test_a_request_that_reaches_no_model_has_its_line(
    caplog: pytest.LogCaptureFixture, method: str, path: str, body: bytes, expected: tuple[Any, ...]
) -> None:
    caplog.set_level(logging.INFO)
    await AsgiCall(app_of(FakeEngine(), body_limit=100), path, body, method=method).run()
    assert seen(only(caplog)) == (*expected, method, path)


async def test_a_head_has_no_bytes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(logged()) as site:
        client = site.client()
        client.write(get_bytes("/one").replace(b"GET", b"HEAD"))
        assert (await client.answer("HEAD")).body == b""
    assert only(caplog)["bytes_out"] == 0


async def test_a_page_that_is_not_allowed_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await post(app_of(FakeEngine()), "/v1/completions", {"prompt": "x"}, origin="https://evil.example")
    assert seen(only(caplog))[:3] == (403, "refused", "origin_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_defect_has_its_line(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    def defect(_generation: object) -> None:
        raise KeyError

    app = app_of(FakeEngine(defect))
    await post(app, "/v1/completions", {"prompt": "x", "stream": stream})
    caplog.clear()
    caplog.set_level(logging.INFO)
    await post(app, "/v1/completions", {"prompt": "x", "stream": stream})
    assert seen(only(caplog))[:3] == (500, "failed", "internal_error")


async def test_a_defect_after_the_head_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        raise KeyError

    with pytest.raises(KeyError):
        await AsgiCall(logged(app), PATH).run()
    assert seen(only(caplog))[:3] == (200, "failed", "internal_error")


async def test_a_refusal_of_the_engine_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = FakeEngine()
    engine.refusal = RequestError("too long", code="context_length_exceeded")
    await post(app_of(engine), "/v1/completions", {"prompt": "x"})
    assert seen(only(caplog))[:3] == (400, "refused", "context_length_exceeded")


async def test_a_client_that_leaves_before_the_response_has_no_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(app_of(FakeEngine(lambda _: None)), "/v1/completions", b'{"prompt": "x"}').running() as call:
        await anyio.wait_all_tasks_blocked()
        call.hang_up()
    assert seen(only(caplog))[:3] == (None, "cancelled", "client_left")


@pytest.mark.parametrize(("level", "expected"), [(logging.INFO, 0), (logging.DEBUG, 1)])
async def test_a_probe_has_its_line_at_debug_only(caplog: pytest.LogCaptureFixture, level: int, expected: int) -> None:
    caplog.set_level(level)
    await get(app_of(FakeEngine()), "/health")
    assert len(lines(caplog)) == expected


async def test_a_query_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await AsgiCall(app_of(FakeEngine()), "/v1/models", method="GET", query="key=secret").run()
    assert "secret" not in caplog.text
    assert only(caplog)["path"] == "/v1/models"


async def test_the_line_can_be_switched_off(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger(ACCESS), "disabled", True)
    await get(app_of(FakeEngine()), "/v1/models")
    assert lines(caplog) == []


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
async def test_no_path_or_header_can_forge_a_line(
    caplog: pytest.LogCaptureFixture, formatter: logging.Formatter
) -> None:
    caplog.set_level(logging.DEBUG)
    forged = "/x\n2026-01-01T00:00:00.000Z INFO gateway forged\r\x1b[2J\x00\u2028\x85 status=200"
    await AsgiCall(app_of(FakeEngine()), "/", method="GET", headers={"x-request-id": "a\tb"}).run()
    journal = Journal()
    journal.end(exchange_of(path=forged, method="GET\nX"))
    for record in caplog.records:
        text = formatter.format(record)
        assert len(text.splitlines()) == 1
        assert text.isprintable()
        assert text.count(" status=") <= 2
    assert lines(caplog)[-1]["path"] == forged


async def test_a_long_path_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await get(app_of(FakeEngine()), "/" + "x" * 10_000)
    assert len(only(caplog)["path"]) == 256


# Over sockets


def logged(app: Any = hello) -> RequestScope:
    return RequestScope(app, RequestLimits(), observer=Journal())


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", (400, "refused", "invalid_http", None, None)),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", (400, "refused", "invalid_http", None, None)),
        (b"GET / HTTP/1.1\nhost: x\n\n", (400, "refused", "invalid_http", None, None)),
        (b"GET x HTTP/1.1\r\nhost: x\r\n\r\n", (400, "refused", "invalid_http", "GET", "x")),
        (b"GET /a?secret HTTP/1.2\r\nhost: x\r\n\r\n", (505, "refused", "invalid_http", "GET", "/a")),
    ],
    ids=["tls", "hosts", "line feeds", "target", "version"],
)
async def test_a_malformed_request_has_its_line(
    caplog: pytest.LogCaptureFixture, sent: bytes, expected: tuple[Any, ...]
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(logged(), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(sent)
        answer = await client.answer()
        await site.server.count_falls_to(0)
    line = only(caplog)
    assert seen(line) == expected
    assert (line["request_id"], line["client"]) == (answer.headers["x-request-id"], "127.0.0.1")


@pytest.mark.parametrize(
    ("header", "body", "status", "cause"),
    [
        ("x: y", "no size\r\n", 400, "invalid_http"),
        ("x: y", "5\r\nhello\r\n0\r\n" + "a: b\r\n" * 200 + "\r\n", 431, "invalid_http"),
        ("content-encoding: gzip", "no size\r\n", 415, "unsupported_encoding"),
    ],
    ids=["chunk", "trailers", "refused anyway"],
)
async def test_a_malformed_body_has_one_line_of_what_its_client_sees(
    caplog: pytest.LogCaptureFixture, header: str, body: str, status: int, cause: str
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(logged(), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(f"POST / HTTP/1.1\r\nhost: x\r\n{header}\r\ntransfer-encoding: chunked\r\n\r\n{body}".encode())
        answer = await client.answer()
        await site.server.count_falls_to(0)
    line = only(caplog)
    assert seen(line) == (status, "refused", cause, "POST", "/")
    assert (line["request_id"], line["status"]) == (answer.headers["x-request-id"], answer.status)


async def test_each_request_of_a_connection_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(logged()) as site:
        client = site.client()
        client.write(get_bytes("/one") + post_bytes(b"body", path="/two"))
        await client.answer()
        await client.answer("POST")
    assert [(line["path"], line["bytes_in"], line["bytes_out"]) for line in lines(caplog)] == [
        ("/one", 0, len(b"/one ")),
        ("/two", 4, len(b"/two body")),
    ]
    assert {line["client"] for line in lines(caplog)} == {"127.0.0.1"}


async def test_a_client_that_leaves_in_its_body_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(logged()) as site:
        client = site.client()
        client.write(post_bytes(b"body")[:-1])
        await anyio.wait_all_tasks_blocked()
        client.close()
        await site.server.count_falls_to(0)
    assert seen(only(caplog))[:3] == (None, "cancelled", "client_left")


async def test_a_client_that_leaves_in_the_middle_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    probe = Probe(stream=True)
    async with serving(logged(probe)) as site:
        client = site.client()
        client.write(post_bytes())
        await client.read_until(b"begun")
        client.close()
        await site.server.count_falls_to(0)
    line = only(caplog)
    assert (line["status"], line["outcome"], line["cause"], line["bytes_out"]) == (200, "cancelled", "client_left", 5)


def test_a_failure_to_log_is_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broken: Any = "broken"
    assert list(Journal(broken).begin(Exchange(), [])) == []
    Journal().end(Exchange(ended_at=broken))
    assert [record.getMessage() for record in caplog.records] == ["a request could not be logged"] * 2
