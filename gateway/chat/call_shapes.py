"""Calls and their results in the shapes that single templates require."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

_SHORT_ID = 9
"""Length of a call's id for Mistral's templates, which refuse any other."""


def with_counted_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with ids as Kimi K2 was trained with in calls and in their results: `functions.name:index`.

    An index counts the calls of the conversation from 0. Ids that already have the form stay.
    """
    return list(_counted(messages))


def _counted(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    ids: dict[str, str] = {}
    count = 0
    for message in messages:
        if "tool_calls" in message:
            calls = [{**call, "id": _id(call, index)} for index, call in enumerate(message["tool_calls"], count)]
            ids.update((old["id"], new["id"]) for old, new in zip(message["tool_calls"], calls, strict=True))
            count += len(calls)
            yield {**message, "tool_calls": calls}
        elif "tool_call_id" in message:
            yield {**message, "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"])}
        else:
            yield message


def _id(call: Mapping[str, Any], index: int) -> str:
    prefix = f"functions.{call['function']['name']}:"
    own: str = call["id"]
    return own if own.startswith(prefix) and own[len(prefix) :].isdigit() else f"{prefix}{index}"


def with_calls_apart(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the text beside calls in a message before them, as DeepSeek R1's template takes them."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if "tool_calls" in message and message["content"]:
            turns.append({"role": "assistant", "content": message["content"]})
            turns.append({**message, "content": None})
        else:
            turns.append(message)
    return turns


def with_tool_responses(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with results as the first template of Gemma 4 takes them: `tool_responses` beside the calls.

    Text beside calls becomes a message before them, and a text after the results becomes that of the calls' message.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        turn = turns[-1] if turns else {}
        if message["role"] == "tool" and "tool_responses" in turn:
            turn["tool_responses"].append(_response(message, turn["tool_calls"]))
        elif "tool_calls" in message:
            if message["content"]:
                turns.append({"role": "assistant", "content": message["content"]})
            turns.append({**message, "content": "", "tool_responses": []})
        elif message["role"] == "assistant" and turn.get("tool_responses") and not turn["content"]:
            turn["content"] = message["content"]
        else:
            turns.append(message)
    return turns


def _response(result: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = {call["id"]: call["function"]["name"] for call in calls}
    return {"name": names.get(result["tool_call_id"], "unknown"), "response": result["content"] or ""}


def as_object(arguments: str) -> object:
    """Return arguments as an object. Invalid JSON of a model stays text, which its template may accept too.

    orjson refuses what Python accepts and no prompt can have, but makes floats of integers above 64 bits.
    """
    try:
        orjson.loads(arguments or "{}")
        parsed = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def short_id(given: str) -> str:
    """Return nine letters and digits, always the same for the same id."""
    if len(given) == _SHORT_ID and given.isalnum() and given.isascii():
        return given
    return hashlib.sha256(given.encode()).hexdigest()[:_SHORT_ID]
