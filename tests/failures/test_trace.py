"""Group 8, requests without a trace: one id follows each through the log lines of both processes and its answer."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pytest

from tests.program import GUARD, engines_of, log_until, serving_program
from tests.system.served import completion

ABOUT_REQUESTS = {
    "engine.worker.intake",
    "engine.worker.loop",
    "engine.client",
    "gateway.access",
    "gateway.middleware.request_scope",
}
"""Loggers with lines about requests only."""


@contextmanager
def stream(port: int, request_id: str) -> Iterator[socket.socket]:
    """Send a streaming request and wait for its start; hang up on exit."""
    with socket.create_connection(("127.0.0.1", port), timeout=GUARD) as client:
        client.sendall(completion(request_id, max_tokens=2000, stream=True))
        assert f"x-request-id: {request_id}\r\n".encode() in until(client, b'"text":"')
        yield client


def until(client: socket.socket, marker: bytes) -> bytes:
    """Read until a marker has come; return all bytes read."""
    received = b""
    while marker not in received:
        data = client.recv(4096)
        assert data, received
        received += data
    return received


def ask(port: int, request_id: str | None, status: int, **body: Any) -> str:
    """Send a request and check its status; return the id of the response, which equals the one sent."""
    headers = {"x-request-id": request_id} if request_id else {}
    asked = {"prompt": "Once upon a time", "max_tokens": 4, **body}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=asked, headers=headers, timeout=GUARD)
    told = answer.headers["x-request-id"]
    assert answer.status_code == status
    assert told == (request_id or told)
    return told


ANSWERED = {"gateway: response begins", "gateway: request ended"}
SERVED = ANSWERED | {"engine: request checked", "engine: sequence ended"}
NOTE = "gateway: /v1/completions: the unknown field 'unheard_of' of a request is ignored, now and later"
TRACES = {
    "served": SERVED,
    "noted": SERVED | {NOTE},
    "malformed": ANSWERED,
    "refused": ANSWERED | {"engine: request refused"},
    "cancelled": SERVED | {"gateway: request cancelled"},
    "failed": ANSWERED | {"engine: request checked", "gateway: request failed"},
}
LAST_OF_THE_ENGINE = (
    '"message": "sequence ended", "request_id": "cancelled"',
    '"message": "request checked", "request_id": "failed"',
)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_one_id_is_in_every_log_line_and_the_answer_of_a_request(backend: str) -> None:
    flags = ("--slots", "1", "--threads", "1", "--log-format", "json", "--log-level", "debug")
    with serving_program(*flags, "--async-backend", backend) as (process, port):
        made = ask(port, None, 200)
        for _ in range(2):  # ids need not be unique
            ask(port, "served", 200)
        ask(port, "noted", 200, unheard_of=1)
        ask(port, "malformed", 400, max_tokens="many")
        ask(port, "refused", 400, max_tokens=100_000)
        with stream(port, "cancelled"):
            pass
        with stream(port, "failed") as client:  # there is one slot, so the cancelled request has left it
            (engine,) = engines_of(process.pid)
            log = log_until(process, *LAST_OF_THE_ENGINE)  # a killed engine cannot write the lines that wait
            os.kill(engine, signal.SIGKILL)
            until(client, b"engine_died")
        process.send_signal(signal.SIGTERM)
        log += process.communicate()[1].splitlines()
    traces: dict[str, set[str]] = {}
    for line in map(orjson.loads, log):
        if "request_id" in line or line["logger"] in ABOUT_REQUESTS:
            side = "engine" if line["logger"].startswith("engine.worker.") else "gateway"
            traces.setdefault(line["request_id"], set()).add(f"{side}: {line['message']}")
    assert traces == {made: SERVED, **TRACES}
