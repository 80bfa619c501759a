"""The examples run unchanged against the program on its embedded model, and print correct results."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import anyio.to_thread
import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI

from gateway.openapi.document import plain_path
from tests.gateway.application import apis, gateway_of
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.server.sockets import serving
from tests.models import model_path
from tests.program import GUARD, ROOT, Embedded

EXAMPLES = ROOT / "examples"
PRINTED = {
    "curl.sh": [
        r'{"status":"ok","restarts":0}',
        r'"content":"17\+25=42"',
        r'data: {.*"content":" ?model".*\n',
        r'"finish_reason":"tool_calls"',
        r'"content":"The answer is 42\."',
        r'"content":"{[^"]*\\"stars\\"[^"]*:[^"]*[1-5][^"]*}"',
        r'"object":"response"',
        r"event: response\.completed",
        r'"deleted":true',
        r'"text":"42"',
        r"data: \[DONE\]",
        r'{"success":true,',
        r'{"content":"42","timings":{"cache_n":',
        r'"prompt_progress":{"total":',
        r'"completion_probabilities":\[{"id":',
        r'"embedding":\[',
        r'"piece":"="',
        r'{"content":"17\+25","prompt":"17\+25"}',
        r'{"tokenizer_class":"llama.cpp","bos_token":"<\|begin\|>",',
        r'{"id":"tiny","object":"model",',
        r'/v1/chat/completions/input_tokens .*\n{"object":"response.input_tokens","input_tokens":\d+}',
        r'/v1/responses/input_tokens .*\n{"object":"response.input_tokens","input_tokens":\d+}',
        r'/v1/responses/resp_[0-9a-f]*\n{"id":"resp_',
        r'/input_items\n{"object":"list","data":\[{"id":"msg_',
        r'{"id":"conv_[0-9a-f]*","object":"conversation","created_at":\d+,"metadata":{"topic":"sums"}}',
        r'"metadata":{"topic":"greetings"}}',
        r'"conversation":{"id":"conv_',
        r'/items\?order=asc&limit=2\n{"object":"list","data":\[{"id":"msg_.*"has_more":true',
        r'"object":"conversation.deleted","deleted":true}',
        r'/cancel -X POST\n{"id":"resp_.*"status":"(cancelled|completed)".*"background":true',
        r"\n200, \d+ bytes\n",
        r"\n200, \d+ bytes of metrics\n",
        r'{"prompt":".*Hello!',
        r'/v2/rerank .*\n{"message":"this model cannot rank documents"}',
        r'"message":{"role":"assistant","content":"17\+25=42"}',
        r'"done":false,.*\n.*"done_reason":"length"',
        r"Ollama is running",
        r'"content":\[{"type":"text","text":"17\+25=42"',
        r"event: content_block_delta",
        r'/v1/messages/count_tokens .*\n{"input_tokens":\d+}',
        r'"param":"temperature"',
        r'"state":"idle"',
        r'"total_slots":',
        r"Start it with `--slot-save-path`",
        r"Start it with `--prefix-secret`",
        r"Infill is not supported by this model",
        r'\[{"conversation_id":"sum","is_done":true,',
        r"-d from=0\ndata: {",
    ],
    "ollama_sdk_chat.py": [r"\A17\+25=42\nHello! .*\n  add\({'a': 17, 'b': 25}\) returns 42\nThe answer is 42\.\n\Z"],
    "anthropic_sdk.py": [
        r"\A17\+25=42\nend_turn Usage\(.*\)\n17\+25=42\nMessageTokensCount\(input_tokens=\d+\)\n",
        r"  add\(17, 25\)\nThe answer is 42\.\n\Z",
    ],
    "openai_sdk_adapters.py": [r"\A[^ ]+: 42\nno adapter: "],
    "openai_sdk_chat.py": [
        r"\A17\+25=42\nHello! .*\nCompletionUsage\(.*\)\nHello! .*\n(17\+25=42\n){2}user: Hello!\n",
        r"\nassistant: Hello! .*\nuser: What is 17 plus 25\?\nassistant: 17\+25=42\n\Z",
    ],
    "openai_sdk_completions.py": [r"\A42\nCompletionUsage\(", r" …\n400 {"],
    "openai_sdk_structured.py": [r"\A(Review\(mood='(happy|angry)', stars=[1-5]\)\n){2}(yes|no)\n17\+25=42\n\Z"],
    "openai_sdk_tools.py": [
        r'  add\({"a": 17, "b": 25}\) returns 42\n  The answer is 42\.\n',
        r'  get_weather\({"city": "Paris"}\) returns light rain\n  The weather in Paris: light rain\n',
    ],
    "langchain_agent.py": [
        r"  add returns 42\n  The answer is 42\.\n",
        r"  get_weather returns light rain\n  The weather in Paris: light rain\n",
    ],
}
"""Regular expressions for the standard output of each example."""
CLIENTS = (OpenAI, Anthropic)
ELSEWHERE = {"batch.py", "batch_requests.jsonl", "ollama_sdk_pull.py"}
"""Examples with tests of their own: below, and in `tests/system/test_pulls.py`."""


def run(name: str, *arguments: str) -> str:
    """Run an example, and return what it prints. One in Python runs in this process, which has its packages."""
    if name.endswith(".py"):
        printed = StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
            patch.setattr(sys, "argv", [name, *arguments])
            left = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        for client in left.values():  # the end of a process would close its connections
            if isinstance(client, CLIENTS):
                client.close()
        return printed.getvalue()
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    command = ["bash", str(EXAMPLES / name), *arguments]
    example = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    assert example.returncode == 0, example.stdout + example.stderr
    return example.stdout


def test_the_curl_example_has_every_route() -> None:
    script = (EXAMPLES / "curl.sh").read_text(encoding="utf-8")
    paths = {plain_path(endpoint.path) for api in apis() for endpoint in api.endpoints}
    called = (re.sub(r"\\{\w+\\}", r'[^/"]+', re.escape(path)) for path in paths)
    assert [path for path in called if not re.search(rf'show [^"]*"\$url{path}"', script)] == []


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {*PRINTED, *ELSEWHERE}


@pytest.mark.parametrize("name", PRINTED)
def test_every_example_runs_and_prints_correct_results(embedded: Embedded, name: str) -> None:
    printed = run(name, embedded.root)
    assert [words for words in PRINTED[name] if not re.search(words, printed)] == [], printed
    while any(
        slot["is_processing"] for slot in httpx.get(f"{embedded.root}/slots", trust_env=False, timeout=GUARD).json()
    ):
        pass


@pytest.mark.anyio
async def test_the_example_of_adapters_asks_no_model_for_embeddings() -> None:
    app = gateway_of(FakeEngine(), FakeEngine(), embedding_model=model_path()).app
    async with serving(app) as site:
        printed = await anyio.to_thread.run_sync(run, "openai_sdk_adapters.py", f"http://127.0.0.1:{site.port}")
    assert [line.partition(":")[0] for line in printed.splitlines()] == ["tiny", "no adapter"]


def test_the_batch_example_answers_every_request(embedded: Embedded, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    run("batch.py", str(EXAMPLES / "batch_requests.jsonl"), str(results), embedded.root)
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    ended = {line["custom_id"]: line["response"] for line in lines}
    assert all(line["error"] is None and line["id"] == f"batch_req_{line['custom_id']}" for line in lines)
    assert {name: response["status_code"] for name, response in ended.items()} == {
        "a chat": 200,
        "a completion": 200,
        "a response": 200,
        "embeddings": 200,
        "a mistake": 400,
    }
    assert ended["a chat"]["body"]["choices"][0]["message"]["content"] == "17+25=42"
    assert ended["a completion"]["body"]["choices"][0]["text"] == "42"
    assert len(ended["embeddings"]["body"]["data"]) == 2
    assert ended["a mistake"]["body"]["error"]["param"] == "temperature"
    assert len({response["request_id"] for response in ended.values()}) == 5


def test_the_batch_example_takes_the_line_ends_of_unicode_for_text(embedded: Embedded, tmp_path: Path) -> None:
    body = {"prompt": "a\u2028b", "max_tokens": 1}
    request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    requests, results = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    requests.write_text(json.dumps(request, ensure_ascii=False) + "\n", encoding="utf-8")
    run("batch.py", str(requests), str(results), embedded.root)
    assert json.loads(results.read_text(encoding="utf-8"))["response"]["status_code"] == 200
