"""Results of calls as the first template of Gemma 4 takes them: in the assistant's message that has the calls."""

from collections.abc import Mapping, Sequence
from typing import Any


def with_tool_responses(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with results as `tool_responses` beside their calls.

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
