"""The checks of the soak itself: what they accept, and what they find."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.gateway.server.sockets import Answer, get
from tests.soak.__main__ import unexpected
from tests.soak.report import MIB, leaks
from tests.soak.requests import Asked, check, end_of_stream
from tests.soak.target import Sample

IDLE = Sample(seconds=0, resident=60 * MIB, engine_resident=0, files=17, tasks=Counter(run=1), objects=1000)


def test_a_flat_series_leaks_nothing() -> None:
    assert leaks([IDLE] * 9) == []
    assert leaks([IDLE, *[replace(IDLE, resident=70 * MIB, objects=9000)] * 8]) == []
    assert leaks([*[IDLE] * 5, *[replace(IDLE, resident=70 * MIB)] * 4]) == [], "a step is none"


def test_what_grows_until_the_end_leaks() -> None:
    growing = [replace(IDLE, resident=(60 + 6 * number) * MIB) for number in range(9)]
    assert leaks(growing) == [f"resident: {84 * MIB} in the middle, {102 * MIB} at the end"]


def test_a_file_or_a_task_too_many_leaks() -> None:
    assert leaks([IDLE, replace(IDLE, files=18)]) == ["files: 17 when idle, 18 at the end"]
    more = replace(IDLE, tasks=Counter(run=1, serve=2))
    assert leaks([IDLE, more]) == ["tasks that were not there when idle: {'serve': 2}"]
    assert leaks([more, IDLE]) == []


STREAMS = {
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n': "stream",
    b': queued\n\ndata: {"choices":[]}\n\ndata: {"error":{"message":"no"}}\n\n': "stream failed",
    b'event: a\ndata: {"type":"response.created"}\n\ndata: {"type":"response.completed"}\n\n': "stream",
    b'data: {"type":"response.failed"}\n\ndata: {"type":"error"}\n\n': "stream failed",
    b'data: {"text":"a"}\n\ndata: {"success":true}\n\n': "stream",
    b'data: {"text":"a"}\n\ndata: {"success":false,"error":{"message":"no"}}\n\n': "stream failed",
}


@pytest.mark.parametrize("body", STREAMS)
def test_the_one_end_of_a_stream_is_found(body: bytes) -> None:
    assert end_of_stream(body) == STREAMS[body]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'data: {"choices":[]}\n\n',
        b"data: [DONE]\n\ndata: [DONE]\n\n",
        b'data: [DONE]\n\ndata: {"choices":[]}\n\n',
        b'data: {"error":{"message":"no"}}\n\ndata: [DONE]\n\n',
        b'data: {"error":{"message":"no"}}\n\ndata: {"choices":[]}\n\n',
        b'data: {"type":"response.completed"}\n\ndata: {"type":"response.failed"}\n\n',
    ],
)
def test_a_stream_without_one_end_is_wrong(body: bytes) -> None:
    with pytest.raises(AssertionError):
        end_of_stream(body)


def test_an_answer_must_have_an_expected_status_and_content() -> None:
    asked = Asked("completions", get())
    assert check(asked, Answer(200, {}, b'{"id":1}')) == "whole"
    assert check(asked, Answer(503, {}, b'{"error":{"message":"no"}}')) == "503"
    for wrong in (Answer(500, {}, b'{"error":{"message":"no"}}'), Answer(503, {}, b'{"error":{"message":""}}')):
        with pytest.raises(AssertionError):
            check(asked, wrong)


def test_errors_that_no_disturbance_explains_are_found() -> None:
    expected = 'Z ERROR engine.client.supervisor engine process lost why="…"'
    assert unexpected([expected, "Z INFO gateway ok", "Z ERROR gateway no", "Traceback (most recent call last):"]) == [
        "log: Z ERROR gateway no",
        "log: Traceback (most recent call last):",
    ]
