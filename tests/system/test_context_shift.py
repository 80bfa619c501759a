"""Texts longer than their slot, over real sockets and a real model."""

from typing import Any

import orjson
import pytest

from tests.gateway.joined import joined
from tests.system.answers import STREAMED
from tests.system.served import Served, ask, completion, serving

pytestmark = pytest.mark.anyio

LONG: dict[str, Any] = {"max_tokens": 400, "temperature": 0, "ignore_eos": True, "timings": True}


async def refused(served: Served, **body: Any) -> str | None:
    """Return the code of the 400 that a completion gets."""
    answer = await served.answer(completion("ask", **body))
    assert answer.status == 400
    code: str | None = orjson.loads(answer.body)["error"]["code"]
    return code


async def test_a_text_goes_on_when_its_slot_is_full() -> None:
    async with serving(context=256, context_shift=True) as served:
        whole = await ask(served, **LONG)
        assert whole["usage"]["completion_tokens"] == 400
        assert whole["timings"]["truncated"]
        stream = joined((await served.answer(completion("ask", **LONG, **STREAMED))).body)
        assert stream["choices"][0]["text"] == whole["choices"][0]["text"]
        other = await ask(served, **LONG, n_keep=-1, n_discard=20)
        assert other["choices"][0]["text"] != whole["choices"][0]["text"]
        short = await ask(served, **{**LONG, "max_tokens": 5})
        assert not short["timings"]["truncated"]
        assert await refused(served, prompt=[5] * 256, max_tokens=1) == "context_length_exceeded"


async def test_without_the_flag_a_text_ends_with_its_slot() -> None:
    async with serving(context=256) as served:
        assert await refused(served, **LONG, n_keep=5) == "context_length_exceeded"
