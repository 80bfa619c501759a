"""Commands for people: curl against the program on a real model."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.program import GUARD, Embedded, serving_program

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed")

PAGE = "https://example.org"
BODY_LIMIT = 100_000


@dataclass
class Reply:
    """The output of `curl -i`: the last head, and the body after it."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def events(self) -> list[bytes]:
        """Return the data of an event stream, without the events' names."""
        assert self.headers["content-type"].startswith("text/event-stream")
        *events, end = self.body.split(b"\n\n")
        assert end == b""
        return [event.partition(b"data: ")[2] for event in events]


@dataclass
class Curl:
    """Runs curl on a path of the server."""

    url: str

    def run(self, path: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        command = [CURL or "curl", "--silent", "--include", "--noproxy", "*", self.url + path, *arguments]
        return subprocess.run(command, capture_output=True, timeout=GUARD, check=False)

    def __call__(self, path: str, *arguments: str) -> Reply:
        run = self.run(path, *arguments)
        assert run.returncode == 0, run
        head, _, body = run.stdout.partition(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 1"):
            head, _, body = body.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return Reply(int(first.split()[1]), headers, body)


@pytest.fixture(scope="module")
def curl() -> Iterator[Curl]:
    with serving_program("--allow-origin", PAGE, "--body-limit", str(BODY_LIMIT)) as (_process, port):
        yield Curl(f"http://localhost:{port}")


@pytest.fixture
def tiny(embedded: Embedded) -> Curl:
    """A curl for the embedded model, which supports chats and tools."""
    return Curl(embedded.root)


def test_a_stream_as_the_readme_shows_it(curl: Curl) -> None:
    body = '{"prompt":"Once upon a time","max_tokens":64,"stream":true}'
    *chunks, done = curl("/v1/completions", "-N", "-d", body).events()
    assert done == b"[DONE]"
    assert "".join(orjson.loads(chunk)["choices"][0]["text"] for chunk in chunks)


@pytest.mark.parametrize("content_type", [None, "application/json", "text/plain", "application/json; charset=utf-8"])
def test_a_body_is_json_whatever_its_type(curl: Curl, content_type: str | None) -> None:
    header = ("-H", f"content-type: {content_type}") if content_type else ()
    reply = curl("/v1/completions", *header, "-d", '{"prompt":"Once upon a time","max_tokens":5,"ignore_eos":true}')
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    "body", ["", "{", '{"prompt":}', "[1]", '"text"', '{"prompt":"\\ud800"}', "nonsense", "[" * 99]
)
@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_an_invalid_request_is_400(curl: Curl, path: str, body: str) -> None:
    reply = curl(path, "-d", body)
    assert reply.status == 400
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_generate_answers_in_its_envelope(curl: Curl) -> None:
    reply = curl("/generate", "-d", '{"prompt":"Once upon a time","max_tokens":10,"ignore_eos":true,"temperature":0}')
    assert reply.status == 200
    answer = reply.json()
    assert answer["success"] is True
    assert answer["data"].keys() == {"id", "text", "tokens", "finish_reason", "response_time", "tokens_per_second"}
    assert answer["data"]["text"]
    assert (answer["data"]["tokens"], answer["data"]["finish_reason"]) == (10, "length")


def test_generate_streams_the_text_of_its_whole_answer(curl: Curl) -> None:
    body = '{"prompt":"Once upon a time","max_tokens":10,"ignore_eos":true,"temperature":0,"stream":true}'
    *pieces, end = [orjson.loads(event) for event in curl("/generate", "-N", "-d", body).events()]
    assert end["success"] is True
    assert "".join(piece["text"] for piece in pieces) == end["data"]["text"]
    assert end["data"]["tokens"] == 10


def test_generate_fails_in_its_envelope(curl: Curl) -> None:
    reply = curl("/generate", "-d", '{"prompt":"Once upon a time","max_tokens":100000}')
    assert reply.status == 400
    assert reply.json()["success"] is False
    assert reply.json()["error"]["code"] == "context_length_exceeded"


def test_a_foreign_page_is_refused(curl: Curl) -> None:
    reply = curl("/v1/completions", "-H", "origin: https://evil.example", "-d", '{"prompt":"Once"}')
    assert (reply.status, reply.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in reply.headers


def test_an_allowed_page_is_answered(curl: Curl) -> None:
    asked = ("-H", "access-control-request-method: POST", "-H", "access-control-request-headers: content-type")
    preflight = curl("/v1/completions", "-X", "OPTIONS", "-H", f"origin: {PAGE}", *asked)
    assert preflight.status == 200
    assert "content-type" in preflight.headers["access-control-allow-headers"]
    reply = curl("/v1/completions", "-H", f"origin: {PAGE}", "-d", '{"prompt":"Once","max_tokens":1}')
    assert reply.status == 200
    assert {preflight.headers["access-control-allow-origin"], reply.headers["access-control-allow-origin"]} == {PAGE}


@pytest.mark.parametrize("size", [BODY_LIMIT, 20 * BODY_LIMIT], ids=["sent", "announced with Expect"])
def test_a_body_over_the_limit_is_413(curl: Curl, tmp_path: Path, size: int) -> None:
    big = tmp_path / "big.json"
    big.write_bytes(b'{"prompt":"%b"}' % (b"x" * size))
    reply = curl("/v1/completions", "-d", f"@{big}")
    assert (reply.status, reply.json()["error"]["code"]) == (413, "request_too_large")


def test_a_request_id_is_returned(curl: Curl) -> None:
    assert curl("/health", "-H", "x-request-id: mine").headers["x-request-id"] == "mine"
    assert curl("/nowhere").headers["x-request-id"].startswith("req_")


def test_http2_is_refused_and_the_server_continues(curl: Curl) -> None:
    if b"HTTP2" not in subprocess.run([CURL or "curl", "--version"], capture_output=True, check=True).stdout:
        pytest.skip("this curl has no HTTP/2")
    assert curl.run("/health", "--http2-prior-knowledge").returncode != 0
    assert curl.run("/v1/completions", "--http2-prior-knowledge", "-d", '{"prompt":"Once"}').returncode != 0
    upgrade = curl("/v1/completions", "--http2", "-d", '{"prompt":"Once","max_tokens":2,"ignore_eos":true}')
    assert (upgrade.status, upgrade.json()["usage"]["completion_tokens"]) == (200, 2)
    assert curl("/health").json() == {"status": "ok", "restarts": 0}


SUM = "What is 17 plus 25?"
MESSAGES = [{"role": "user", "content": SUM}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}
STARS = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["stars"],
    "additionalProperties": False,
}


def post(curl: Curl, path: str, **body: Any) -> Reply:
    """A body as curl users write it, with no header."""
    reply = curl(path, "-N", "-d", orjson.dumps({"temperature": 0, **body}).decode())
    assert reply.status == 200, reply.body
    return reply


def test_a_chat_is_answered(tiny: Curl) -> None:
    (choice,) = post(tiny, "/v1/chat/completions", messages=MESSAGES).json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": "17+25=42", "refusal": None}
    *chunks, done = post(tiny, "/v1/chat/completions", messages=MESSAGES, stream=True).events()
    assert done == b"[DONE]"
    deltas = [orjson.loads(chunk)["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "17+25=42"


def test_a_tool_is_called(tiny: Curl) -> None:
    tools = [{"type": "function", "function": ADD}]
    (choice,) = post(tiny, "/v1/chat/completions", messages=MESSAGES, tools=tools).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert orjson.loads(call["function"]["arguments"]) == {"a": 17, "b": 25}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "42"}
    messages = [*MESSAGES, choice["message"], result]
    (choice,) = post(tiny, "/v1/chat/completions", messages=messages, tools=tools).json()["choices"]
    assert choice["message"]["content"] == "The answer is 42."


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "review", "schema": STARS}}},
        {"json_schema": STARS},
        {"guided_json": STARS},
    ],
    ids=["OpenAI's", "llama-server's", "vLLM's"],
)
def test_a_schema_is_kept(tiny: Curl, fields: dict[str, Any]) -> None:
    (choice,) = post(tiny, "/v1/chat/completions", messages=MESSAGES, **fields).json()["choices"]
    assert orjson.loads(choice["message"]["content"])["stars"] in range(1, 6)


def test_a_response_is_answered(tiny: Curl) -> None:
    response = post(tiny, "/v1/responses", input=SUM).json()
    (message,) = response["output"]
    assert [part["text"] for part in message["content"]] == ["17+25=42"]
    assert tiny(f"/v1/responses/{response['id']}").json() == response
    assert tiny(f"/v1/responses/{response['id']}", "-X", "DELETE").json()["deleted"] is True
    assert tiny(f"/v1/responses/{response['id']}").status == 404
    events = [orjson.loads(event) for event in post(tiny, "/v1/responses", input=SUM, stream=True).events()]
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "17+25=42"


def test_a_text_is_embedded(tiny: Curl) -> None:
    one, two = tiny("/v1/embeddings", "-d", '{"input": ["hello", "goodbye"]}').json()["data"]
    assert (one["index"], two["index"]) == (0, 1)
    assert len(one["embedding"]) == len(two["embedding"]) > 0


def test_llama_servers_completion_is_answered(tiny: Curl) -> None:
    whole = post(tiny, "/completion", prompt="17+25=", n_predict=32, temperature=0, return_tokens=True).json()
    assert (whole["content"], whole["stop_type"], whole["tokens_evaluated"]) == ("42", "eos", 7)
    fields = {"stream": True, "return_progress": True, "timings_per_token": True, "n_probs": 3}
    events = post(tiny, "/completion", prompt="17+25=", temperature=0, **fields).events()
    *parts, end = map(orjson.loads, events)
    assert "".join(part["content"] for part in parts) == "42"
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert parts[0]["prompt_progress"]["total"] == 7
    assert (end["stop"], end["tokens_predicted"], end["generation_settings"]["n_probs"]) == (True, 3, 3)


def test_probabilities_after_the_samplers_sum_to_one(tiny: Curl) -> None:
    fields = {"n_predict": 8, "n_probs": 5, "post_sampling_probs": True, "top_k": 5, "seed": 3}
    answer = post(tiny, "/completion", prompt="Once upon a time", **fields).json()
    for token in answer["completion_probabilities"]:
        assert sum(one["prob"] for one in token["top_probs"]) == pytest.approx(1)
        assert token["id"] in {one["id"] for one in token["top_probs"]}


def test_a_text_is_tokenised_and_detokenised(tiny: Curl) -> None:
    tokens = tiny("/tokenize", "-d", '{"content": "17+25=42"}').json()["tokens"]
    body = orjson.dumps({"tokens": tokens}).decode()
    assert tiny("/detokenize", "-d", body).json() == {"content": "17+25=42", "prompt": "17+25=42"}
