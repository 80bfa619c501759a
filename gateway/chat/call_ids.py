"""Ids of calls in the form that Kimi K2 was trained with: `functions.name:index`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def with_counted_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with such ids in calls and in their results.

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
