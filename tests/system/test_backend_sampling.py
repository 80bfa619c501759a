"""Backend sampling over real sockets: the same answers, what is copied, and cancelled neighbours."""

from typing import Any

import pytest

from tests.repeat import thorough
from tests.system.answers import STREAMED
from tests.system.served import Served, ask, completion, serving

pytestmark = [pytest.mark.anyio, thorough]

GREEDY: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
SEEDED: dict[str, Any] = {**GREEDY, "temperature": 1.1, "top_k": 20, "top_p": 0.9, "seed": 5}


async def texts(served: Served) -> list[str]:
    answers = [await ask(served, **fields) for fields in (GREEDY, SEEDED, {**SEEDED, "n": 3})]
    return [choice["text"] for answer in answers for choice in answer["choices"]]


async def test_answers_are_the_same_and_whole_logits_are_copied_only_for_who_needs_them() -> None:
    async with serving(context=512, speculation="off") as served:
        expected = await texts(served)
    async with serving(context=512, speculation="off", backend_sampling="on") as served:
        assert await texts(served) == expected
        assert (await served.metrics()).whole_rows == 0
        await leave_early(served, **GREEDY)
        assert (await served.metrics()).whole_rows == 0
        whole = await ask(served, **{**GREEDY, "logprobs": 2, "max_tokens": 5})
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == 5
        assert (await served.metrics()).whole_rows == 5
        await leave_early(served, **{**GREEDY, "logprobs": 2})
        assert await texts(served) == expected


async def leave_early(served: Served, **fields: Any) -> None:
    """Close a stream once its first tokens have come, beside a request that stays."""
    client = await served.send(completion("leaves", **{**fields, "max_tokens": 400}, **STREAMED))
    await client.read_until(b'"text":')
    client.close()
    await ask(served, **GREEDY)
    await served.until_idle()
