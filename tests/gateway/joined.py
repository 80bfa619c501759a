"""The join of a stream of completion chunks."""

from typing import Any

import orjson


def joined(content: bytes) -> dict[str, Any]:
    """Return the chunks of a stream as one whole answer."""
    *chunks, done, _ = content.split(b"\n\n")
    assert done == b"data: [DONE]"
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for line in chunks:
        chunk = orjson.loads(line.removeprefix(b"data: "))
        for part in chunk.pop("choices"):
            _join(choices.setdefault(part["index"], {}), part)
        answer |= chunk
    return {**answer, "choices": [choices[index] for index in sorted(choices)]}


def _join(choice: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        known = choice.get(name)
        if known is None or name == "index":
            choice[name] = value
        elif isinstance(known, dict):
            choice[name] = {key: known[key] + value[key] for key in known} if value else known
        elif value is not None:
            choice[name] = known + value
