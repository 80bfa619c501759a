"""Chat templates come with models from anywhere: one that takes all time and memory harms only its own requests."""

import http.client
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest

from tests.program import GUARD, program, serving_program

HOLDS = "{% if messages[-1].content == 'hold' %}{{ 10 ** (10**9 * messages|length) }}{% endif %}"
"""Holds the interpreter's lock for hours, for one conversation."""
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def post(port: int, path: str, body: object) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
    try:
        connection.request("POST", path, orjson.dumps(body))
        response = connection.getresponse()
        return response.status, orjson.loads(response.read())
    finally:
        connection.close()


def chat(content: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 2}


def test_a_template_that_never_ends_delays_no_other_request_and_no_stop(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(HOLDS + PLAIN)
    with serving_program("--chat-template", str(template), "--grace", "0") as (process, port):
        answers: list[tuple[int, Any]] = []
        held = Thread(target=lambda: answers.append(post(port, "/v1/chat/completions", chat("hold"))))
        held.start()
        while held.is_alive():
            assert post(port, "/v1/chat/completions", chat("Hello"))[0] == 200
            assert post(port, "/v1/completions", {"prompt": "Hello", "max_tokens": 2})[0] == 200
        ((status, answer),) = answers
        refused, busy = (400, "chat_template_refused"), (503, "preparation_timeout")
        assert (status, answer["error"]["code"]) in {refused, busy}  # which one depends on the rest of the machine

        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
        connection.request("POST", "/v1/chat/completions", orjson.dumps(chat("hold")))
        assert post(port, "/v1/chat/completions", chat("Hello"))[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD) == 0
        connection.close()


@pytest.mark.parametrize("source", ["{{ 10**(10**9) }}", "{% if true %}" * 3000 + "{% endif %}" * 3000])
def test_a_template_of_the_operator_that_cannot_be_compiled_is_one_line(source: str, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(source)
    with program("--chat-template", str(template)) as process:
        _, output = process.communicate(timeout=GUARD)
    assert process.returncode == 2
    (line,) = output.splitlines()
    assert "chat-template" in line
