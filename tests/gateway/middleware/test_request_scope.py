"""The scope of one request: body, id, deadline, hang-up."""

import math

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from engine.errors import Busy
from gateway.middleware.caller import Caller, Cause, caller_of
from gateway.middleware.disconnect import EXTENSION, OnDisconnect
from gateway.middleware.request_id import current_request_id
from gateway.server.limits import ServerLimits
from tests.gateway.middleware.exchange import Exchange, part
from tests.gateway.server.apps import OK, Probe, chunk, hello, scoped
from tests.gateway.server.sockets import Answer, get, post, serving

pytestmark = pytest.mark.anyio


def error_of(answer: Answer) -> dict[str, str | None]:
    error: dict[str, str | None] = orjson.loads(answer.body)["error"]
    return error


# Body


async def test_the_body_arrives_whole_and_once() -> None:
    exchange = Exchange(part(b"one ", more=True), part(b"two"))

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() == part(b"one two")
        with anyio.move_on_after(0) as waited:
            await receive()
        assert waited.cancelled_caught
        await send(OK)
        await send(chunk(b"", more=False))

    await scoped(app)(exchange.scope, exchange.receive, exchange.send)
    assert len(exchange.sent) == 2


@pytest.mark.parametrize(
    "upload",
    [
        post(b"x" * 101),
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 101\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n",
    ],
    ids=["declared", "only declared", "chunked"],
)
async def test_a_body_over_its_limit_is_a_413(upload: bytes) -> None:
    async with serving(scoped(hello, body=100), ServerLimits(linger=0.05)) as site:
        answer = await site.ask(upload)
        assert answer.status == 413
        assert error_of(answer)["code"] == "request_too_large"
        assert answer.headers["x-request-id"].startswith("req_")
        assert (await site.ask(post(b"x" * 100))).status == 200


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("zstd, gzip", 415), ("Identity", 200), ("", 200)])
async def test_a_compressed_body_is_a_415(encoding: str, status: int) -> None:
    upload = f"POST / HTTP/1.1\r\nhost: x\r\ncontent-encoding: {encoding}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
    async with serving(scoped(hello), ServerLimits(linger=0.05)) as site:
        answer = await site.ask(upload)
        assert answer.status == status
        if status == 415:
            assert error_of(answer)["code"] == "unsupported_encoding"
            assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("limits", "status", "code"),
    [
        ({"body_timeout": 0.05}, 408, "request_timeout"),
        ({"body_timeout": 1000, "request_timeout": 0.05}, 504, "deadline_exceeded"),
    ],
)
async def test_a_body_that_is_too_slow_is_refused(limits: dict[str, float], status: int, code: str) -> None:
    async with serving(scoped(hello, **limits), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab")
        answer = await client.answer()
        assert (answer.status, error_of(answer)["code"]) == (status, code)
        assert answer.headers["connection"] == "close"
        assert await client.is_closed()


# Hang-ups, beyond those over real sockets in test_hangups.py


@pytest.mark.parametrize("last", [chunk(b"whole", more=False), {"type": "http.response.body", "body": b"whole"}])
async def test_a_disconnect_after_the_last_byte_does_not_cancel_the_request(last: Message) -> None:
    """Hypercorn reports a disconnect after every response; the application still has work to do then."""
    exchange = Exchange(part(b""))
    ended = anyio.Event()
    callers: list[Caller] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        callers.append(caller_of(scope))
        await send(OK)
        exchange.messages.append({"type": "http.disconnect"})
        await send(last)
        await anyio.wait_all_tasks_blocked()
        ended.set()

    await scoped(app)(exchange.scope, exchange.receive, exchange.send)
    assert ended.is_set()
    assert [caller.closing.reason for caller in callers] == [""]


class Leaving:
    """A client whose whole request has arrived, and that leaves when a test says so."""

    leave: OnDisconnect

    def on_disconnect(self, call: OnDisconnect) -> None:
        self.leave = call

    def take_body(self, _limit: int) -> bytes:
        return b""


async def test_a_client_that_leaves_after_its_deadline_does_not_hide_it() -> None:
    exchange, client, callers = Exchange(), Leaving(), list[Caller]()

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        callers.append(caller_of(scope))
        try:
            await anyio.sleep_forever()
        finally:
            client.leave({"type": "http.disconnect"})

    scope = {**exchange.scope, "extensions": {EXTENSION: client}}
    await scoped(app, request_timeout=0)(scope, exchange.receive, exchange.send)
    assert [caller.closing.cause for caller in callers] == [Cause.DEADLINE]


async def test_a_disconnect_without_a_reason_has_a_default_one() -> None:
    exchange = Exchange(part(b""), {"type": "http.disconnect"})
    probe = Probe()
    await scoped(probe)(exchange.scope, exchange.receive, exchange.send)
    assert probe.closing.reason == "client closed the connection"


async def test_the_scope_waits_for_the_release() -> None:
    """When it returns, the request holds no resource: shielded clean-up relies on that."""
    exchange = Exchange(part(b""), {"type": "http.disconnect"})
    released = anyio.Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                released.set()

    await scoped(app)(exchange.scope, exchange.receive, exchange.send)
    assert released.is_set()
    assert exchange.sent == []


# Errors


async def test_an_exception_before_the_head_becomes_its_response() -> None:
    async def busy(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise Busy("Too many.", code="queue_full")

    async with serving(scoped(busy)) as site:
        answer = await site.ask(post())
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert error_of(answer)["code"] == "queue_full"


async def test_an_exception_after_the_head_is_raised_to_the_server() -> None:
    exchange = Exchange(part(b""))
    failure = ValueError("late")

    async def fail(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        raise failure

    with pytest.raises(ValueError, match="late") as caught:
        await scoped(fail)(exchange.scope, exchange.receive, exchange.send)
    assert caught.value is failure


async def test_a_defect_shows_only_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a secret")

    async with serving(scoped(fail)) as site:
        answer = await site.ask(get(headers="x-request-id: mine\r\n"))
    assert (answer.status, answer.headers["x-should-retry"]) == (500, "false")
    assert b"secret" not in answer.body
    assert "mine" in (error_of(answer)["message"] or "")
    (record,) = caplog.records
    assert record.exc_info
    assert "a secret" in str(record.exc_info[1])


async def test_an_application_without_a_response_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def mute(_scope: Scope, _receive: Receive, _send: Send) -> None:
        return

    async with serving(scoped(mute)) as site:
        answer = await site.ask(get())
    assert (answer.status, error_of(answer)["code"]) == (500, "internal_error")
    assert "ended without a response" in caplog.text


# Deadline


async def test_a_deadline_before_the_head_is_504() -> None:
    probe = Probe()
    async with serving(scoped(probe, request_timeout=0.05)) as site:
        answer = await site.ask(post())
        assert (answer.status, error_of(answer)["code"]) == (504, "deadline_exceeded")
        assert answer.headers["x-should-retry"] == "false"
    assert probe.closing.reason == "the request's deadline passed"


async def test_the_deadline_ends_with_the_last_byte() -> None:
    exchange = Exchange(part(b""))
    deadlines: list[float] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        deadlines.append(anyio.current_effective_deadline())
        await send(chunk(b"whole", more=False))
        deadlines.append(anyio.current_effective_deadline())

    began = anyio.current_time()
    await scoped(app, request_timeout=100)(exchange.scope, exchange.receive, exchange.send)
    before, after = deadlines
    assert began + 100 <= before < math.inf
    assert after == math.inf


async def test_a_deadline_after_the_head_cuts_a_stock_response() -> None:
    probe = Probe(stream=True)
    async with serving(scoped(probe, request_timeout=0.05), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(get())
        assert not (await client.read_to_end()).endswith(b"0\r\n\r\n")
        await site.server.count_falls_to(0)


# Ids


@pytest.mark.parametrize("given", ["mine", "a b/c:d=e", "x" * 128])
async def test_a_request_id_is_accepted(given: str) -> None:
    async with serving(scoped(tell_id)) as site:
        answer = await site.ask(get(headers=f"X-Request-ID: {given}\r\n"))
        assert answer.headers["x-request-id"] == given
        assert answer.body.decode() == f"{given} {given}"


@pytest.mark.parametrize("given", ["", "x" * 129, "caf\xe9", "tab\there"])
async def test_a_request_id_is_made(given: str) -> None:
    async with serving(scoped(tell_id)) as site:
        request = get().replace(b"\r\n\r\n", b"\r\nx-request-id: " + given.encode("latin-1") + b"\r\n\r\n")
        first, second = [(await site.ask(request)).headers["x-request-id"] for _ in range(2)]
        assert first.startswith("req_")
        assert first != second


async def tell_id(scope: Scope, _receive: Receive, send: Send) -> None:
    await send(OK)
    await send(chunk(f"{caller_of(scope).request_id} {current_request_id.get()}".encode(), more=False))
