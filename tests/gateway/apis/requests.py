"""A small request of each API, for rules that hold for all of them."""

from typing import Any

MESSAGES = [{"role": "user", "content": "x"}]
_GENERATIONS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "x"},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"model": "tiny", "messages": MESSAGES, "max_tokens": 9},
    "/completion": {"prompt": "x"},
    "/generate": {"prompt": "x"},
    "/api/chat": {"model": "tiny", "messages": MESSAGES},
    "/api/generate": {"model": "tiny", "prompt": "x", "raw": True},
}
GENERATIONS: dict[str, dict[str, Any]] = {
    path + " stream" * stream: {**body, "stream": stream}
    for path, body in _GENERATIONS.items()
    for stream in (False, True)
}
"""Bodies by the path, and ` stream` where the answer is a stream."""
EXTENDED = [name for name in GENERATIONS if not name.startswith("/api")]
"""Those that have fields of this server."""
LIKE_OPENAI = [name for name in EXTENDED if not name.startswith(("/v1/messages", "/completion"))]
"""Those with the fields and the errors of OpenAI."""
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "x"},
    "/embedding": {"input": "x"},
    "/v1/rerank": {"query": "q", "documents": ["x"]},
    "/v2/rerank": {"query": "q", "documents": ["x"]},
    "/api/embed": {"model": "tiny", "input": "x"},
}
QUERIES: dict[str, dict[str, Any]] = {
    "/tokenize": {"content": "x"},
    "/detokenize": {"tokens": [97]},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES},
    "/v1/responses/input_tokens": {"input": "x"},
    "/v1/messages/count_tokens": {"model": "tiny", "messages": MESSAGES},
}
"""Requests that the engine answers without computing."""


def path_of(name: str) -> str:
    """Return the path of a request with this name."""
    return name.partition(" ")[0]
