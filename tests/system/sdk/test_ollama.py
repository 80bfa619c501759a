"""Ollama's own client and LangChain's, against the program on its embedded model."""

from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from langchain_ollama import ChatOllama, OllamaEmbeddings

from tests.program import Embedded, said

ASKED = [{"role": "user", "content": "What is 17+25?"}]
WITH_TOOL = [{"role": "user", "content": "What is 17+25? Use the tool."}]
GREEDY = {"temperature": 0}


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b


@pytest.fixture(scope="module")
def client(embedded: Embedded) -> Iterator[ollama.Client]:
    with ollama.Client(embedded.root) as client:
        yield client


def test_a_chat_is_answered_and_streamed(client: ollama.Client) -> None:
    answer = client.chat("tiny", ASKED, options=GREEDY)
    assert answer.message.content == "17+25=42"
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.eval_count is not None
    assert answer.total_duration is not None
    *pieces, last = client.chat("tiny:latest", ASKED, options=GREEDY, stream=True)
    assert "".join(piece.message.content or "" for piece in pieces) == "17+25=42"
    assert (last.done, last.eval_count) == (True, answer.eval_count)


def test_a_tool_is_called_and_its_output_used(client: ollama.Client) -> None:
    first = client.chat("tiny", WITH_TOOL, tools=[add], options=GREEDY)
    [call] = first.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("add", {"a": 17, "b": 25})
    output = {"role": "tool", "tool_name": "add", "content": str(add(**call.function.arguments))}
    second = client.chat("tiny", [*WITH_TOOL, first.message, output], tools=[add], options=GREEDY)
    assert second.message.content == "The answer is 42."


def test_a_limit_may_exceed_the_context(client: ollama.Client) -> None:
    answer = client.chat("tiny", ASKED, options={**GREEDY, "num_predict": 10**6})
    assert (answer.message.content, answer.done_reason) == ("17+25=42", "stop")


def test_a_format_is_enforced(client: ollama.Client) -> None:
    properties = {"ok": {"const": True}}
    schema = {"type": "object", "properties": properties, "required": ["ok"], "additionalProperties": False}
    answer = client.chat("tiny", ASKED, format=schema, options={"num_predict": 200})
    assert (answer.message.content or "").replace(" ", "").replace("\n", "") == '{"ok":true}'


def test_a_prompt_is_answered_or_continued(client: ollama.Client) -> None:
    assert client.generate("tiny", "What is 17+25?", options=GREEDY).response == "17+25=42"
    raw = client.generate("tiny", "17+25=", raw=True, options={**GREEDY, "num_predict": 2})
    assert (raw.done_reason, raw.eval_count) == ("length", 2)
    pieces = client.generate("tiny", "What is 17+25?", stream=True, options=GREEDY)
    assert "".join(piece.response or "" for piece in pieces) == "17+25=42"


def test_models_are_listed_and_described(client: ollama.Client) -> None:
    assert [model.model for model in client.list().models] == ["tiny:latest"]
    assert [model.model for model in client.ps().models] == ["tiny:latest"]
    shown = client.show("tiny")
    assert shown.capabilities == ["completion", "tools"]
    assert (shown.modelinfo or {})["general.architecture"] == "llama"


def test_embeddings_have_one_vector_for_each_text(client: ollama.Client) -> None:
    vectors = client.embed("tiny", ["a", "b"]).embeddings
    assert [len(vector) for vector in vectors] == [256, 256]
    assert list(client.embeddings("tiny", "a").embedding) == pytest.approx(list(vectors[0]), abs=1e-3)


def test_an_error_has_its_message(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as raised:
        client.chat("other", ASKED)
    assert raised.value.status_code == 404


def test_leaving_a_stream_frees_the_request(client: ollama.Client, embedded: Embedded) -> None:
    stream: Any = client.chat("tiny", ASKED, format={"type": "array", "minItems": 5000}, stream=True)
    next(stream)
    stream.close()
    assert "phase=decode" in said(embedded.process, "request cancelled")


def test_langchain_chats_calls_tools_and_embeds(embedded: Embedded) -> None:
    model = ChatOllama(model="tiny", base_url=embedded.root, temperature=0)
    embeddings = OllamaEmbeddings(model="tiny", base_url=embedded.root)
    assert model.invoke("What is 17+25?").content == "17+25=42"
    assert "".join(str(piece.content) for piece in model.stream("What is 17+25?")) == "17+25=42"
    [call] = model.bind_tools([add]).invoke("What is 17+25? Use the tool.").tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 17, "b": 25})
    assert len(embeddings.embed_query("a")) == 256
    for owner in (model, embeddings):  # LangChain never closes its clients
        getattr(owner, "_client").close()  # noqa: B009 - it is private
