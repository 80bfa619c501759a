"""RFC 9112 where two servers could disagree about the end of a request (request smuggling).

Each refused case is followed by a second request in the same write. It must never be served.
"""

from contextlib import suppress

import orjson
import pytest
from starlette.types import Receive, Scope, Send

from gateway.server.hypercorn.chunked import MAX_EXTENSIONS, MAX_LINE, MAX_TRAILERS
from gateway.server.hypercorn.head import MAX_FIELDS
from gateway.server.limits import ServerLimits
from tests.backends import TRIO_FIRST
from tests.gateway.server.apps import hello, scoped
from tests.gateway.server.sockets import Client, Site, get, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]

BY_BYTE = 500
"""Bytes of a case that are written one by one."""
SMUGGLED = get("/smuggled")


def head(*fields: str, line: str = "POST / HTTP/1.1", host: str = "host: x") -> bytes:
    lines = [line, *([host] if host else []), *fields]
    return "".join(f"{text}\r\n" for text in lines).encode("latin-1") + b"\r\n"


def chunked(body: bytes, *fields: str) -> bytes:
    return head("transfer-encoding: chunked", *fields) + body


def target(text: str, method: str = "GET") -> bytes:
    return head(line=f"{method} {text} HTTP/1.1")


FIVE = b"5\r\nhello\r\n0\r\n\r\n"
LENGTH = "content-length: 5"
CHUNKED = "transfer-encoding: chunked"

REFUSED: dict[str, bytes] = {
    # 2.2: line ends and whitespace
    "bare LF behind the request line": b"POST / HTTP/1.1\nhost: x\r\ncontent-length: 5\r\n\r\nhello",
    "bare LF behind a header": b"POST / HTTP/1.1\r\nhost: x\ncontent-length: 5\r\n\r\nhello",
    "bare LF at the head's end": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\n\nhello",
    "only bare LF": b"GET / HTTP/1.1\nhost: x\n\n",
    "empty line with a bare LF": b"\n" + head(LENGTH) + b"hello",
    "bare CR in the request line": head(line="GET /\r HTTP/1.1"),
    "bare CR for a line end": head("a: b\rcontent-length: 5") + b"hello",
    "bare CR at a value's end": head("a: b\r") + b"hello",
    "bare CR at the head's end": b"GET / HTTP/1.1\r\nhost: x\r\r\n\r\n",
    "whitespace before the first header": b"GET / HTTP/1.1\r\n host: x\r\n\r\n",
    "whitespace before the method": b" " + get(),
    "NUL in a name": head("a\0b: c"),
    "NUL in a value": head("a: b\0c"),
    "NUL in the target": target("/\0"),
    # 3: request line
    "no version": head(line="GET /"),
    "lower-case version": head(line="GET / http/1.1"),
    "version with two digits": head(line="GET / HTTP/1.10"),
    "version with a sign": head(line="GET / HTTP/+1.1"),
    "two spaces before the version": head(line="GET /  HTTP/1.1"),
    "a tab in the request line": head(line="GET\t/ HTTP/1.1"),
    "whitespace behind the version": head(line="GET / HTTP/1.1 "),
    "a method that is no token": head(line="G(ET / HTTP/1.1"),
    # 3.2: target and Host
    "no host": head(host=""),
    "two hosts": head("host: y"),
    "two equal hosts": head("host: x"),
    "host with a path": head(host="host: x/y"),
    "host with user information": head(host="host: a@x"),
    "host with a space": head(host="host: x y"),
    "host with a comma list": head(host="host: x, y z"),
    "host with a port that is no number": head(host="host: x:8o"),
    "host with an open bracket": head(host="host: [::1"),
    "absolute target that does not parse": target("http://[::1/slots"),
    "absolute target without host": target("http:///slots"),
    "absolute target with only a port": target("http://:80/slots"),
    "absolute target with user information": target("http://a@localhost/slots"),
    "absolute target with an invalid port": target("http://localhost:99x/slots"),
    "absolute target of another scheme": target("ftp://localhost/slots"),
    "target without a slash": target("slots"),
    "target that is a query": target("?a=b"),
    "asterisk without OPTIONS": target("*"),
    "authority without CONNECT": target("localhost:80"),
    "CONNECT with a path": target("/", "CONNECT"),
    "CONNECT without a port": target("localhost", "CONNECT"),
    "target not ASCII": target("/\xff"),
    # 5: fields
    "whitespace before the colon": head("content-length : 5") + b"hello",
    "tab before the colon": head("transfer-encoding\t: chunked") + FIVE,
    "no colon": head("nonsense"),
    "empty name": head(": x"),
    "name not ASCII": head("n\xe4me: x"),
    "obs-fold with a space": head("a: b", " c"),
    "obs-fold with a tab": head("transfer-encoding:", "\tchunked") + FIVE,
    "obs-fold of a length": head("content-length:", " 5") + b"hello",
    # 6.1 and 6.3: which body
    "length and chunked": head(LENGTH, CHUNKED) + FIVE,
    "chunked and length": head(CHUNKED, LENGTH) + FIVE,
    "length and an unknown coding": head(LENGTH, "transfer-encoding: x") + b"hello",
    "length and an empty coding": head(LENGTH, "transfer-encoding:") + b"hello",
    "chunked on HTTP/1.0": head(CHUNKED, line="POST / HTTP/1.0") + FIVE,
    "chunked with keep-alive on HTTP/1.0": head(CHUNKED, "connection: keep-alive", line="POST / HTTP/1.0") + FIVE,
    "a coding that is not chunked": head("transfer-encoding: zip"),
    "identity": head("transfer-encoding: identity"),
    "chunked not last": head("transfer-encoding: chunked, gzip") + FIVE,
    "chunked not last, in two lines": head(CHUNKED, "transfer-encoding: identity") + FIVE,
    "chunked twice": head("transfer-encoding: chunked, chunked") + FIVE,
    "chunked twice, in two lines": head(CHUNKED, CHUNKED) + FIVE,
    "chunked with a parameter": head("transfer-encoding: chunked;q=1") + FIVE,
    "chunked in quotes": head('transfer-encoding: "chunked"') + FIVE,
    "chunked behind a vertical tab": head("transfer-encoding: \x0bchunked") + FIVE,
    "a coding that begins like chunked": head("transfer-encoding: chunkedx") + FIVE,
    "no coding": head("transfer-encoding:"),
    "two lengths": head(LENGTH, "content-length: 6") + b"hello",
    "two equal lengths": head(LENGTH, LENGTH) + b"hello",
    "a list of lengths": head("content-length: 5, 5") + b"hello",
    "a length with a plus": head("content-length: +5") + b"hello",
    "a negative length": head("content-length: -5"),
    "a length with an underscore": head("content-length: 1_0") + b"hellohello",
    "a hexadecimal length": head("content-length: 0x5") + b"hello",
    "a length with a fraction": head("content-length: 5.0") + b"hello",
    "an empty length": head("content-length:"),
    "a length of other digits": head("content-length: \xb2"),
    "an overlong length": head("content-length: " + "9" * 19),
    # 7.1: chunks
    "a size with a plus": chunked(b"+5\r\nhello\r\n0\r\n\r\n"),
    "a negative size": chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
    "a size with 0x": chunked(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a size with an underscore": chunked(b"1_0\r\nhellohellohello!\r\n0\r\n\r\n"),
    "an overlong size": chunked(b"0" * 16 + b"5\r\nhello\r\n0\r\n\r\n"),
    "a size of other characters": chunked(b"g\r\nhello\r\n0\r\n\r\n"),
    "no size": chunked(b"\r\nhello\r\n0\r\n\r\n"),
    "whitespace before a size": chunked(b" 5\r\nhello\r\n0\r\n\r\n"),
    "whitespace behind a size": chunked(b"5 \r\nhello\r\n0\r\n\r\n"),
    "bare LF behind a size": chunked(b"5\nhello\r\n0\r\n\r\n"),
    "bare CR behind a size": chunked(b"5\rhello\r\n0\r\n\r\n"),
    "a chunk longer than its size": chunked(b"4\r\nhello\r\n0\r\n\r\n"),
    "a chunk shorter than its size": chunked(b"6\r\nhello\r\n0\r\n\r\n"),
    "bare LF behind a chunk": chunked(b"5\r\nhello\n0\r\n\r\n"),
    "bare CR behind a chunk": chunked(b"5\r\nhello\r0\r\n\r\n"),
    "bare LF behind the last chunk": chunked(b"5\r\nhello\r\n0\n\n"),
    "bare LF in an extension": chunked(b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "bare CR in an extension": chunked(b"5;a=\rb\r\nhello\r\n0\r\n\r\n"),
    "NUL in an extension": chunked(b"5;a=\0\r\nhello\r\n0\r\n\r\n"),
    "an extension without a name": chunked(b"5;\r\nhello\r\n0\r\n\r\n"),
    "an extension without a value": chunked(b"5;a=\r\nhello\r\n0\r\n\r\n"),
    "an open quote in an extension": chunked(b'5;a="b\r\nhello\r\n0\r\n\r\n'),
    "a long chunk line": chunked(b"5;a=" + b"b" * MAX_LINE + b"\r\nhello\r\n0\r\n\r\n"),
    "a chunk line without end": chunked(b"5;a=" + b"b" * MAX_LINE),
    "many extensions": chunked((b"1;" + b"b" * 999 + b"\r\nx\r\n") * (MAX_EXTENSIONS // 1000 + 1)),
    # 7.1.2: trailers
    "bare LF in the trailers": chunked(b"0\r\na: b\nc: d\r\n\r\n"),
    "bare CR in the trailers": chunked(b"0\r\na: b\r\r\n\r\n"),
    "obs-fold in the trailers": chunked(b"0\r\na: b\r\n c\r\n\r\n"),
    "whitespace before a colon in the trailers": chunked(b"0\r\na : b\r\n\r\n"),
    "a trailer without a colon": chunked(b"0\r\nnonsense\r\n\r\n"),
}
OTHER_STATUS: dict[str, tuple[bytes, int]] = {
    "a coding before chunked": (head("transfer-encoding: gzip, chunked") + FIVE, 501),
    "large trailers": (chunked(b"0\r\na: " + b"b" * MAX_TRAILERS + b"\r\n\r\n"), 431),
    "trailers without end": (chunked(b"0\r\n" + b"a: b\r\n" * (MAX_TRAILERS // 6 + 1)), 431),
    "many headers": (head(*["a: b"] * MAX_FIELDS), 431),
    "many trailers": (chunked(b"0\r\n" + b"a: b\r\n" * (MAX_FIELDS + 1) + b"\r\n"), 431),
    "a higher major version": (head(line="GET / HTTP/2.0"), 505),
}
ALL_REFUSED = {**{name: (data, 400) for name, data in REFUSED.items()}, **OTHER_STATUS}


class Seen:
    """Application that records the paths of its requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await hello(scope, receive, send)


@pytest.mark.parametrize("case", ALL_REFUSED)
async def test_a_malformed_request_is_refused_and_nothing_behind_it_is_served(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status = ALL_REFUSED[case]
    app = Seen()
    async with serving(scoped(app), ServerLimits(linger=0.02)) as site:
        for client in await written(site, data + SMUGGLED):
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            error = orjson.loads(answer.body)["error"]
            assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_http")
            assert await client.read_to_the_close() == b""
        assert app.paths == []
        await site.server.count_falls_to(0)
    assert [record for record in caplog.records if record.exc_info] == []


async def written(site: Site, data: bytes) -> list[Client]:
    """Write to two clients: in one piece, and byte by byte."""
    whole, slow = site.client(), site.client()
    whole.write(data)
    await slow.send_slowly(data[:BY_BYTE])
    with suppress(ConnectionError):
        slow.write(data[BY_BYTE:])
    return [whole, slow]


ACCEPTED: dict[str, tuple[bytes, bytes]] = {
    "an empty line before the request": (b"\r\n\r\n" + head(LENGTH) + b"hello", b"/ hello"),
    "chunks": (chunked(FIVE), b"/ hello"),
    "chunked in capitals": (head("Transfer-Encoding: CHUNKED") + FIVE, b"/ hello"),
    "chunked with whitespace around it": (head("transfer-encoding: \t chunked \t") + FIVE, b"/ hello"),
    "sizes in both cases": (chunked(b"a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n"), b"/ 01234567890123456789"),
    "a size with zeros": (chunked(b"0005\r\nhello\r\n000\r\n\r\n"), b"/ hello"),
    "an extension": (chunked(b"5;a\r\nhello\r\n0;b=c\r\n\r\n"), b"/ hello"),
    "an extension with whitespace": (chunked(b"5 ; a = b\r\nhello\r\n0\r\n\r\n"), b"/ hello"),
    "an extension in quotes": (chunked(b'5;a="; \\" 5"\r\nhello\r\n0\r\n\r\n'), b"/ hello"),
    "trailers": (chunked(b"5\r\nhello\r\n0\r\na: b\r\ncontent-length: 9\r\n\r\n"), b"/ hello"),
    "as many headers and trailers as may be": (
        chunked(b"5\r\nhello\r\n0\r\n" + b"a: b\r\n" * MAX_FIELDS + b"\r\n", *["a: b"] * (MAX_FIELDS - 2)),
        b"/ hello",
    ),
    "a length with zeros": (head("content-length: 0005") + b"hello", b"/ hello"),
    "no body": (head(), b"/ "),
    "an empty host": (head(host="host:"), b"/ "),
    "a host with an address": (head(host="host: [::1]:8000"), b"/ "),
    "no host on HTTP/1.0": (head(line="GET / HTTP/1.0", host=""), b"/ "),
    "an absolute target": (target("http://localhost:1/a?b"), b"/a "),
    "an absolute target with an address": (target("HTTP://[::1]:1/a"), b"/a "),
    "an asterisk": (target("*", "OPTIONS"), b"* "),
}


@pytest.mark.parametrize("case", ACCEPTED)
async def test_a_valid_request_is_served(case: str) -> None:
    data, body = ACCEPTED[case]
    async with serving(scoped(hello)) as site:
        for client in await written(site, data):
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, body)


async def test_the_host_of_an_absolute_target_replaces_the_header() -> None:
    hosts: list[list[bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        hosts.append([value for name, value in scope["headers"] if name == b"host"])
        await hello(scope, receive, send)

    async with serving(scoped(app)) as site:
        await site.ask(target("http://named:1/"))
        await site.ask(target("/"))
    assert hosts == [[b"named:1"], [b"x"]]


async def test_requests_behind_a_chunked_one_are_served_in_order() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        client.write(chunked(b"5\r\nhello\r\n0\r\nt: u\r\n\r\n") + chunked(FIVE) + get("/last"))
        assert [(await client.answer()).body for _ in range(3)] == [b"/ hello", b"/ hello", b"/last "]
