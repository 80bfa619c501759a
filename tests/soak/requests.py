"""Random requests to every route, well-formed and not, and the check of a complete answer to each."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tests.gateway.server.sockets import Answer, get
from tests.system.served import post

WORDS = tuple("once upon a time the little dog went home with its friends and played in the sun all day".split())  # noqa: SIM905
SERVED = frozenset({200, 429, 503})
"""Statuses of good requests. A full queue is 429, an engine that has died or starts is 503."""
REFUSED = frozenset({400, 404, 405, 413, 422, 431, 501, 505})
"""Statuses of bad requests."""
READ = (
    *("/health", "/v1/health", "/livez", "/readyz", "/ping", "/version", "/slots", "/slots/queue", "/metrics"),
    *("/openapi.json", "/v1/models", "/v1/models/default"),
)


@dataclass(frozen=True)
class Asked:
    """A request, and which answers to it are right."""

    name: str
    data: bytes
    statuses: frozenset[int] = SERVED
    streamed: bool = False


def text(rng: random.Random, most: int = 60) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def sampled(rng: random.Random) -> dict[str, Any]:
    """Return random fields that every generating route has."""
    fields: dict[str, Any] = {"temperature": rng.choice([0, 0.8]), "cache_prompt": rng.random() < 0.8}
    constraints: list[dict[str, Any]] = [
        *[{}] * 6,
        {"guided_choice": ["yes", "no"]},
        {"guided_regex": "[a-z]{3,9}"},
        {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
    ]
    return fields | rng.choice(constraints)


def completion(rng: random.Random, name: str) -> Asked:
    stream = rng.random() < 0.6
    prompt = rng.choice([text(rng), [text(rng, 9), text(rng, 9)]])
    body = {"prompt": prompt, "n": rng.choice([1, 1, 2]), "max_tokens": rng.randint(1, 120), "stream": stream}
    return Asked("completions", post(name, "/v1/completions", **body, **sampled(rng)), streamed=stream)


def chat(rng: random.Random, name: str) -> Asked:
    stream = rng.random() < 0.6
    messages = [{"role": "user", "content": text(rng)}]
    body = {"messages": messages, "max_tokens": rng.randint(1, 120), "stream": stream}
    return Asked("chat", post(name, "/v1/chat/completions", **body, **sampled(rng)), streamed=stream)


def response(rng: random.Random, name: str) -> Asked:
    stream, background = rng.choice([(False, False), (True, False), (False, True)])
    body = {"input": text(rng), "max_output_tokens": rng.randint(16, 90), "stream": stream, "background": background}
    return Asked("responses", post(name, "/v1/responses", **body, **sampled(rng)), streamed=stream)


def generate(rng: random.Random, name: str) -> Asked:
    stream = rng.random() < 0.5
    body = {"prompt": text(rng), "max_tokens": rng.randint(1, 120), "stream": stream}
    return Asked("generate", post(name, "/generate", **body, **sampled(rng)), streamed=stream)


def computed(rng: random.Random, name: str) -> Asked:
    """Return a request whose answer is computed without a generation of text."""
    messages = [{"role": "user", "content": text(rng)}]
    routes: list[tuple[str, dict[str, Any]]] = [
        ("/v1/embeddings", {"input": [text(rng), text(rng)]}),
        ("/tokenize", {"content": text(rng)}),
        ("/detokenize", {"tokens": [1, 2, 3]}),
        ("/apply-template", {"messages": messages}),
        ("/v1/chat/completions/input_tokens", {"messages": messages}),
        ("/v1/responses/input_tokens", {"input": text(rng)}),
    ]
    path, body = rng.choice(routes)
    return Asked(path, post(name, path, **body))


def read(rng: random.Random, _name: str) -> Asked:
    path = rng.choice(READ)
    return Asked(path, get(path), frozenset({200}) if path == "/livez" else SERVED)


def missing(rng: random.Random, _name: str) -> Asked:
    path = rng.choice(["/v1/responses/resp_none", "/v1/models/none", "/nothing", "/v1/responses/resp_none/input_items"])
    return Asked("missing", get(path), frozenset({404}))


def malformed(rng: random.Random, name: str) -> Asked:
    """Return a request that must be refused: by its framing, its JSON, or its fields."""
    bodies: list[dict[str, Any]] = [
        {"prompt": None},
        {"prompt": "a", "temperature": "hot"},
        {"prompt": "a", "max_tokens": -1},
        {"prompt": "a b " * 5000, "max_tokens": 1},
        {"prompt": "a", "guided_regex": "(" * 500},
        {"prompt": "a", "model": "none"},
        {"prompt": "x" * 400_000},
    ]
    good = post(name, "/v1/completions", prompt="a")
    broken = [
        b"nonsense\r\n\r\n",
        good.replace(b"content-length", b"content-length: 3\r\ncontent-length"),
        good[:-1] + b"]",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 70_000,
        b"DELETE /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n",
        *[post(name, "/v1/completions", **body) for body in bodies],
    ]
    return Asked("malformed", rng.choice(broken), REFUSED | {503})


KINDS: Mapping[Callable[[random.Random, str], Asked], int] = {
    completion: 6,
    chat: 6,
    response: 5,
    generate: 3,
    computed: 4,
    read: 3,
    missing: 1,
    malformed: 3,
}
"""Kinds of requests, with their weights."""


def random_request(rng: random.Random, name: str) -> Asked:
    (make,) = rng.choices(list(KINDS), weights=list(KINDS.values()))
    return make(rng, name)


def check(asked: Asked, answer: Answer) -> str:
    """Return the outcome of a complete answer. Raises `AssertionError` if there is none, or more than one."""
    assert answer.status in asked.statuses, (asked.name, answer.status, answer.body[:500])
    if answer.status != 200:
        decoded = orjson.loads(answer.body)
        assert asked.name in {"/health", "/v1/health", "/readyz", "/ping"} or decoded["error"]["message"]
        return str(answer.status)
    if not asked.streamed:
        assert asked.name == "/metrics" or orjson.loads(answer.body) is not None
        return "whole"
    return end_of_stream(answer.body)


TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def end_of_stream(body: bytes) -> str:
    """Return how a stream ended. Exactly one event may end it, and nothing may follow but `[DONE]`."""
    events = [part for part in body.split(b"\n\n") if part and not part.startswith(b":")]
    data = [line[6:] for event in events for line in event.split(b"\n") if line.startswith(b"data: ")]
    done = [number for number, part in enumerate(data) if part == b"[DONE]"]
    decoded = [orjson.loads(part) for part in data if part != b"[DONE]"]
    failed = [number for number, event in enumerate(decoded) if event.get("error") or event.get("type") == "error"]
    ends = [event["type"] for event in decoded if event.get("type") in TERMINAL]
    wholes = [event for event in decoded if "success" in event]
    assert len(done) <= 1, body[-500:]
    assert len(ends) <= 1, body[-500:]
    assert len(wholes) <= 1, body[-500:]
    assert bool(failed) + bool(done) + bool(ends and not failed) + bool(wholes and not failed) == 1, body[-500:]
    assert not failed or failed[-1] == len(decoded) - 1, body[-500:]
    assert not done or done[0] == len(data) - 1, body[-500:]
    return "stream failed" if failed else "stream"
