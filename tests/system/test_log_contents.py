"""Prompts and answers are in no line of the log and in no span, whatever the route and the failure."""

import signal

import httpx
import pytest

from tests.gateway.tracing.collector import collecting, values_of
from tests.program import GUARD, serving_embedded

CANARY = "xylophone-canary"
TALK = [{"role": "user", "content": CANARY}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {CANARY: {"type": "oops"}}}}}
BODIES: list[tuple[str, dict[str, object]]] = [
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 2, "echo": True, "stop": [CANARY]}),
    ("/v1/completions", {"prompt": [CANARY, CANARY], "max_tokens": 2, "stream": True, "echo": True}),
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 100_000}),
    ("/v1/completions", {"prompt": {"text": CANARY}}),
    ("/v1/completions", {"prompt": "x", "max_tokens": CANARY}),
    ("/v1/completions", {"prompt": "x", "temperature": CANARY, "unheard_of": CANARY}),
    ("/v1/completions", {"prompt": "x", "guided_regex": f"({CANARY}"}),
    ("/v1/completions", {"prompt": "x", "grammar": f"root ::= {CANARY}"}),
    ("/v1/completions", {"prompt": "x", "guided_grammar": f"start: {CANARY}"}),
    ("/v1/completions", {"prompt": "x", "guided_json": {"type": CANARY}}),
    ("/v1/completions", {"prompt": "x", "guided_choice": [CANARY], "max_tokens": 2}),
    ("/v1/completions", {"prompt": "x", "suffix": CANARY}),
    ("/v1/completions", {"prompt": "x", "samplers": [CANARY]}),
    ("/v1/completions", {"prompt": CANARY * 2000, "max_tokens": 1}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 2, "user": CANARY, "metadata": {"a": CANARY}}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 2, "stream": True}),
    ("/v1/chat/completions", {"messages": TALK, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": [{"role": CANARY, "content": CANARY}]}),
    ("/v1/chat/completions", {"messages": TALK, "chat_template_kwargs": {"x": CANARY}, "max_tokens": 1}),
    ("/v1/chat/completions", {"messages": TALK, "audio": CANARY}),
    ("/v1/chat/completions/input_tokens", {"messages": TALK}),
    ("/v1/responses", {"input": CANARY, "instructions": CANARY, "max_output_tokens": 2}),
    ("/v1/responses", {"input": CANARY, "max_output_tokens": 2, "stream": True}),
    ("/v1/responses", {"input": CANARY, "max_output_tokens": 2, "background": True}),
    ("/v1/responses", {"input": [{"type": CANARY}]}),
    ("/v1/responses/input_tokens", {"input": CANARY}),
    ("/v1/embeddings", {"input": CANARY}),
    ("/v1/embeddings", {"input": [{"a": CANARY}]}),
    ("/generate", {"prompt": CANARY, "max_tokens": 2}),
    ("/generate", {"prompt": [CANARY]}),
    ("/apply-template", {"messages": TALK}),
    ("/tokenize", {"content": CANARY}),
    ("/detokenize", {"tokens": [CANARY]}),
]
RAW = [b'{"prompt": "' + CANARY.encode(), CANARY.encode(), b"[" * 10_000 + CANARY.encode()]


def test_no_log_line_and_no_span_has_what_a_client_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with serving_embedded("--log-level", "debug") as served, httpx.Client(timeout=GUARD) as client:
            statuses = [client.post(served.root + path, json=body).status_code for path, body in BODIES]
            statuses += [client.post(f"{served.root}/v1/completions", content=raw).status_code for raw in RAW]
            statuses += [client.get(f"{served.root}/v1/models?x={CANARY}").status_code]
            served.process.send_signal(signal.SIGTERM)
            _, log = served.process.communicate()
    assert {200, 400} <= set(statuses) <= {200, 400, 404}
    assert log.count("request ended") == len(statuses)
    assert {"chat tiny", "text_completion tiny", "embeddings tiny", "prefill", "decode"} <= {
        span.name for span in collector.spans
    }
    assert [line for line in log.splitlines() if CANARY in line] == []
    assert [span.name for span in collector.spans if CANARY in str(values_of(span.attributes)) + span.name] == []
