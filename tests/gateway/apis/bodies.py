"""Valid bodies with every kind of field, and the errors of bodies that are not."""

from typing import Any

import orjson
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.anthropic.messages.request import MessagesBody
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.ollama.embeddings import EmbedBody
from gateway.apis.ollama.request import OllamaChatBody
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.responses.request import ResponseBody
from gateway.preparation.stages import prepare

Body = dict[str, Any]

USER = {"role": "user", "content": "a"}
FUNCTION = {"name": "f", "parameters": {"type": "object", "required": ["x"]}}
LARK = {"syntax": "lark", "definition": 'start: "a"'}
CALLS = [
    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "2", "type": "custom", "custom": {"name": "g", "input": "a"}},
]
CHAT: Body = {
    "messages": [
        USER,
        {"role": "assistant", "tool_calls": CALLS},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ],
    "tools": [
        {"type": "function", "function": FUNCTION},
        {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": LARK}}},
    ],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CALLS[0]]}},
    "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
    "lora": [{"id": 0, "scale": 1}],
    "metadata": {"a": "b"},
    "stop": ["a"],
    "logit_bias": {"1": 1},
}
RESPONSE: Body = {
    "input": [
        USER,
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "a"}]},
    ],
    "tools": [
        {"type": "function", **FUNCTION},
        {"type": "custom", "name": "g", "format": {"type": "grammar", **LARK}},
        {"type": "namespace", "name": "n", "description": "a", "tools": [{"type": "function", **FUNCTION}]},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}},
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low"},
    "conversation": {"id": "a"},
}
MESSAGES: Body = {
    "model": "m",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "a"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}]}],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 1},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stop_sequences": ["a"],
}
OLLAMA: Body = {
    "model": "m",
    "messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
    "tools": [{"type": "function", "function": FUNCTION}],
    "options": {"stop": ["a"], "seed": 1},
    "think": True,
    "format": "json",
    "keep_alive": "5m",
}
BODIES: dict[type[BaseModel], Body] = {
    ChatBody: CHAT,
    CompletionBody: {"prompt": [[1], [2]], "stream": True, "stream_options": {"include_usage": True}},
    ResponseBody: RESPONSE,
    MessagesBody: MESSAGES,
    OllamaChatBody: OLLAMA,
    EmbedBody: {"model": "m", "input": ["a"]},
    NativeCompletionBody: {"prompt": [1, "a"], "logit_bias": [[1, False]], "samplers": ["top_k"]},
}


def refused(model: type[BaseModel], body: object) -> RequestError | None:
    """Return the error for a body, or None if its fields are valid one by one."""
    try:
        prepare(model, lambda read: read, orjson.dumps(body))
    except RequestError as error:
        return error
    return None
