"""The parser of HTTP/1.1 responses."""

import pytest

from gateway.bench.http1 import NotHTTP, Response

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n6;a=b\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
SIZED = HEAD + b"Content-Length: 11\r\n\r\nHello world"


def fed(*parts: bytes) -> tuple[Response, bytes]:
    response = Response()
    return response, b"".join([response.feed(part) for part in parts])


@pytest.mark.parametrize("wire", [CHUNKED, SIZED], ids=["chunked", "sized"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_response_is_the_same_at_any_cut(wire: bytes, size: int) -> None:
    response, body = fed(*[wire[at : at + size] for at in range(0, len(wire), size)])
    assert (response.status, response.headers["content-type"], body) == (200, "text/plain", b"Hello world")
    assert response.complete
    assert response.reusable


def test_a_chunk_is_returned_once_it_is_complete() -> None:
    response, _ = fed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    assert response.feed(b"5\r\nHel") == b""
    assert response.feed(b"lo\r\n5\r\n") == b"Hello"
    assert not response.complete


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response, body = fed(HEAD + b"\r\nHello", b" world")
    assert (body, response.complete) == (b"Hello world", False)
    response.close()
    assert response.complete
    assert not response.reusable


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_status_without_a_body_completes_the_response(status: bytes) -> None:
    response, body = fed(b"HTTP/1.1 " + status + b"\r\n\r\n")
    assert (body, response.complete, response.reusable) == (b"", True, True)


def test_interim_responses_are_skipped() -> None:
    response, body = fed(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + SIZED)
    assert (response.status, body, response.complete) == (200, b"Hello world", True)


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n",
        SIZED + b"stray",
    ],
    ids=["1.0", "close", "stray"],
)
def test_a_connection_that_will_close_is_not_reusable(wire: bytes) -> None:
    response, _ = fed(wire)
    assert (response.complete, response.reusable) == (True, False)


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP/1.1: 'SSH-2.0-OpenSSH'"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n", "content-length is '1_0'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nHello\r\n", "not a chunk's size: '-5"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"5" * 5000, "not a chunk's size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000, "the trailers of the answer do not"),
        (HEAD + b"a: b\r\n" * 20_000, "the head of the answer does not end"),
    ],
)
def test_an_invalid_response_is_an_error(wire: bytes, complaint: str) -> None:
    with pytest.raises(NotHTTP, match=complaint):
        fed(wire)


@pytest.mark.parametrize(
    ("wire", "complaint"), [(b"", "before"), (HEAD, "before"), (SIZED[:-1], "inside"), (CHUNKED[:-1], "inside")]
)
def test_a_close_inside_a_response_is_an_error(wire: bytes, complaint: str) -> None:
    response, _ = fed(wire)
    with pytest.raises(NotHTTP, match=f"the server closed the connection {complaint} its answer"):
        response.close()
