"""The program with no flags: it serves its embedded model, with the trained skills over HTTP."""

from collections.abc import Iterator, Sequence

import httpx
import pytest

from engine.embedded.training import evaluation
from engine.embedded.training.evaluation import THRESHOLDS
from engine.embedded.training.template import Message, Tool
from tests.program import GUARD, program, said

CASES = 4
"""Cases of each skill. Another test checks the thresholds, without HTTP."""


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    with program("--threads", "1") as process:
        assert "--model" in said(process, "demonstration"), "the line says how to name a real model"
        line = said(process, "listening on http://127.0.0.1:")
        assert "serving tiny" in line
        port = line.partition("127.0.0.1:")[2].partition(",")[0]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=GUARD) as client:
            yield client


def with_id(message: Message) -> dict[str, object]:
    """Return the message with the id that OpenAI requires in calls and results, and the corpus leaves out."""
    if message["role"] == "tool":
        return {**message, "tool_call_id": "call_0"}
    if calls := message.get("tool_calls"):
        return {**message, "tool_calls": [{"id": "call_0", **call} for call in calls]}
    return {**message}


@pytest.mark.parametrize("skill", THRESHOLDS)
def test_the_evaluation_passes_over_http(server: httpx.Client, skill: str) -> None:
    def complete(prompt: str) -> str:
        answer = server.post("/v1/completions", json={"prompt": prompt, "temperature": 0}).raise_for_status()
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "stop"
        return str(choice["text"])

    def chat(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        body = {"messages": [*map(with_id, messages)], "temperature": 0, **({"tools": [*tools]} if tools else {})}
        answer = server.post("/v1/chat/completions", json=body).raise_for_status()
        return evaluation.as_text(answer.json()["choices"][0]["message"])

    chosen = [case for case in evaluation.cases(CASES, seed=3) if case.skill == skill]
    (score,) = evaluation.evaluate(chosen, complete, chat)
    assert score.right >= CASES - 1, evaluation.table([score])


def test_the_embedded_model_is_listed_under_its_name(server: httpx.Client) -> None:
    (model,) = server.get("/v1/models").json()["data"]
    assert model["id"] == "tiny"
